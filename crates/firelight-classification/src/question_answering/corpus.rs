//! The questions of a run with their texts and their tokenizer: read and split when the run begins, kept in its folder.

use std::ops::Range;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use firelight_data::questions::{self, Question};
use firelight_data::{BatchPlan, Tokenizer};
use firelight_storage::{ModelFolder, write_json_lines};

use super::batch::{SpanBatch, SpanBatcher, SpanExample};
use super::recipe::{QuestionAnsweringRecipe, QuestionsRecipe};
use crate::data::QuestionWindow;
use crate::error::ClassificationError;
use crate::model::ReadingConfig;
use crate::question_answerer::trimmed;
use crate::run::{Loader, Parts, Shuffled, files_in, in_order};
use crate::vocabulary::TextVocabulary;

/// The endings of questions, in the order in which they are looked for.
pub(super) const ENDINGS: [&str; 2] = ["jsonl", "ndjson"];

/// What a reader is trained and validated on.
#[derive(Debug, Clone)]
pub struct QuestionCorpus {
    vocabulary: TextVocabulary,
    reading: ReadingConfig,
    questions: Parts<Question>,
    training: Vec<Vec<SpanExample>>,
    validation: Vec<Vec<SpanExample>>,
}

impl QuestionCorpus {
    /// The tokenizer.
    pub fn vocabulary(&self) -> &TextVocabulary {
        &self.vocabulary
    }

    /// How long texts are read, and whether some questions have no answer.
    pub fn reading(&self) -> ReadingConfig {
        self.reading
    }

    /// The questions to validate on.
    pub fn validation_questions(&self) -> &[Question] {
        &self.questions.validation
    }

    /// What is trained on: of every question its windows.
    pub fn training(&self) -> &[Vec<SpanExample>] {
        &self.training
    }

    /// What is validated on.
    pub fn validation(&self) -> &[Vec<SpanExample>] {
        &self.validation
    }

    pub(super) fn sizes(&self) -> String {
        let windows = |examples: &[Vec<SpanExample>]| examples.iter().map(Vec::len).sum::<usize>();
        let has_answer = |examples: &Vec<SpanExample>| examples.iter().any(|example| example.target != [0, 0]);
        let answered = self.training.iter().filter(|examples| has_answer(examples)).count();
        let asked = self.questions.training.iter().filter(|question| !question.answers.text.is_empty()).count();
        let lost = asked - answered;
        let lost = if lost > 0 { format!(" ({lost} answers in no window)") } else { String::new() };
        format!(
            "{} questions with {answered} answers in {} windows to train on{lost}, {} in {} to validate on",
            self.training.len(),
            windows(&self.training),
            self.validation.len(),
            windows(&self.validation)
        )
    }

    /// Reads the questions; the tokenizer is that of another run, or trained.
    pub(super) fn read(
        recipe: &QuestionAnsweringRecipe,
        source: &Path,
        paths: &[PathBuf],
        vocabulary: Option<TextVocabulary>,
    ) -> Result<Self, ClassificationError> {
        let questions = questions_of(&recipe.data, source, paths)?;
        if let Some(vocabulary) = vocabulary {
            return Self::new(recipe, vocabulary, questions);
        }
        let vocabulary =
            TextVocabulary::new(Tokenizer::train(&recipe.data.tokenizer, &texts_of(&questions.training))?)?;
        Self::new(recipe, vocabulary, questions)
    }

    fn new(
        recipe: &QuestionAnsweringRecipe,
        vocabulary: TextVocabulary,
        questions: Parts<Question>,
    ) -> Result<Self, ClassificationError> {
        let unanswerable = questions.training.iter().any(|question| question.answers.text.is_empty());
        let QuestionsRecipe { stride, max_answer_len, .. } = recipe.data;
        let reading = ReadingConfig { stride, max_answer_len, unanswerable };
        let max_len = recipe.model.transformer.max_seq_len;
        let training = examples(&vocabulary, &questions.training, max_len, stride)?;
        let validation = examples(&vocabulary, &questions.validation, max_len, stride)?;
        Ok(Self { vocabulary, reading, questions, training, validation })
    }

    pub(super) fn save(&self, folder: &ModelFolder) -> Result<(), ClassificationError> {
        self.vocabulary.save(folder)?;
        write_json_lines(folder.training_pairs(), &self.questions.training)?;
        Ok(write_json_lines(folder.validation_pairs(), &self.questions.validation)?)
    }

    pub(super) fn open(recipe: &QuestionAnsweringRecipe, folder: &ModelFolder) -> Result<Self, ClassificationError> {
        let files = [folder.training_pairs(), folder.validation_pairs()];
        let [training, validation] = [questions::read(&files[0])?, questions::read(&files[1])?];
        Self::new(recipe, TextVocabulary::load(folder)?, Parts { training, validation, files })
    }

    /// Whether the questions at `paths` are these.
    pub(super) fn is_of(&self, data: &QuestionsRecipe, paths: &[PathBuf]) -> Result<bool, ClassificationError> {
        let other = questions_of(data, Path::new(""), paths)?;
        let same = |one: &[Question], other: &[Question]| {
            let content = |found: &Question| Question { line: 0, ..found.clone() };
            one.iter().map(content).eq(other.iter().map(content))
        };
        let own = &self.questions;
        Ok(same(&other.training, &own.training) && same(&other.validation, &own.validation))
    }

    pub(super) fn training_plan(&self, recipe: &QuestionAnsweringRecipe) -> Result<BatchPlan, ClassificationError> {
        let lengths = self.training.iter().flatten().map(length);
        Ok(BatchPlan::new(recipe.data.batching, recipe.training.batch_size, lengths)?)
    }

