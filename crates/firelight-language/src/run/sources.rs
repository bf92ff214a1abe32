//! Where the text of a run comes from: files of running text or of records, one source or several, and how it becomes ids.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use firelight_data::records::RecordFormat;
use firelight_data::{
    DataError, HeldOut, SplitConfig, SplitFiles, TokenBuilder, Tokenizer, TokenizerConfig, split_files, texts_of,
};

use super::DataRecipe;
use super::corpus::{Corpus, SourceTokens, in_file};
use firelight_storage::TaskError;

/// No vocabulary of BPE is learnt from more text, in bytes: the sources have equal shares in it.
const LEARNT: usize = 256 << 20;

/// A token of BPE is nearly always shorter, in bytes: so many are left out of what a vocabulary is learnt from for each token that is
/// held out.
const LONG_TOKEN: usize = 16;

/// Where the ids of a source are: those of its files to train on, and to validate on.
type Places = [Range<usize>; 2];

/// What a run reads.
pub(super) enum Sources {
    /// A text that was generated.
    Generated(String),
    /// The files of each source.
    Files(Vec<SplitFiles>),
}

impl Sources {
    /// The files at the paths, of which each is a source: a file, or a folder of splits.
    pub(super) fn at(data: &DataRecipe, paths: &[PathBuf]) -> Result<Self, TaskError> {
        let files = paths.iter().map(|path| data.split.files(path, &endings())).collect::<Result<_, _>>()?;
        Ok(Self::Files(files))
    }

    /// The files of one split of a folder.
    pub(super) fn of_split(folder: &Path, split: &str) -> Result<Self, TaskError> {
        let training = split_files(folder, split, &endings())?;
        Ok(Self::Files(vec![SplitFiles { training, validation: Vec::new() }]))
    }

    /// The tokenizer that the recipe asks for. A character vocabulary is that of the whole text, as nanoGPT's; merges are learnt from
    /// what is trained on alone.
    pub(super) fn tokenizer(&self, data: &DataRecipe) -> Result<Tokenizer, DataError> {
        let text = match (&data.tokenizer, self) {
            (TokenizerConfig::Char, Self::Generated(text)) => text.clone(),
            (TokenizerConfig::Char, Self::Files(sources)) => characters_of(sources, &data.column)?,
            (TokenizerConfig::Bpe { .. }, Self::Generated(text)) => {
                text[..text.floor_char_boundary(training_bytes(&self.split(data), text.len()))].to_owned()
            }
            (TokenizerConfig::Bpe { .. }, Self::Files(sources)) => learnt_from(sources, data)?,
            _ => String::new(),
        };
        Tokenizer::train(&data.tokenizer, &text)
    }

    /// The ids to train and to validate on, source by source.
    pub(super) fn encode(&self, tokenizer: &Tokenizer, data: &DataRecipe) -> Result<[Corpus; 2], DataError> {
        let (whole, places) = self.build(tokenizer, data)?;
        let (mut parts, files) = ([Vec::new(), Vec::new()], self.files());
        for (source, [training, validation]) in places.into_iter().enumerate() {
            let training = whole.within(training);
            let pair = match validation.is_empty() {
                true => training.hold_out(&self.split(data)).map_err(in_file(files[0].get(source)))?,
                false => [training, whole.within(validation)],
            };
            parts.iter_mut().zip(pair).for_each(|(parts, part)| parts.push(part));
        }
        let ([training, validation], [trained, validated]) = (parts, files);
        Ok([Corpus::new(training).read_from(trained), Corpus::new(validation).read_from(validated)])
    }

    /// Where each source to train on lies, and to validate on: a file, or the folder of several.
    fn files(&self) -> [Vec<PathBuf>; 2] {
        let Self::Files(sources) = self else { return Default::default() };
        let place = |files: &[PathBuf]| match files {
            [] => None,
            [only] => Some(only.clone()),
            [first, ..] => Some(first.parent().unwrap_or(first).to_path_buf()),
        };
        let training = |source: &SplitFiles| place(&source.training).unwrap_or_default();
        let validation = |source: &SplitFiles| place(&source.validation).unwrap_or_else(|| training(source));
        [sources.iter().map(training).collect(), sources.iter().map(validation).collect()]
    }

