//! The tagged sentences of a run with their tokenizer and their tags: read and split when the run begins, kept in its folder.

use std::ops::Range;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use firelight_data::labelled::Labels;
use firelight_data::tagged::{self, TaggedSentence};
use firelight_data::{BatchPlan, Tokenizer};
use firelight_storage::{ModelFolder, write_json_lines};

use super::batch::{TaggedBatch, TaggedBatcher, TaggedExample};
use super::recipe::{TaggedRecipe, TokenClassificationRecipe};
use crate::error::ClassificationError;
use crate::run::{Held, Loader, Parts, Shuffled, files_in, in_order};
use crate::vocabulary::TextVocabulary;

/// The endings of tagged sentences, in the order in which they are looked for.
pub(super) const ENDINGS: [&str; 4] = ["conll", "txt", "tsv", "jsonl"];

/// What a classifier of tokens is trained and validated on.
#[derive(Debug, Clone)]
pub struct TaggedCorpus {
    vocabulary: TextVocabulary,
    tags: Labels,
    sentences: Parts<TaggedSentence>,
    training: Vec<TaggedExample>,
    validation: Vec<TaggedExample>,
}

impl TaggedCorpus {
    /// The tokenizer.
    pub fn vocabulary(&self) -> &TextVocabulary {
        &self.vocabulary
    }

    /// The tags, sorted.
    pub fn tags(&self) -> &Labels {
        &self.tags
    }

    /// The sentences to validate on.
    pub fn validation_sentences(&self) -> &[TaggedSentence] {
        &self.sentences.validation
    }

    /// What is trained on: sentences, and the parts of those that are too long for one.
    pub fn training(&self) -> &[TaggedExample] {
        &self.training
    }

    /// What is validated on.
    pub fn validation(&self) -> &[TaggedExample] {
        &self.validation
    }

    pub(super) fn sizes(&self) -> String {
        let words = |sentences: &[TaggedSentence]| sentences.iter().map(|found| found.tokens.len()).sum::<usize>();
        let Parts { training, validation, .. } = &self.sentences;
        let more = self.training.len() - training.len();
        let more = if more > 0 { format!(" ({more} cuts at model.max_seq_len)") } else { String::new() };
        format!(
            "{} sentences of {} words with {} tags to train on{more}, {} of {} to validate on",
            training.len(),
            words(training),
            self.tags.len(),
            validation.len(),
            words(validation)
        )
    }

    /// Reads the sentences; the tokenizer is that of another run, or trained.
    pub(super) fn read(
        recipe: &TokenClassificationRecipe,
        source: &Path,
        paths: &[PathBuf],
        vocabulary: Option<TextVocabulary>,
    ) -> Result<Self, ClassificationError> {
        let sentences = sentences_of(&recipe.data, source, paths)?;
        if let Some(vocabulary) = vocabulary {
            return Self::new(recipe, vocabulary, sentences);
        }
        let all: String = sentences.training.iter().map(|found| found.tokens.join(" ") + "\n").collect();
        let vocabulary = TextVocabulary::new(Tokenizer::train(&recipe.data.tokenizer, &all)?)?;
        Self::new(recipe, vocabulary, sentences)
    }

    fn new(
        recipe: &TokenClassificationRecipe,
        vocabulary: TextVocabulary,
        sentences: Parts<TaggedSentence>,
    ) -> Result<Self, ClassificationError> {
        // A tag that stands in one sentence alone may be held back with it, and is a tag of the file none the less.
        let is_held_back = matches!(recipe.data.validation, Held::Texts(_));
        let held = if is_held_back { sentences.validation.as_slice() } else { &[] };
        let tags = tagged::tags_of(sentences.training.iter().chain(held))?;
        let max_len = recipe.model.transformer.max_seq_len;
        let [training_file, validation_file] = &sentences.files;
        let training = examples(&vocabulary, &tags, (training_file, &sentences.training), max_len)?;
        let validation = examples(&vocabulary, &tags, (validation_file, &sentences.validation), max_len)?;
        Ok(Self { vocabulary, tags, sentences, training, validation })
    }

