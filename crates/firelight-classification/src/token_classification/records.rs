//! Tagged sentences as records: their tags, and the parts in which a model reads them.

use firelight_storage::TaskError;
use std::path::Path;

use burn::tensor::Tensor;
use firelight_core::Pass;
use firelight_data::DataError;
use firelight_data::labelled::Labels;
use firelight_data::tagged::{self, TaggedSentence};

use super::TokenClassification;
use super::batch::{TaggedBatcher, TaggedExample};
use super::recipe::TaggedRecipe;
use crate::data::EncodedText;
use crate::encoder::TextInput;
use crate::model::{TokenClassifier, TokenClassifierConfig};
use crate::records::{RecordData, RecordTask, Source, first_row, source};
use crate::vocabulary::TextVocabulary;

impl RecordTask for TokenClassification {
    const ENDINGS: &'static [&'static str] = &["conll", "txt", "tsv", "jsonl", "ndjson", "parquet"];

    type Record = TaggedSentence;
    type Example = TaggedExample;
    /// The tags, sorted.
    type Targets = Labels;
    type Batcher = TaggedBatcher;

    fn source(data: &TaggedRecipe) -> Source<'_> {
        source!(data)
    }

    fn read_file(data: &TaggedRecipe, file: &Path) -> Result<Vec<TaggedSentence>, DataError> {
        tagged::read(file, data.scheme)
    }

    fn text(sentences: &[TaggedSentence]) -> String {
        sentences.iter().map(|found| found.tokens.join(" ") + "\n").collect()
    }

    /// A tag that stands in one sentence alone may be held back with it, and is a tag of the file none the less.
    fn targets(
        _data: &TaggedRecipe,
        training: &[TaggedSentence],
        held_out: &[TaggedSentence],
    ) -> Result<Labels, DataError> {
        tagged::tags_of(training.iter().chain(held_out))
    }

    /// Each sentence in as many parts as it needs.
    fn encode(
        _data: &TaggedRecipe,
        tags: &Labels,
        vocabulary: &TextVocabulary,
        (file, sentences): (&Path, &[TaggedSentence]),
        max_seq_len: usize,
    ) -> Result<Vec<TaggedExample>, TaskError> {
        let mut examples: Vec<TaggedExample> = Vec::new();
        for (sentence, tags) in sentences.iter().zip(tagged::tag_ids(tags, file, sentences)?) {
            let parts = vocabulary.encode_words(&sentence.tokens, max_seq_len);
            let parts = parts.map_err(TaskError::in_line(sentence.line))?;
            let mut tags = tags.into_iter();
            for words in parts {
                let tags = tags.by_ref().take(words.places.len()).collect();
                examples.push(TaggedExample { number: examples.len(), words, tags });
            }
        }
        Ok(examples)
    }

    fn tokens(example: &TaggedExample) -> &EncodedText {
        &example.words.text
    }

    fn sizes(data: &RecordData<Self>) -> String {
        let words = |sentences: &[TaggedSentence]| sentences.iter().map(|found| found.tokens.len()).sum::<usize>();
        let (training, validation) = (data.training_records(), data.validation_records());
        let more = data.training().len() - training.len();
        let more = if more > 0 { format!(" ({more} cuts at model.max_seq_len)") } else { String::new() };
        format!(
            "{} sentences of {} words with {} tags to train on{more}, {} of {} to validate on",
            training.len(),
            words(training),
            data.targets().len(),
            validation.len(),
            words(validation)
        )
    }

    fn quiet(config: &TokenClassifierConfig) -> TokenClassifierConfig {
        let mut quiet = TokenClassifierConfig { encoder: config.encoder.quiet(), ..config.clone() };
        quiet.head.dropout = 0.0;
        quiet
    }

    fn choices(config: &TokenClassifierConfig) -> Option<usize> {
        Some(config.labels.len())
    }

    fn first_answer(model: &TokenClassifier, texts: &TextInput, tokens: usize) -> Tensor<1> {
        first_row(model.forward(texts, &mut Pass::default()), tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::super::TokenClassificationRecipe;
    use super::*;
    use firelight_storage::{Existing, ModelFolder};
    use firelight_training::{DataModule, read_recipe};
    use std::fs;

    type Data = RecordData<TokenClassification>;

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
        let made = Data::read(&mut recipe.clone(), Path::new("x.toml"), &paths).unwrap();
        let sizes =
            "2 sentences of 5 words with 4 tags to train on (2 cuts at model.max_seq_len), 1 of 1 to validate on";
        assert_eq!(made.sizes(), sizes);
        assert_eq!(made.targets().names(), ["B-LOC", "B-PER", "I-PER", "O"]);
        let tags: Vec<&[usize]> = made.training().iter().map(|example| example.tags.as_slice()).collect();
        assert_eq!(tags, [&[1][..], &[2], &[3], &[3, 0]]);
        let run = ModelFolder::create(path("run"), Existing::Refuse).unwrap();
        made.save(&run).unwrap();
        let read = Data::open(&recipe, &run).unwrap();
        assert_eq!((read.training(), read.validation()), (made.training(), made.validation()));
        assert!(read.is_of(&recipe, &paths).unwrap());
        fs::write(path("dev.txt"), "Ada B-LOC\n").unwrap();
        assert!(!read.is_of(&recipe, &paths).unwrap());
    }

    #[test]
    fn what_does_not_fit_is_reported_with_its_line() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let read = |overrides: &[(&str, &str)], file: &str| {
            let recipe = recipe(&[&[("data.tokenizer", "word:1")], overrides].concat());
            let error = Data::read(&mut recipe.clone(), Path::new("x.toml"), &[path(file)]).unwrap_err();
            assert!(error.is_user_error());
            error.to_string()
        };
        let check =
            |found: String, parts: &[&str]| parts.iter().for_each(|part| assert!(found.contains(part), "{found}"));
        fs::write(path("train.txt"), SENTENCES).unwrap();
        fs::write(path("dev.tsv"), "in\tO\n\nAda\tB-ORG\n").unwrap();
        check(read(&[], ""), &["line 3 of `", "dev.tsv", "`B-ORG`", "`Ada`", "B-LOC, B-PER, I-PER, O"]);
        check(read(&[("data.split.validation", "2")], "train.txt"), &["below 2"]);
        let held = recipe(&[("data.tokenizer", "word:1"), ("data.split.validation", "1")]);
        let made = Data::read(&mut held.clone(), Path::new("x.toml"), &[path("train.txt")]).unwrap();
        assert_eq!((made.targets().len(), made.validation().len()), (4, 1), "whichever sentence is held back");
        check(read(&[("data.split.train", "all")], ""), &["no split `all`", "all.conll", "there is dev, train"]);
    }
}