    pub(super) fn training_loader(
        &self,
        recipe: &QuestionAnsweringRecipe,
        batches: Range<usize>,
        device: &Device,
    ) -> Result<Loader<SpanBatch>, ClassificationError> {
        let (plan, examples) = (self.training_plan(recipe)?, self.training.concat());
        let all = Shuffled { examples: &examples, plan, seed: recipe.seed, workers: recipe.data.workers };
        Ok(all.loader(SpanBatcher, batches, device))
    }

    /// The windows of the validation questions, from the short to the long.
    pub(super) fn validation_loader(&self, device: &Device) -> Result<Loader<SpanBatch>, ClassificationError> {
        reading(&self.validation, device)
    }
}

/// The windows once each, from the short to the long.
pub(super) fn reading(
    examples: &[Vec<SpanExample>],
    device: &Device,
) -> Result<Loader<SpanBatch>, ClassificationError> {
    Ok(in_order(&examples.concat(), length, SpanBatcher, device)?)
}

fn length(example: &SpanExample) -> usize {
    example.window.text.ids.len()
}

/// What a tokenizer learns from: every text once, however many questions there are about it.
fn texts_of(questions: &[Question]) -> String {
    let mut text = String::new();
    let mut before = "";
    for question in questions {
        text.extend([question.question.as_str(), "\n"]);
        if question.context != before {
            text.extend([question.context.as_str(), "\n"]);
        }
        before = &question.context;
    }
    text
}

/// Of every question its windows, each with the place of the first answer.
pub(super) fn examples(
    vocabulary: &TextVocabulary,
    questions: &[Question],
    max_len: usize,
    stride: Option<usize>,
) -> Result<Vec<Vec<SpanExample>>, ClassificationError> {
    let mut numbers = 0..;
    let of_question = |found: &Question| {
        let texts = (found.question.as_str(), found.context.as_str());
        let windows = vocabulary.encode_question(texts, max_len, stride, found.line)?;
        let answer = found.stretches().into_iter().next().map(|stretch| trimmed(&found.context, stretch));
        let example = |window: QuestionWindow| {
            let target = answer.clone().and_then(|answer| window.places_of(answer)).unwrap_or([0, 0]);
            SpanExample { number: numbers.next().unwrap_or_default(), window, target }
        };
        Ok(windows.into_iter().map(example).collect())
    };
    questions.iter().map(of_question).collect()
}

fn questions_of(
    data: &QuestionsRecipe,
    source: &Path,
    paths: &[PathBuf],
) -> Result<Parts<Question>, ClassificationError> {
    let [path] = paths else { return Err(ClassificationError::NoData { path: source.into() }) };
    let files = files_in(path, (&data.training, &data.validation), &ENDINGS)?;
    Parts::read_by(files, &data.validation, data.split_seed, questions::read, |found| vec![0; found.len()])
}

#[cfg(test)]
mod tests {
    use super::super::QuestionAnswering;
    use super::*;
    use firelight_storage::Existing;
    use firelight_training::read_recipe;
    use std::fs;

    fn line(context: &str, answer: &str) -> String {
        let start = context.find(answer).map(|byte| context[..byte].chars().count());
        let answers = match answer {
            "" => serde_json::json!({"text": [], "answer_start": []}),
            _ => serde_json::json!({"text": [answer], "answer_start": [start]}),
        };
        format!("{}\n", serde_json::json!({"question": "who?", "context": context, "answers": answers}))
    }

    fn recipe(overrides: &[(&str, &str)]) -> QuestionAnsweringRecipe {
        let overrides: Vec<_> = overrides.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        read_recipe::<QuestionAnswering>(None, &overrides).unwrap()
    }

    #[test]
    fn answers_are_found_in_every_window_and_come_back_from_the_folder() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let context = "\u{c9}va saw a cat";
        fs::write(path("train.jsonl"), line(context, "saw a") + &line("Ada", "") + &line(context, context)).unwrap();
        fs::write(path("dev.jsonl"), line("Ada", "Ada")).unwrap();
        // `who ?` and three tokens around leave room for three words.
        let recipe = self::recipe(&[("data.tokenizer", "word:1"), ("data.stride", "1"), ("model.max_seq_len", "8")]);
        let paths = [home.path().to_path_buf()];
        let made = QuestionCorpus::read(&recipe, Path::new("x.toml"), &paths, None).unwrap();
        let sizes =
            "3 questions with 1 answers in 5 windows to train on (1 answers in no window), 1 in 1 to validate on";
        assert_eq!(made.sizes(), sizes);
        let targets: Vec<_> = made.training()[0].iter().map(|example| example.target).collect();
        assert_eq!(targets, [[5, 6], [4, 5]]);
        assert!(made.reading().unanswerable && made.validation()[0][0].target == [4, 4]);
        let run = ModelFolder::create(path("run"), Existing::Refuse).unwrap();
        made.save(&run).unwrap();
        let read = QuestionCorpus::open(&recipe, &run).unwrap();
        assert_eq!((read.training(), read.validation()), (made.training(), made.validation()));
        assert!(read.is_of(&recipe.data, &paths).unwrap());
        fs::write(path("dev.jsonl"), line("Ada", "")).unwrap();
        assert!(!read.is_of(&recipe.data, &paths).unwrap());
        let whole = self::recipe(&[("data.tokenizer", "word:1"), ("model.max_seq_len", "8")]);
        let error = QuestionCorpus::read(&whole, Path::new("x.toml"), &paths, None).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("line 1"), "{error}");
    }
}
