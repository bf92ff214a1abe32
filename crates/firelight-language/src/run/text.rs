//! The text of a run with its tokenizer: read and encoded when the run begins, kept as tokens in its folder.

use std::ops::Range;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use burn::train::{TrainLoader, ValidLoader};
use firelight_data::{DataError, Documents, Mixture, Split, TokenFile, Tokenizer, Tokens, save_lengths, stories};
use firelight_storage::{InputError, ModelFolder, TaskError, read_json, unfit_file, write_json};
use firelight_training::DataModule;
use serde::{Deserialize, Serialize};

use super::corpus::{Corpus, SourceTokens};
use super::recipe::begins_anew;
use super::sources::Sources;
use super::{DataRecipe, Language, LanguageRecipe};
use crate::training::LmTask;

/// No list of sources is longer, in bytes.
const SOURCES_LIMIT: u64 = 1 << 20;

/// What a language model is trained and validated on.
#[derive(Debug, Clone)]
pub struct LmText {
    /// Text to tokens.
    pub tokenizer: Tokenizer,
    /// To train and to validate on.
    pub(super) parts: [Corpus; 2],
}

/// How many tokens of a source are trained and validated on, as a run folder keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceLengths {
    training: usize,
    validation: usize,
}

impl LmText {
    /// How many tokens are trained on.
    pub fn training_len(&self) -> usize {
        self.parts[0].len()
    }

    /// How many tokens are validated on.
    pub fn validation_len(&self) -> usize {
        self.parts[1].len()
    }

    /// The first tokens that are trained on, at most so many.
    pub fn first_tokens(&self, count: usize) -> Vec<u32> {
        self.parts[0].ids().take(count).collect()
    }

    fn new(recipe: &LanguageRecipe, tokenizer: Tokenizer, parts: [Corpus; 2]) -> Result<Self, TaskError> {
        let [training, validation] = &parts;
        training.check(Split::Training, recipe)?;
        validation.check(Split::Validation, recipe)?;
        Ok(Self { tokenizer, parts })
    }

    /// All parts, source by source: what is trained on and what is validated on.
    fn all(&self) -> impl Iterator<Item = &SourceTokens> {
        let [training, validation] = &self.parts;
        training.parts().zip(validation.parts()).flat_map(|(training, validation)| [training, validation])
    }

    fn lengths(&self) -> Vec<SourceLengths> {
        let [training, validation] = self.parts.each_ref().map(|part| part.parts().map(|part| part.tokens().len()));
        training.zip(validation).map(|(training, validation)| SourceLengths { training, validation }).collect()
    }
}

impl DataModule<Language> for LmText {
    fn read(recipe: &mut LanguageRecipe, source: &Path, paths: &[PathBuf]) -> Result<Self, TaskError> {
        let sources = match (paths, recipe.data.stories) {
            ([], Some(length)) => Sources::Generated(stories(recipe.seed, length)),
            ([], None) => {
                let problem = format!("the recipe `{}` needs a text to train on", source.display());
                return Err(InputError::new(problem).advise("give one with --data FILE").into());
            }
            (paths, _) => Sources::at(&recipe.data, paths)?,
        };
        Mixture::<()>::check(&recipe.data.weights, paths.len().max(1))?;
        let tokenizer = match recipe.init.run_with_tokenizer(recipe.data.tokenizer.is_file())? {
            Some(run) => Tokenizer::load(run.tokenizer())?,
            None => sources.tokenizer(&recipe.data)?,
        };
        check_kind(&recipe.data, &tokenizer, source)?;
        let parts = sources.encode(&tokenizer, &recipe.data)?;
        Self::new(recipe, tokenizer, parts)
    }

    fn forget_generated(recipe: &mut LanguageRecipe) {
        recipe.data.stories = None;
    }

    fn save(&self, folder: &ModelFolder) -> Result<(), TaskError> {
        let ids = self.all().flat_map(|part| part.tokens().iter());
        TokenFile::create(folder.tokens(), self.tokenizer.vocab_size(), ids)?;
        let documents: Vec<_> = self.all().filter_map(SourceTokens::documents).collect();
        if !documents.is_empty() {
            save_lengths(folder.documents(), &documents)?;
        }
        write_json(folder.sources(), &self.lengths())?;
        Ok(self.tokenizer.save(folder.tokenizer())?)
    }

