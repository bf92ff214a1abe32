//! Questions as records: the windows in which a model reads their texts.

use firelight_storage::TaskError;
use std::path::Path;

use burn::tensor::Tensor;
use firelight_core::Pass;
use firelight_data::DataError;
use firelight_data::questions::{self, Question};

use super::QuestionAnswering;
use super::batch::{SpanBatcher, SpanExample};
use super::recipe::QuestionsRecipe;
use crate::data::EncodedText;
use crate::encoder::TextInput;
use crate::model::{ReadingConfig, SpanReader, SpanReaderConfig};
use crate::question_answerer::trimmed;
use crate::records::{RecordData, RecordTask, Source, first_row, source};
use crate::vocabulary::TextVocabulary;

impl RecordTask for QuestionAnswering {
    const ENDINGS: &'static [&'static str] = &["jsonl", "ndjson", "parquet"];

    type Record = Question;
    /// A window.
    type Example = SpanExample;
    /// How long texts are read, and whether some questions have no answer.
    type Targets = ReadingConfig;
    type Batcher = SpanBatcher;

    fn source(data: &QuestionsRecipe) -> Source<'_> {
        source!(data)
    }

    fn read_file(_data: &QuestionsRecipe, file: &Path) -> Result<Vec<Question>, DataError> {
        questions::read(file)
    }

    /// Every text once, however many questions there are about it.
    fn text(questions: &[Question]) -> String {
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

    fn targets(
        data: &QuestionsRecipe,
        training: &[Question],
        _held_out: &[Question],
    ) -> Result<ReadingConfig, DataError> {
        let unanswerable = training.iter().any(|question| question.answers.text.is_empty());
        Ok(ReadingConfig { stride: data.stride, max_answer_len: data.max_answer_len, unanswerable })
    }

    /// Of every question its windows, each with the place of the first answer.
    fn encode(
        _data: &QuestionsRecipe,
        reading: &ReadingConfig,
        vocabulary: &TextVocabulary,
        (_, questions): (&Path, &[Question]),
        max_seq_len: usize,
    ) -> Result<Vec<SpanExample>, TaskError> {
        let mut examples: Vec<SpanExample> = Vec::new();
        for (question, found) in questions.iter().enumerate() {
            let texts = (found.question.as_str(), found.context.as_str());
            let answer = found.stretches().into_iter().next().map(|stretch| trimmed(&found.context, stretch));
            for window in vocabulary.encode_question(texts, max_seq_len, reading.stride, found.line)? {
                let target = answer.clone().and_then(|answer| window.places_of(answer)).unwrap_or([0, 0]);
                examples.push(SpanExample { number: examples.len(), question, window, target });
            }
        }
        Ok(examples)
    }

    fn tokens(example: &SpanExample) -> &EncodedText {
        &example.window.text
    }

    fn sizes(data: &RecordData<Self>) -> String {
        let (training, validation) = (data.training_records(), data.validation_records());
        let answered = answered(data.training(), training.len());
        let asked = training.iter().filter(|question| !question.answers.text.is_empty()).count();
        let lost = asked - answered;
        let lost = if lost > 0 { format!(" ({lost} answers in no window)") } else { String::new() };
        format!(
            "{} questions with {answered} answers in {} windows to train on{lost}, {} in {} to validate on",
            training.len(),
            data.training().len(),
            validation.len(),
            data.validation().len()
        )
    }

    fn quiet(config: &SpanReaderConfig) -> SpanReaderConfig {
        SpanReaderConfig { encoder: config.encoder.quiet(), ..config.clone() }
    }

    /// Texts of several lengths are guessed at with several chances.
    fn choices(_config: &SpanReaderConfig) -> Option<usize> {
        None
    }

    fn first_answer(model: &SpanReader, texts: &TextInput, tokens: usize) -> Tensor<1> {
        first_row(model.forward(texts, &mut Pass::default()).start.unsqueeze_dim(2), tokens)
    }
}

/// How many of so many questions have their answer in a window.
fn answered(examples: &[SpanExample], questions: usize) -> usize {
    let mut has_answer = vec![false; questions];
    examples.iter().filter(|example| example.target != [0, 0]).for_each(|example| has_answer[example.question] = true);
    has_answer.into_iter().filter(|&has| has).count()
}

#[cfg(test)]
mod tests {
    use super::super::QuestionAnsweringRecipe;
    use super::*;
    use firelight_storage::{Existing, ModelFolder};
    use firelight_training::{DataModule, read_recipe};
    use std::fs;

    type Data = RecordData<QuestionAnswering>;

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
        let made = Data::read(&mut recipe.clone(), Path::new("x.toml"), &paths).unwrap();
        let sizes =
            "3 questions with 1 answers in 5 windows to train on (1 answers in no window), 1 in 1 to validate on";
        assert_eq!(made.sizes(), sizes);
        let targets: Vec<_> = made.training()[..2].iter().map(|example| example.target).collect();
        assert_eq!(targets, [[5, 6], [4, 5]]);
        assert!(made.targets().unanswerable && made.validation()[0].target == [4, 4]);
        let run = ModelFolder::create(path("run"), Existing::Refuse).unwrap();
        made.save(&run).unwrap();
        let read = Data::open(&recipe, &run).unwrap();
        assert_eq!((read.training(), read.validation()), (made.training(), made.validation()));
        assert!(read.is_of(&recipe, &paths).unwrap());
        fs::write(path("dev.jsonl"), line("Ada", "")).unwrap();
        assert!(!read.is_of(&recipe, &paths).unwrap());
        let whole = self::recipe(&[("data.tokenizer", "word:1"), ("model.max_seq_len", "8")]);
        let error = Data::read(&mut whole.clone(), Path::new("x.toml"), &paths).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("line 1"), "{error}");
    }
}