    pub(super) fn save(&self, folder: &ModelFolder) -> Result<(), ClassificationError> {
        self.vocabulary.save(folder)?;
        write_json_lines(folder.training_pairs(), &self.sentences.training)?;
        Ok(write_json_lines(folder.validation_pairs(), &self.sentences.validation)?)
    }

    pub(super) fn open(recipe: &TokenClassificationRecipe, folder: &ModelFolder) -> Result<Self, ClassificationError> {
        let files = [folder.training_pairs(), folder.validation_pairs()];
        let read = |file: &PathBuf| tagged::read(file, recipe.data.scheme);
        let [training, validation] = [read(&files[0])?, read(&files[1])?];
        Self::new(recipe, TextVocabulary::load(folder)?, Parts { training, validation, files })
    }

    /// Whether the sentences at `paths` are these.
    pub(super) fn is_of(&self, data: &TaggedRecipe, paths: &[PathBuf]) -> Result<bool, ClassificationError> {
        let other = sentences_of(data, Path::new(""), paths)?;
        let same = |one: &[TaggedSentence], other: &[TaggedSentence]| {
            let content = |found: &TaggedSentence| (found.tokens.clone(), found.tags.clone());
            one.iter().map(content).eq(other.iter().map(content))
        };
        let own = &self.sentences;
        Ok(same(&other.training, &own.training) && same(&other.validation, &own.validation))
    }

    pub(super) fn training_plan(&self, recipe: &TokenClassificationRecipe) -> Result<BatchPlan, ClassificationError> {
        let lengths = self.training.iter().map(length);
        Ok(BatchPlan::new(recipe.data.batching, recipe.training.batch_size, lengths)?)
    }

    pub(super) fn training_loader(
        &self,
        recipe: &TokenClassificationRecipe,
        batches: Range<usize>,
        device: &Device,
    ) -> Result<Loader<TaggedBatch>, ClassificationError> {
        let plan = self.training_plan(recipe)?;
        let all = Shuffled { examples: &self.training, plan, seed: recipe.seed, workers: recipe.data.workers };
        Ok(all.loader(TaggedBatcher, batches, device))
    }

    /// The validation sentences, from the short to the long.
    pub(super) fn validation_loader(&self, device: &Device) -> Result<Loader<TaggedBatch>, ClassificationError> {
        reading(&self.validation, device)
    }
}

/// The examples once each, from the short to the long.
pub(super) fn reading(examples: &[TaggedExample], device: &Device) -> Result<Loader<TaggedBatch>, ClassificationError> {
    Ok(in_order(examples, length, TaggedBatcher, device)?)
}

fn length(example: &TaggedExample) -> usize {
    example.words.text.ids.len()
}

/// The sentences of a file as ids with the numbers of their tags, each in as many parts as it needs.
pub(super) fn examples(
    vocabulary: &TextVocabulary,
    tags: &Labels,
    (file, sentences): (&Path, &[TaggedSentence]),
    max_len: usize,
) -> Result<Vec<TaggedExample>, ClassificationError> {
    let mut examples: Vec<TaggedExample> = Vec::new();
    for (sentence, tags) in sentences.iter().zip(tagged::tag_ids(tags, file, sentences)?) {
        let parts = vocabulary.encode_words(&sentence.tokens, max_len);
        let parts = parts.map_err(|error| ClassificationError::Line { line: sentence.line, error })?;
        let mut tags = tags.into_iter();
        for words in parts {
            let tags = tags.by_ref().take(words.places.len()).collect();
            examples.push(TaggedExample { number: examples.len(), words, tags });
        }
    }
    Ok(examples)
}

