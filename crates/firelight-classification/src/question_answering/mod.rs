//! Readers as recipes train them: what `[data]` and `[model]` mean, and how questions with their texts become batches.
//! `firelight_training::Run` does the rest.

mod batch;
mod evaluate;
mod recipe;
mod records;
mod score;
#[cfg(test)]
mod tests;

use std::path::Path;

use firelight_core::ConfigError;
use firelight_storage::TaskError;
use firelight_tasks::problems;
use firelight_training::{BuiltIn, Evaluator, Problem, RecipeOf, Shared, Task};

pub use batch::{SpanAnswers, SpanBatch, SpanBatcher, SpanExample, SpanLossConfig, SpanTask};
pub use recipe::{QuestionAnsweringRecipe, QuestionsRecipe, SpanKeys, SpanModelRecipe};

use crate::model::{ReadingConfig, SpanReader, SpanReaderConfig};
use crate::on_encoder::on_encoder;
use crate::records::{RecordData, on_records};

/// A training of a reader that is ready to begin.
pub type QuestionAnsweringRun = firelight_training::Run<QuestionAnswering>;

/// From a question about a text to the stretch of the text that answers it.
#[derive(Debug, Clone, Copy)]
pub struct QuestionAnswering;

impl Task for QuestionAnswering {
    const NAME: &'static str = crate::QUESTION_ANSWERING_TASK;
    const BUILT_IN: &'static [BuiltIn] = &[BuiltIn { name: "answers", text: recipe::ANSWERS }];
    const TARGET: &'static str = "window";

    type Data = QuestionsRecipe;
    type Model = SpanModelRecipe;
    type Loss = SpanLossConfig;
    type Config = SpanReaderConfig;
    type DataModule = RecordData<Self>;
    type Net = SpanReader;
    type Error = TaskError;

    fn judge(recipe: &QuestionAnsweringRecipe) -> Vec<Problem> {
        let model = recipe.model.config(1, ReadingConfig::default()).validate();
        let short = recipe.model.transformer.max_seq_len < 5;
        let short = short.then(|| "max_seq_len must be at least 5: three tokens stand around question and text".into());
        let segments = recipe.model.own.n_segments < 2;
        let segments = segments.then(|| "n_segments must be 2: question and text are two segments".into());
        problems([
            ("model", ConfigError::collect([model], [short, segments])),
            ("loss", recipe.loss.validate()),
            ("data", recipe.data.validate()),
        ])
    }

    fn config(recipe: &RecipeOf<Self>, corpus: &Self::DataModule, source: &Path) -> Result<Self::Config, Self::Error> {
        let config = recipe.model.config(corpus.vocabulary().vocab_size(), *corpus.targets());
        TaskError::in_config(source, &ConfigError::list(config.validate()))?;
        Ok(config)
    }

    on_encoder!();
    on_records!();

    fn evaluator(corpus: &RecordData<Self>, _recipe: &QuestionAnsweringRecipe) -> Box<dyn Evaluator<SpanTask>> {
        let (examples, questions) = (corpus.validation(), corpus.validation_records());
        Box::new(Shared(score::AnswerScores::on(*corpus.targets(), examples, questions)))
    }
}
