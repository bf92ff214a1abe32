//! Labelled texts as records: their classes or numbers, and the weights of the classes.

use std::path::Path;

use burn::tensor::Tensor;
use firelight_core::Pass;
use firelight_data::DataError;
use firelight_data::labelled::{self, Columns, LabelledText};
use firelight_data::records::RecordFormat;
use firelight_training::RecipeOf;

use firelight_storage::{InputError, TaskError, listed};

use super::Classification;
use super::recipe::LabelledRecipe;
use super::targets::Targets;
use crate::data::{EncodedText, Example, Target, TextBatcher};
use crate::encoder::TextInput;
use crate::loss::{ClassWeights, ProblemType};
use crate::model::{TextClassifier, TextClassifierConfig};
use crate::records::{RecordData, RecordTask, Source, classes_of, source};
use crate::vocabulary::TextVocabulary;

impl RecordTask for Classification {
    const ENDINGS: &'static [&'static str] = &RecordFormat::ENDINGS;

    type Record = LabelledText;
    type Example = Example;
    type Targets = Targets;
    type Batcher = TextBatcher;

    fn source(data: &LabelledRecipe) -> Source<'_> {
        source!(data)
    }

    fn settle(recipe: &mut RecipeOf<Self>, data: &RecordData<Self>) -> Result<(), TaskError> {
        recipe.loss.class_weights = recipe.loss.class_weights.clone().resolved(&class_counts(data));
        match &recipe.loss.class_weights {
            ClassWeights::Given(weights) if weights.len() != data.targets().labels().len() => {
                let (found, classes) = (weights.len(), data.targets().labels().names());
                let (count, names) = (classes.len(), listed(classes));
                let problem =
                    format!("loss.class_weights has {found} numbers, but the data has {count} classes: {names}");
                Err(InputError::new(problem).advise("give a number for each, in this order").into())
            }
            _ => Ok(()),
        }
    }

    fn recall(recipe: &mut RecipeOf<Self>, stored: &RecipeOf<Self>) {
        if recipe.loss.class_weights == ClassWeights::Balanced {
            recipe.loss.class_weights = stored.loss.class_weights.clone();
        }
    }

    fn read_file(data: &LabelledRecipe, file: &Path) -> Result<Vec<LabelledText>, DataError> {
        labelled::read_as(file, &data.columns, &data.problem_type)
    }

    /// JSON lines with the keys of a [`LabelledText`].
    fn read_stored(data: &LabelledRecipe, file: &Path) -> Result<Vec<LabelledText>, DataError> {
        let pair = data.columns.pair.as_ref().map(|_| "pair".into());
        let columns = Columns { text: vec!["text".into()], pair, label: "label".into() };
        labelled::read_as(file, &columns, &data.problem_type)
    }

    fn classes(data: &LabelledRecipe, texts: &[LabelledText]) -> Vec<usize> {
        classes_of(texts, &data.problem_type)
    }

    fn text(texts: &[LabelledText]) -> String {
        let of_text =
            |text: &LabelledText| [text.text.as_str(), "\n", text.pair.as_deref().unwrap_or(""), "\n"].concat();
        texts.iter().map(of_text).collect()
    }

    fn targets(
        data: &LabelledRecipe,
        training: &[LabelledText],
        _held_out: &[LabelledText],
    ) -> Result<Targets, DataError> {
        Targets::of(&data.problem_type, training)
    }

    fn encode(
        _data: &LabelledRecipe,
        targets: &Targets,
        vocabulary: &TextVocabulary,
        (file, texts): (&Path, &[LabelledText]),
        max_seq_len: usize,
    ) -> Result<Vec<Example>, TaskError> {
        let example = |(text, target): (&LabelledText, Target)| {
            let encoded = vocabulary.encode(&text.text, text.pair.as_deref(), max_seq_len);
            let text = encoded.map_err(TaskError::in_line(text.line))?;
            Ok(Example { text, target })
        };
        texts.iter().zip(targets.read(file, texts)?).map(example).collect()
    }

    fn tokens(example: &Example) -> &EncodedText {
        &example.text
    }

    fn sizes(data: &RecordData<Self>) -> String {
        let cut = data.training().iter().filter(|example| example.text.is_cut).count();
        let cut = if cut > 0 { format!(" ({cut} cut to model.max_seq_len)") } else { String::new() };
        let (training, validation) = (data.training().len(), data.validation().len());
        format!("{training} texts {} to train on{cut}, {validation} to validate on", data.targets().in_words())
    }

    fn loss_unit(targets: &Targets) -> String {
        targets.problem_type().loss_unit().into()
    }

    fn quiet(config: &TextClassifierConfig) -> TextClassifierConfig {
        let mut quiet = TextClassifierConfig { encoder: config.encoder.quiet(), ..config.clone() };
        quiet.head.dropout = 0.0;
        quiet
    }

    /// A number cannot be guessed.
    fn choices(config: &TextClassifierConfig) -> Option<usize> {
        match config.problem_type {
            ProblemType::SingleLabel => Some(config.labels.len()),
            ProblemType::MultiLabel => Some(2),
            ProblemType::Regression => None,
        }
    }

    fn first_answer(model: &TextClassifier, texts: &TextInput, _tokens: usize) -> Tensor<1> {
        model.forward(texts, &mut Pass::default()).narrow(0, 0, 1).flatten(0, 1)
    }
}