    fn split(&self, data: &DataRecipe) -> SplitConfig {
        match self {
            Self::Generated(_) => data.split.of_generated(),
            Self::Files(_) => data.split.clone(),
        }
    }

    /// All ids as what is measured.
    pub(super) fn encode_all(&self, tokenizer: &Tokenizer, data: &DataRecipe) -> Result<Corpus, DataError> {
        Ok(Corpus::new(vec![self.build(tokenizer, data)?.0]))
    }

    /// All ids, and of each source those of its files.
    fn build(&self, tokenizer: &Tokenizer, data: &DataRecipe) -> Result<(SourceTokens, Vec<Places>), DataError> {
        let mut builder = TokenBuilder::new(tokenizer, data.documents.as_ref())?;
        let mut places = Vec::new();
        match self {
            Self::Generated(text) => {
                builder.add_text(text)?;
                places.push([0..builder.len(), 0..0]);
            }
            Self::Files(sources) => {
                for SplitFiles { training, validation } in sources {
                    let [training, validation] = [training, validation].map(|files| add(&mut builder, files, data));
                    places.push([training?, validation?]);
                }
            }
        }
        let (tokens, ends) = builder.finish()?;
        Ok((SourceTokens::new(tokens, data.documents.is_some().then_some(ends)), places))
    }
}

/// Adds files, and says where their ids are.
fn add(builder: &mut TokenBuilder, files: &[PathBuf], data: &DataRecipe) -> Result<Range<usize>, DataError> {
    let start = builder.len();
    files.iter().try_for_each(|file| builder.add_file(file, &data.column))?;
    Ok(start..builder.len())
}

/// The endings of the files of a folder.
fn endings() -> Vec<&'static str> {
    ["txt"].into_iter().chain(RecordFormat::ENDINGS).collect()
}

/// The distinct characters of all files.
fn characters_of(sources: &[SplitFiles], column: &str) -> Result<String, DataError> {
    let mut characters = BTreeSet::new();
    for file in sources.iter().flat_map(|source| source.training.iter().chain(&source.validation)) {
        for text in texts_of(file, column)? {
            characters.extend(text?.chars());
        }
    }
    Ok(characters.into_iter().collect())
}

/// The beginning of each source, without what it holds out.
fn learnt_from(sources: &[SplitFiles], data: &DataRecipe) -> Result<String, DataError> {
    let mut learnt = String::new();
    for source in sources {
        let size = |file: &PathBuf| file.metadata().map_or(0, |found| found.len() as usize);
        let bytes: usize = source.training.iter().map(size).sum();
        let kept = if source.validation.is_empty() { training_bytes(&data.split, bytes) } else { bytes };
        let end = learnt.len() + kept.min(LEARNT / sources.len());
        for file in &source.training {
            read_up_to(&mut learnt, end, file, &data.column)?;
        }
    }
    Ok(learnt)
}

/// Reads a file until there are so many bytes of text.
fn read_up_to(learnt: &mut String, end: usize, file: &Path, column: &str) -> Result<(), DataError> {
    let mut texts = texts_of(file, column)?;
    while learnt.len() < end {
        let Some(text) = texts.next() else { break };
        *learnt += &text?;
    }
    learnt.truncate(learnt.floor_char_boundary(end));
    Ok(())
}