fn sentences_of(
    data: &TaggedRecipe,
    source: &Path,
    paths: &[PathBuf],
) -> Result<Parts<TaggedSentence>, ClassificationError> {
    let [path] = paths else { return Err(ClassificationError::NoData { path: source.into() }) };
    let files = files_in(path, (&data.training, &data.validation), &ENDINGS)?;
    let read = |file: &Path| tagged::read(file, data.scheme);
    Parts::read_by(files, &data.validation, data.split_seed, read, |sentences| vec![0; sentences.len()])
}

#[cfg(test)]
mod tests {
    use super::super::TokenClassification;
    use super::*;
    use firelight_storage::Existing;
    use firelight_training::read_recipe;
    use std::fs;

    const SENTENCES: &str = "Ada\tB-PER\nLovelace\tI-PER\nwrote\tO\n\nin\tO\nLondon\tB-LOC\n";

    fn recipe(overrides: &[(&str, &str)]) -> TokenClassificationRecipe {
        let overrides: Vec<_> = overrides.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        read_recipe::<TokenClassification>(None, &overrides).unwrap()
    }

    #[test]
    fn sentences_come_back_from_the_folder_with_tokenizer_and_tags() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        fs::write(path("train.conll"), SENTENCES).unwrap();
        fs::write(path("dev.txt"), "Ada I-PER\n").unwrap();
        let recipe = self::recipe(&[("data.scheme", "iob1"), ("data.tokenizer", "char"), ("model.max_seq_len", "12")]);
        let paths = [home.path().to_path_buf()];
        let made = TaggedCorpus::read(&recipe, Path::new("x.toml"), &paths, None).unwrap();
        let sizes =
            "2 sentences of 5 words with 4 tags to train on (2 cuts at model.max_seq_len), 1 of 1 to validate on";
        assert_eq!(made.sizes(), sizes);
        assert_eq!(made.tags().names(), ["B-LOC", "B-PER", "I-PER", "O"]);
        let tags: Vec<&[usize]> = made.training().iter().map(|example| example.tags.as_slice()).collect();
        assert_eq!(tags, [&[1][..], &[2], &[3], &[3, 0]]);
        let run = ModelFolder::create(path("run"), Existing::Refuse).unwrap();
        made.save(&run).unwrap();
        let read = TaggedCorpus::open(&recipe, &run).unwrap();
        assert_eq!((read.training(), read.validation()), (made.training(), made.validation()));
        assert!(read.is_of(&recipe.data, &paths).unwrap());
        fs::write(path("dev.txt"), "Ada B-LOC\n").unwrap();
        assert!(!read.is_of(&recipe.data, &paths).unwrap());
    }

    #[test]
    fn what_does_not_fit_is_reported_with_its_line() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let read = |overrides: &[(&str, &str)], file: &str| {
            let recipe = recipe(&[&[("data.tokenizer", "word:1")], overrides].concat());
            let error = TaggedCorpus::read(&recipe, Path::new("x.toml"), &[path(file)], None).unwrap_err();
            assert!(error.is_user_error());
            error.to_string()
        };
        let check =
            |found: String, parts: &[&str]| parts.iter().for_each(|part| assert!(found.contains(part), "{found}"));
        fs::write(path("train.txt"), SENTENCES).unwrap();
        fs::write(path("dev.tsv"), "in\tO\n\nAda\tB-ORG\n").unwrap();
        check(read(&[], ""), &["line 3 of `", "dev.tsv", "`B-ORG`", "`Ada`", "B-LOC, B-PER, I-PER, O"]);
        check(read(&[("data.validation", "2")], "train.txt"), &["below 2"]);
        let held = recipe(&[("data.tokenizer", "word:1"), ("data.validation", "1")]);
        let made = TaggedCorpus::read(&held, Path::new("x.toml"), &[path("train.txt")], None).unwrap();
        assert_eq!((made.tags().len(), made.validation().len()), (4, 1), "whichever sentence is held back");
        check(read(&[], "train.txt"), &["train.txt` is one file", "data.validation"]);
        check(read(&[("data.training", "all")], ""), &["no split `all`", "all.conll", "there is dev, train"]);
    }
}
