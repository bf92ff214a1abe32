//! The labelled texts of a run with their tokenizer and their targets: read and split when the run begins, kept as text in its
//! folder.

use std::ops::Range;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use firelight_data::labelled::{self, Columns, LabelledText, Labels};
use firelight_data::{BatchPlan, Tokenizer};
use firelight_storage::{ModelFolder, write_json_lines};

use super::files::files_of;
use super::loaders::{Loader, Shuffled, in_order};
use super::parts::Parts;
use super::recipe::{ClassificationRecipe, LabelledRecipe};
use super::score::TextScores;
use super::targets::Targets;
use crate::data::{Example, Target, TextBatch, TextBatcher};
use crate::error::ClassificationError;
use crate::loss::ProblemType;
use crate::vocabulary::TextVocabulary;

/// What a classifier is trained and validated on.
#[derive(Debug, Clone)]
pub struct LabelledCorpus {
    vocabulary: TextVocabulary,
    targets: Targets,
    texts: Parts,
    training: Vec<Example>,
    validation: Vec<Example>,
}

impl LabelledCorpus {
    /// The tokenizer.
    pub fn vocabulary(&self) -> &TextVocabulary {
        &self.vocabulary
    }

    /// The classes; of a regression the name of its number.
    pub fn labels(&self) -> &Labels {
        self.targets.labels()
    }

    /// What a label is.
    pub fn problem_type(&self) -> ProblemType {
        self.targets.problem_type()
    }

    /// The texts to validate on.
    pub fn validation_texts(&self) -> &[LabelledText] {
        &self.texts.validation
    }

    /// What is trained on.
    pub fn training(&self) -> &[Example] {
        &self.training
    }

    /// What is validated on.
    pub fn validation(&self) -> &[Example] {
        &self.validation
    }

    /// How many training texts each class has, where each text has one.
    pub(super) fn class_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.labels().len()];
        for example in &self.training {
            if let Target::Class(class) = example.target {
                counts[class] += 1;
            }
        }
        counts
    }

    pub(super) fn sizes(&self) -> String {
        let cut = self.training.iter().filter(|example| example.text.is_cut).count();
        let cut = if cut > 0 { format!(" ({cut} cut to model.max_seq_len)") } else { String::new() };
        let (training, validation) = (self.training.len(), self.validation.len());
        format!("{training} texts {} to train on{cut}, {validation} to validate on", self.targets.in_words())
    }

    /// Reads the texts; the tokenizer is that of another run, or trained.
    pub(super) fn read(
        recipe: &ClassificationRecipe,
        source: &Path,
        paths: &[PathBuf],
        vocabulary: Option<TextVocabulary>,
    ) -> Result<Self, ClassificationError> {
        let texts = texts_of(recipe, source, paths)?;
        if let Some(vocabulary) = vocabulary {
            return Self::new(recipe, vocabulary, texts);
        }
        let of_text =
            |text: &LabelledText| [text.text.as_str(), "\n", text.pair.as_deref().unwrap_or(""), "\n"].concat();
        let all: String = texts.training.iter().map(of_text).collect();
        let vocabulary = TextVocabulary::new(Tokenizer::train(&recipe.data.tokenizer, &all)?)?;
        Self::new(recipe, vocabulary, texts)
    }

    fn new(
        recipe: &ClassificationRecipe,
        vocabulary: TextVocabulary,
        texts: Parts,
    ) -> Result<Self, ClassificationError> {
        let targets = Targets::of(&recipe.data.problem_type, &texts.training)?;
        let max_len = recipe.model.max_seq_len();
        let [training_file, validation_file] = &texts.files;
        let training = examples(&vocabulary, &targets, (training_file, &texts.training), max_len)?;
        let validation = examples(&vocabulary, &targets, (validation_file, &texts.validation), max_len)?;
        Ok(Self { vocabulary, targets, texts, training, validation })
    }

    pub(super) fn save(&self, folder: &ModelFolder) -> Result<(), ClassificationError> {
        self.vocabulary.save(folder)?;
        write_json_lines(folder.training_pairs(), &self.texts.training)?;
        Ok(write_json_lines(folder.validation_pairs(), &self.texts.validation)?)
    }

    pub(super) fn open(recipe: &ClassificationRecipe, folder: &ModelFolder) -> Result<Self, ClassificationError> {
        let files = [folder.training_pairs(), folder.validation_pairs()];
        let [training, validation] = [stored(recipe, &files[0])?, stored(recipe, &files[1])?];
        Self::new(recipe, TextVocabulary::load(folder)?, Parts { training, validation, files })
    }

    /// Whether the texts at `paths` are these.
    pub(super) fn is_of(&self, recipe: &ClassificationRecipe, paths: &[PathBuf]) -> Result<bool, ClassificationError> {
        let other = texts_of(recipe, Path::new(""), paths)?;
        let same = |one: &[LabelledText], other: &[LabelledText]| {
            let content = |text: &LabelledText| (text.text.clone(), text.pair.clone(), text.label.clone());
            one.iter().map(content).eq(other.iter().map(content))
        };
        Ok(same(&other.training, &self.texts.training) && same(&other.validation, &self.texts.validation))
    }

    pub(super) fn training_plan(&self, recipe: &ClassificationRecipe) -> Result<BatchPlan, ClassificationError> {
        let lengths = self.training.iter().map(length);
        Ok(BatchPlan::new(recipe.data.batching, recipe.training.batch_size, lengths)?)
    }

    pub(super) fn training_loader(
        &self,
        recipe: &ClassificationRecipe,
        batches: Range<usize>,
        device: &Device,
    ) -> Result<Loader<TextBatch>, ClassificationError> {
        let plan = self.training_plan(recipe)?;
        let all = Shuffled { examples: &self.training, plan, seed: recipe.seed, workers: recipe.data.workers };
        Ok(all.loader(TextBatcher, batches, device))
    }

    /// The validation texts, from the short to the long.
    pub(super) fn validation_loader(&self, device: &Device) -> Result<Loader<TextBatch>, ClassificationError> {
        reading(&self.validation, device)
    }

    /// What the validation texts are judged by.
    pub(super) fn scores(&self) -> TextScores {
        TextScores::on(self.problem_type(), &self.validation, self.labels().len())
    }
}