/// How many training texts each class has, where each text has one.
fn class_counts(data: &RecordData<Classification>) -> Vec<usize> {
    let mut counts = vec![0; data.targets().labels().len()];
    for example in data.training() {
        if let Target::Class(class) = example.target {
            counts[class] += 1;
        }
    }
    counts
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::ClassificationRecipe;
    use super::*;
    use firelight_storage::{Existing, ModelFolder};
    use firelight_training::{DataModule, read_recipe};
    use std::fs;

    type Data = RecordData<Classification>;

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
        let made = Data::read(&mut recipe.clone(), Path::new("x.toml"), &paths).unwrap();
        assert_eq!(made.sizes(), "12 texts of 2 classes to train on, 6 to validate on");
        assert_eq!(
            (made.targets().labels().names(), class_counts(&made)),
            (&["bad".into(), "good".into()][..], vec![4, 8])
        );
        let run = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
        made.save(&run).unwrap();
        let read = Data::open(&recipe, &run).unwrap();
        assert_eq!((read.training(), read.validation()), (made.training(), made.validation()));
        assert!(read.is_of(&recipe, &paths).unwrap());
        fs::write(data.path().join("dev.tsv"), "a film\tbad\n").unwrap();
        assert!(!read.is_of(&recipe, &paths).unwrap());
    }

    #[test]
    fn a_number_of_texts_is_held_back_with_the_shares_of_the_classes() {
        let data = folder(12);
        let recipe = self::recipe(&[("data.split.validation", "3")]);
        let made = Data::read(&mut recipe.clone(), Path::new("x.toml"), &[data.path().join("train.tsv")]).unwrap();
        assert_eq!((class_counts(&made), made.validation().len()), (vec![3, 6], 3));
        assert_eq!(made.validation_records().iter().filter(|text| text.label == "bad").count(), 1);
        let all = self::recipe(&[("data.split.validation", "12")]);
        let error = Data::read(&mut all.clone(), Path::new("x.toml"), &[data.path().join("train.tsv")]).unwrap_err();
        assert!(error.to_string().contains("set it to a number below 12"), "{error}");
    }

    #[test]
    fn the_tokenizer_knows_the_training_texts_alone() {
        let data = folder(6);
        fs::write(data.path().join("dev.tsv"), "splendid splendid\tgood\n").unwrap();
        let made = Data::read(&mut recipe(&[]), Path::new("x.toml"), &[data.path().into()]).unwrap();
        let ids = &made.validation()[0].text.ids;
        assert_eq!(ids[1], ids[2]);
        let unknown = made.vocabulary().tokenizer().encode("never").unwrap();
        assert_eq!(ids[1], unknown[0]);
    }

    #[test]
    fn a_label_unseen_in_training_is_named_with_its_line() {
        let data = folder(6);
        fs::write(data.path().join("dev.tsv"), "a film\tbad\na film\tugly\n").unwrap();
        let error = Data::read(&mut recipe(&[]), Path::new("x.toml"), &[data.path().into()]).unwrap_err();
        let text = error.to_string();
        assert!(error.is_user_error() && text.contains("line 2") && text.contains("ugly"), "{text}");
        let error = Data::read(&mut recipe(&[]), Path::new("x.toml"), &[]).unwrap_err();
        assert!(error.to_string().contains("`x.toml` needs data"), "{error}");
    }
}
