//! The text of a run with its tokenizer: read and encoded when the run begins, kept as tokens in its folder.

use std::ops::Range;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use burn::train::{TrainLoader, ValidLoader};
use firelight_core::ConfigError;
use firelight_data::{DataError, TokenFile, Tokenizer, TokenizerConfig, Tokens, read_text, stories};
use firelight_storage::{InputError, ModelFolder};
use firelight_training::DataModule;

use super::corpus::Corpus;
use super::recipe::begins_anew;
use super::{DataRecipe, Language, LanguageRecipe};
use crate::error::LanguageError;
use crate::training::LmTask;

/// What a language model is trained and validated on.
#[derive(Debug, Clone)]
pub struct LmText {
    /// Text to tokens.
    pub tokenizer: Tokenizer,
    /// All of it, before it is split.
    whole: Corpus,
    /// To train and to validate on.
    pub(super) parts: (Corpus, Corpus),
}

impl LmText {
    /// Tokens to train on.
    pub fn training(&self) -> &Tokens {
        self.parts.0.tokens()
    }

    /// Tokens to validate on.
    pub fn validation(&self) -> &Tokens {
        self.parts.1.tokens()
    }

    fn new(recipe: &LanguageRecipe, tokenizer: Tokenizer, whole: Corpus) -> Result<Self, LanguageError> {
        let parts = whole.parts(recipe)?;
        Ok(Self { tokenizer, whole, parts })
    }
}

impl DataModule<Language> for LmText {
    fn read(recipe: &mut LanguageRecipe, source: &Path, paths: &[PathBuf]) -> Result<Self, LanguageError> {
        let text = match (one_file(paths)?, recipe.data.stories) {
            (Some(path), _) => read_text(path)?,
            (None, Some(length)) => stories(recipe.seed, length),
            (None, None) => {
                let problem = format!("the recipe `{}` needs a text to train on", source.display());
                return Err(InputError::new(problem).advise("give one with --data FILE").into());
            }
        };
        if !paths.is_empty() {
            recipe.data.stories = None; // so that the recipe in the folder does not promise stories
        }
        let tokenizer = match recipe.init.run_with_tokenizer(recipe.data.tokenizer.is_file())? {
            Some(run) => Tokenizer::load(run.tokenizer())?,
            None => train_tokenizer(&recipe.data, &text)?,
        };
        check_kind(&recipe.data, &tokenizer, source)?;
        let whole = Corpus::encode(&tokenizer, &recipe.data, &text)?;
        Self::new(recipe, tokenizer, whole)
    }

    fn recall(recipe: &mut LanguageRecipe, stored: &LanguageRecipe) {
        if stored.data.stories.is_none() {
            recipe.data.stories = None; // a text was given in their place
        }
    }

    fn save(&self, folder: &ModelFolder) -> Result<(), LanguageError> {
        self.whole.save(folder, self.tokenizer.vocab_size())?;
        Ok(self.tokenizer.save(folder.tokenizer())?)
    }

    fn open(recipe: &LanguageRecipe, folder: &ModelFolder) -> Result<Self, LanguageError> {
        let tokenizer = Tokenizer::load(folder.tokenizer())?;
        let tokens = TokenFile::open(folder.tokens())?;
        if tokens.vocab_size() != tokenizer.vocab_size() {
            let [found, beside] = [tokens.vocab_size(), tokenizer.vocab_size()];
            let problem = format!("is for a vocabulary of {found} tokens, but tokenizer.json beside it has {beside}");
            let advice = "restore the file that belongs to this run";
            return Err(InputError::in_file(&folder.tokens(), problem).advise(advice).into());
        }
        let whole = Corpus::open(folder, &recipe.data, tokens)?;
        Self::new(recipe, tokenizer, whole)
    }

    fn is_of(&self, recipe: &LanguageRecipe, paths: &[PathBuf]) -> Result<bool, LanguageError> {
        let Some(path) = one_file(paths)? else { return Ok(true) };
        let other = match Corpus::encode(&self.tokenizer, &recipe.data, &read_text(path)?) {
            Err(DataError::UnknownCharacter { .. }) => return Ok(false), // it was not in the text of the run
            other => other?,
        };
        let [tokens, other] = [self.whole.tokens(), other.tokens()];
        Ok(tokens.len() == other.len() && tokens.get(0..tokens.len()) == other.get(0..other.len()))
    }

    fn sizes(&self) -> String {
        let [training, validation] = [self.training().len(), self.validation().len()];
        format!("{training} tokens to train on, {validation} to validate on")
    }

    fn batches_per_epoch(&self, recipe: &LanguageRecipe) -> Result<usize, LanguageError> {
        Ok(self.parts.0.batches_per_epoch(recipe)?)
    }

    fn training_loader(
        &self,
        recipe: &LanguageRecipe,
        batches: Range<usize>,
        device: &Device,
    ) -> Result<TrainLoader<LmTask>, LanguageError> {
        Ok(self.parts.0.training_loader(recipe, batches, device)?)
    }

    fn validation_loader(
        &self,
        recipe: &LanguageRecipe,
        device: &Device,
    ) -> Result<ValidLoader<LmTask>, LanguageError> {
        Ok(self.parts.1.validation_loader(recipe, device)?)
    }
}

/// The one file that running text is read from.
fn one_file(paths: &[PathBuf]) -> Result<Option<&Path>, LanguageError> {
    match paths {
        [] => Ok(None),
        [path] => Ok(Some(path)),
        several => {
            let problem = format!("a language model is trained on one text, but {} were given", several.len());
            Err(InputError::new(problem).advise("join them into one file").into())
        }
    }
}

/// A character vocabulary is that of the whole text, as nanoGPT's; merges are learned from the training split alone.
fn train_tokenizer(data: &DataRecipe, text: &str) -> Result<Tokenizer, LanguageError> {
    let part = match data.tokenizer {
        TokenizerConfig::Bpe { .. } => &text[..text.floor_char_boundary(training_bytes(data, text))],
        _ => text,
    };
    Ok(Tokenizer::train(&data.tokenizer, part)?)
}

/// Which kind of tokenizer a file holds is known only once it is read.
fn check_kind(data: &DataRecipe, tokenizer: &Tokenizer, source: &Path) -> Result<(), LanguageError> {
    let unfit = begins_anew(&data.tokenizer, tokenizer.kind());
    ConfigError::collect([], [unfit]).map_err(|error| LanguageError::Config { path: source.into(), error })
}

fn training_bytes(data: &DataRecipe, text: &str) -> usize {
    ((1.0 - data.validation_fraction.clamp(0.0, 1.0)) * text.len() as f64) as usize
}

#[cfg(test)]
mod tests {
    use super::super::stories_recipe;
    use super::*;

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