/// The examples once each, from the short to the long.
pub(super) fn reading(examples: &[Example], device: &Device) -> Result<Loader<TextBatch>, ClassificationError> {
    Ok(in_order(examples, length, TextBatcher, device)?)
}

fn length(example: &Example) -> usize {
    example.text.ids.len()
}

/// The texts of a file as ids, each with what is true of it.
pub(super) fn examples(
    vocabulary: &TextVocabulary,
    targets: &Targets,
    (file, texts): (&Path, &[LabelledText]),
    max_len: usize,
) -> Result<Vec<Example>, ClassificationError> {
    let found = targets.read(file, texts)?;
    let example = |(text, target): (&LabelledText, Target)| {
        let encoded = vocabulary.encode(&text.text, text.pair.as_deref(), max_len);
        let text = encoded.map_err(|error| ClassificationError::Line { line: text.line, error })?;
        Ok(Example { text, target })
    };
    texts.iter().zip(found).map(example).collect()
}

fn texts_of(recipe: &ClassificationRecipe, source: &Path, paths: &[PathBuf]) -> Result<Parts, ClassificationError> {
    let [path] = paths else { return Err(ClassificationError::NoData { path: source.into() }) };
    let LabelledRecipe { validation, columns, problem_type, split_seed, .. } = &recipe.data;
    Parts::read(files_of(&recipe.data, path)?, validation, (columns, problem_type), *split_seed)
}