/// About how many of the bytes of a text are trained on.
fn training_bytes(split: &SplitConfig, bytes: usize) -> usize {
    match split.validation {
        Some(HeldOut::Count(tokens)) => bytes.saturating_sub(tokens.saturating_mul(LONG_TOKEN)),
        _ => split.training_len(bytes, "bytes").unwrap_or(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_data::Separator;
    use std::fs;

    fn home(files: &[(&str, &str)]) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| fs::write(home.path().join(name), text).unwrap());
        home
    }

    fn texts(corpus: &Corpus, tokenizer: &Tokenizer) -> Vec<String> {
        corpus.parts().map(|part| tokenizer.decode(&part.tokens().iter().collect::<Vec<_>>())).collect()
    }

    fn encoded(data: &DataRecipe, paths: &[PathBuf]) -> [Vec<String>; 2] {
        let sources = Sources::at(data, paths).unwrap();
        let tokenizer = sources.tokenizer(data).unwrap();
        sources.encode(&tokenizer, data).unwrap().map(|part| texts(&part, &tokenizer))
    }

    #[test]
    fn a_folder_has_its_own_validation_split_and_a_file_holds_out_its_end() {
        let home =
            home(&[("train.txt", "abcabcabca"), ("dev.jsonl", "{\"text\": \"ccc\"}\n"), ("other.txt", "bb\u{e9}b")]);
        let path = |name: &str| home.path().join(name);
        let found = encoded(&DataRecipe::default(), &[home.path().into(), path("other.txt")]);
        assert_eq!(found, [["abcabcabca", "bb\u{e9}"], ["ccc\n\n", "b"]].map(|texts| texts.map(String::from).to_vec()));
        let named = DataRecipe {
            split: SplitConfig { validation: Some(HeldOut::Split("other.txt".into())), ..SplitConfig::default() },
            ..DataRecipe::default()
        };
        assert_eq!(
            encoded(&named, &[path("train.txt")]),
            [["abcabcabca"], ["bb\u{e9}b"]].map(|texts| texts.map(String::from).to_vec())
        );
    }

    #[test]
    fn shards_are_one_text_and_records_are_documents() {
        let shard = |text: &str| format!("{{\"body\": \"{text}\"}}\n{{\"body\": \"x\"}}\n");
        let [first, second] = [shard("ab"), shard("c")];
        let home = home(&[("train-00000-of-00002.jsonl", &first), ("train-00001-of-00002.jsonl", &second)]);
        let data = DataRecipe {
            column: "body".into(),
            documents: Some(Separator::Line),
            split: SplitConfig { validation: Some(HeldOut::Count(3)), ..SplitConfig::default() },
            ..DataRecipe::default()
        };
        let expected = [["ab\n\nx\n\nc\n\n"], ["x\n\n"]].map(|texts| texts.map(String::from).to_vec());
        assert_eq!(encoded(&data, &[home.path().into()]), expected);
    }

    #[test]
    fn merges_are_learnt_from_what_is_trained_on_alone() {
        let home = home(&[("a.txt", &("ab".repeat(90) + &"cd".repeat(10))), ("b.txt", &"cd".repeat(200))]);
        let data = DataRecipe { tokenizer: TokenizerConfig::Bpe { vocab_size: 258 }, ..DataRecipe::default() };
        let sources = Sources::at(&data, &[home.path().join("a.txt")]).unwrap();
        let tokenizer = sources.tokenizer(&data).unwrap();
        assert!((256..tokenizer.vocab_size() as u32).all(|id| !tokenizer.token(id).unwrap().contains('d')));
        let both = Sources::at(&data, &["a.txt", "b.txt"].map(|name| home.path().join(name))).unwrap();
        assert_eq!(both.tokenizer(&data).unwrap().token(256).unwrap(), "cd", "it is the more frequent one of both");
        let none = DataRecipe { split: SplitConfig::share(0.5), ..data };
        assert_eq!(training_bytes(&none.split, 10), 5);
        let count = SplitConfig { validation: Some(HeldOut::Count(2)), ..SplitConfig::default() };
        assert_eq!((training_bytes(&count, 100), training_bytes(&count, 10)), (68, 0));
    }

    #[test]
    fn what_is_not_there_is_named() {
        let home = home(&[("valid.txt", "x")]);
        let error = |paths: &[PathBuf]| Sources::at(&DataRecipe::default(), paths).err().unwrap().to_string();
        assert!(error(&[home.path().into()]).contains("has no split `train`: expected train.txt or train.tsv"));
        assert!(error(&[home.path().join("none.txt")]).starts_with("there is no file or folder"));
        let split = Sources::of_split(&home.path().join("valid.txt"), "test").err().unwrap().to_string();
        assert!(split.contains("is one file and has no split `test`"), "{split}");
    }
}
