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

use burn::tensor::Device;
use firelight_core::{ConfigError, ParamBuilder};
use firelight_training::{BuiltIn, Check, Estimate, Evaluator, Problem, Task};

pub use batch::{SpanAnswers, SpanBatch, SpanBatcher, SpanExample, SpanLossConfig, SpanTask};
pub use evaluate::evaluate_answers;
pub use recipe::{QuestionAnsweringRecipe, QuestionsRecipe, SpanModelRecipe};

use crate::error::ClassificationError;
use crate::model::{ReadingConfig, SpanReader, SpanReaderConfig};
use crate::on_encoder::on_encoder;
use crate::records::{RecordData, estimate_of, self_check};

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
    type Error = ClassificationError;

    fn judge(recipe: &QuestionAnsweringRecipe) -> Vec<Problem> {
        let model = recipe.model.config(1, ReadingConfig::default()).validate();
        let short = recipe.model.transformer.max_seq_len < 5;
        let short = short.then(|| "max_seq_len must be at least 5: three tokens stand around question and text".into());
        let segments = recipe.model.n_segments() < 2;
        let segments = segments.then(|| "n_segments must be 2: question and text are two segments".into());
        [
            Problem::list("model", ConfigError::list(model)),
            Problem::list("model", short),
            Problem::list("model", segments),
            Problem::list("loss", ConfigError::list(recipe.loss.validate())),
            Problem::list("data", ConfigError::list(recipe.data.validate())),
        ]
        .concat()
    }

    fn config(
        recipe: &QuestionAnsweringRecipe,
        corpus: &RecordData<Self>,
        source: &Path,
    ) -> Result<SpanReaderConfig, ClassificationError> {
        let config = recipe.model.config(corpus.vocabulary().vocab_size(), *corpus.targets());
        ClassificationError::in_config(source, &ConfigError::list(config.validate()))?;
        Ok(config)
    }

    fn model(config: &SpanReaderConfig, seed: u64, device: &Device) -> SpanReader {
        config.init_with(&ParamBuilder::new(device, seed))
    }

    on_encoder!();

    fn evaluator(corpus: &RecordData<Self>, _recipe: &QuestionAnsweringRecipe) -> Box<dyn Evaluator<SpanTask>> {
        let (examples, questions) = (corpus.validation(), corpus.validation_records());
        Box::new(score::AnswerScores::on(*corpus.targets(), examples, questions))
    }

    fn estimate(recipe: &QuestionAnsweringRecipe, config: &SpanReaderConfig, _device: &Device) -> Estimate {
        let length = config.encoder.transformer.max_seq_len;
        let cost = config.init_with(&ParamBuilder::counting()).cost(length);
        estimate_of(&cost, length, recipe.data.batching, &recipe.training)
    }

    fn self_check(
        recipe: &QuestionAnsweringRecipe,
        config: &SpanReaderConfig,
        corpus: &RecordData<Self>,
        device: &Device,
    ) -> Result<Vec<Check>, ClassificationError> {
        self_check(recipe, config, corpus, device)
    }
}