/// The texts of a run folder: JSON lines with the keys of a [`LabelledText`].
pub(super) fn stored(recipe: &ClassificationRecipe, path: &Path) -> Result<Vec<LabelledText>, ClassificationError> {
    let pair = recipe.data.columns.pair.as_ref().map(|_| "pair".into());
    let columns = Columns { text: vec!["text".into()], pair, label: "label".into() };
    Ok(labelled::read_as(path, &columns, &recipe.data.problem_type)?)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Classification;
    use super::*;
    use firelight_storage::Existing;
    use firelight_training::read_recipe;
    use std::fs;

    pub(crate) fn recipe(overrides: &[(&str, &str)]) -> ClassificationRecipe {
        let overrides: Vec<_> = overrides.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        read_recipe::<Classification>(None, &overrides).unwrap()
    }

    /// Two classes that one word decides.
    pub(crate) fn folder(lines: usize) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        let line = |i: usize| match i % 3 {
            0 => "a dull and empty film\tbad\n".to_string(),
            _ => format!("a fine film {}\tgood\n", "and a warm one ".repeat(i % 4)),
        };
        for (split, count) in [("train", lines), ("dev", lines / 2)] {
            fs::write(home.path().join(format!("{split}.tsv")), (0..count).map(line).collect::<String>()).unwrap();
        }
        home
    }

    #[test]
    fn texts_come_back_from_the_folder_with_tokenizer_and_classes() {
        let (data, home) = (folder(12), tempfile::tempdir().unwrap());
        let recipe = self::recipe(&[]);
        let paths = [data.path().to_path_buf()];
        let made = LabelledCorpus::read(&recipe, Path::new("x.toml"), &paths, None).unwrap();
        assert_eq!(made.sizes(), "12 texts of 2 classes to train on, 6 to validate on");
        assert_eq!((made.labels().names(), made.class_counts()), (&["bad".into(), "good".into()][..], vec![4, 8]));
        let run = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
        made.save(&run).unwrap();
        let read = LabelledCorpus::open(&recipe, &run).unwrap();
        assert_eq!((read.training(), read.validation()), (made.training(), made.validation()));
        assert!(read.is_of(&recipe, &paths).unwrap());
        fs::write(data.path().join("dev.tsv"), "a film\tbad\n").unwrap();
        assert!(!read.is_of(&recipe, &paths).unwrap());
    }

    #[test]
    fn a_number_of_texts_is_held_back_with_the_shares_of_the_classes() {
        let data = folder(12);
        let recipe = self::recipe(&[("data.validation", "3")]);
        let made = LabelledCorpus::read(&recipe, Path::new("x.toml"), &[data.path().join("train.tsv")], None).unwrap();
        assert_eq!((made.class_counts(), made.validation().len()), (vec![3, 6], 3));
        assert_eq!(made.validation_texts().iter().filter(|text| text.label == "bad").count(), 1);
        let all = self::recipe(&[("data.validation", "12")]);
        let error =
            LabelledCorpus::read(&all, Path::new("x.toml"), &[data.path().join("train.tsv")], None).unwrap_err();
        assert!(error.to_string().contains("set it to a number below 12"), "{error}");
    }

    #[test]
    fn the_tokenizer_knows_the_training_texts_alone() {
        let data = folder(6);
        fs::write(data.path().join("dev.tsv"), "splendid splendid\tgood\n").unwrap();
        let made = LabelledCorpus::read(&recipe(&[]), Path::new("x.toml"), &[data.path().into()], None).unwrap();
        let ids = &made.validation()[0].text.ids;
        assert_eq!(ids[1], ids[2]);
        let unknown = made.vocabulary().tokenizer().encode("never").unwrap();
        assert_eq!(ids[1], unknown[0]);
    }

    #[test]
    fn a_label_unseen_in_training_is_named_with_its_line() {
        let data = folder(6);
        fs::write(data.path().join("dev.tsv"), "a film\tbad\na film\tugly\n").unwrap();
        let error = LabelledCorpus::read(&recipe(&[]), Path::new("x.toml"), &[data.path().into()], None).unwrap_err();
        let text = error.to_string();
        assert!(error.is_user_error() && text.contains("line 2") && text.contains("ugly"), "{text}");
        let error = LabelledCorpus::read(&recipe(&[]), Path::new("x.toml"), &[], None).unwrap_err();
        assert!(error.to_string().contains("`x.toml` needs data"), "{error}");
    }
}