    fn open(recipe: &LanguageRecipe, folder: &ModelFolder) -> Result<Self, TaskError> {
        let tokenizer = Tokenizer::load(folder.tokenizer())?;
        let tokens = TokenFile::open(folder.tokens())?;
        if tokens.vocab_size() != tokenizer.vocab_size() {
            let [found, beside] = [tokens.vocab_size(), tokenizer.vocab_size()];
            let problem = format!("is for a vocabulary of {found} tokens, but tokenizer.json beside it has {beside}");
            let advice = "restore the file that belongs to this run";
            return Err(InputError::in_file(&folder.tokens(), problem).advise(advice).into());
        }
        let tokens = Tokens::from(tokens);
        let lengths = read_lengths(&folder.sources(), tokens.len())?;
        let whole = match recipe.data.documents {
            None => SourceTokens::Stream(tokens),
            Some(_) => SourceTokens::Documents(Documents::open(tokens, folder.documents())?),
        };
        let mut start = 0;
        let mut next = |length: usize| {
            start += length;
            whole.within(start - length..start)
        };
        let parts: Vec<[SourceTokens; 2]> =
            lengths.into_iter().map(|of| [next(of.training), next(of.validation)]).collect();
        let (training, validation) = parts.into_iter().map(<(SourceTokens, SourceTokens)>::from).unzip();
        Self::new(recipe, tokenizer, [Corpus::new(training), Corpus::new(validation)])
    }

    fn is_of(&self, recipe: &LanguageRecipe, paths: &[PathBuf]) -> Result<bool, TaskError> {
        if paths.is_empty() {
            return Ok(true);
        }
        match Sources::at(&recipe.data, paths)?.encode(&self.tokenizer, &recipe.data) {
            Err(DataError::UnknownCharacter { .. }) => Ok(false), // it was not in the text of the run
            other => Ok(self.parts.iter().zip(&other?).all(|(own, other)| own.equals(other))),
        }
    }

    fn sizes(&self) -> String {
        let [training, validation] = [self.training_len(), self.validation_len()];
        let sources = match self.parts[0].parts().count() {
            1 => String::new(),
            several => format!(" of {several} sources"),
        };
        format!("{training} tokens{sources} to train on, {validation} to validate on")
    }

    fn batches_per_epoch(&self, recipe: &LanguageRecipe) -> Result<usize, TaskError> {
        Ok(self.parts[0].batches_per_epoch(recipe)?)
    }

    fn training_loader(
        &self,
        recipe: &LanguageRecipe,
        batches: Range<usize>,
        device: &Device,
    ) -> Result<TrainLoader<LmTask>, TaskError> {
        Ok(self.parts[0].training_loader(recipe, batches, device)?)
    }

    fn validation_loader(&self, recipe: &LanguageRecipe, device: &Device) -> Result<ValidLoader<LmTask>, TaskError> {
        Ok(self.parts[1].validation_loader(recipe, device)?)
    }
}

/// How many tokens of each source are in which part.
fn read_lengths(path: &Path, tokens: usize) -> Result<Vec<SourceLengths>, TaskError> {
    let lengths: Vec<SourceLengths> = read_json(path, SOURCES_LIMIT)?;
    let numbers = lengths.iter().flat_map(|of| [of.training, of.validation]);
    match numbers.fold(0_usize, usize::saturating_add) {
        sum if sum == tokens && !lengths.is_empty() => Ok(lengths),
        sum => {
            let reason = format!("its sources have {sum} tokens, but data.tokens has {tokens}");
            Err(unfit_file(path, &reason).into())
        }
    }
}

/// Which kind of tokenizer a file holds is known only once it is read.
fn check_kind(data: &DataRecipe, tokenizer: &Tokenizer, source: &Path) -> Result<(), TaskError> {
    let unfit = begins_anew(&data.tokenizer, tokenizer.kind());
    TaskError::in_config(source, &Vec::from_iter(unfit))
}

#[cfg(test)]
mod tests {
    use super::super::stories_recipe;
    use super::*;
    use firelight_data::TokenizerConfig;

    #[test]
    fn a_file_with_a_tokenizer_that_begins_every_text_anew_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let [path, text] = ["tokenizer.json", "text.txt"].map(|name| home.path().join(name));
        std::fs::write(&text, "one two three one two three\n".repeat(100)).unwrap();
        let tokenizer = format!("file:{}", path.display());
        let overrides = [("data.tokenizer".to_owned(), tokenizer.clone())];
        let mut recipe = LanguageRecipe::parse(stories_recipe(), "stories.toml", &overrides).unwrap();
        recipe.data.validate().unwrap();
        let mut read = || LmText::read(&mut recipe, Path::new("recipe.toml"), std::slice::from_ref(&text));
        Tokenizer::train(&TokenizerConfig::Word { min_frequency: 1 }, "one two").unwrap().save(&path).unwrap();
        let error = read().unwrap_err().to_string();
        assert!(error.contains(&format!("data.tokenizer = {tokenizer} begins every text anew")), "{error}");
        Tokenizer::train(&TokenizerConfig::Byte, "").unwrap().save(&path).unwrap();
        assert_eq!(read().unwrap().tokenizer.vocab_size(), 256);
    }
}
