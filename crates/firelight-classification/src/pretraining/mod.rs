//! Pre-trainings as recipes describe them, to begin classifiers from: what `[data]` and `[model]` mean, how texts become batches,
//! and the loss of each objective. `firelight_training::Run` does the rest.

mod corpus;
mod evaluate;
mod examples;
mod next_sentence;
mod objective;
mod recipe;
mod replaced;
mod score;
mod self_check;
#[cfg(test)]
mod tests;
mod texts;
mod units;

use std::path::Path;

use burn::tensor::Device;
use firelight_core::{ConfigError, LossConfig, ParamBuilder};
use firelight_storage::TaskError;
use firelight_tasks::{cost_of, problems};
use firelight_training::{BatchCost, BuiltIn, Check, Evaluator, Problem, RecipeOf, Run, Shared, Task};

pub use corpus::MaskedData;
pub use examples::{NextSentenceBatch, PretrainingBatch, ReplacedBatch};
pub use objective::PretrainingTask;
pub use recipe::{EncoderModelRecipe, MaskedLanguageRecipe, PretrainingKeys, TextsRecipe};

use crate::objectives::{PretrainingConfig, PretrainingModel};
use crate::on_encoder::on_encoder;

/// Which tokens stood where masks stand, and whatever else `data.objective` asks.
#[derive(Debug, Clone, Copy)]
pub struct MaskedLanguage;

impl Task for MaskedLanguage {
    const NAME: &'static str = crate::MASKED_LANGUAGE_TASK;
    const BUILT_IN: &'static [BuiltIn] = &[BuiltIn { name: "masked", text: recipe::MASKED }];
    const TARGET: &'static str = "hidden token";
    const HEAD_KEYS: &'static [&'static str] = &["tied"];

    type Data = TextsRecipe;
    type Model = EncoderModelRecipe;
    type Loss = LossConfig;
    type Config = PretrainingConfig;
    type DataModule = MaskedData;
    type Net = PretrainingModel;
    type Error = TaskError;

    fn judge(recipe: &MaskedLanguageRecipe) -> Vec<Problem> {
        let (least, around) = if recipe.data.objective.reads_documents() {
            (5, "three tokens stand around a pair of sentences")
        } else {
            (4, "two tokens stand around a text")
        };
        let short = recipe.model.transformer.max_seq_len < least;
        let short = short.then(|| format!("max_seq_len must be at least {least}: {around}"));
        let model = recipe.model.config(1, recipe.data.objective).validate();
        problems([
            ("model", ConfigError::collect([model], [short])),
            ("loss", recipe.loss.validate()),
            ("data", recipe.data.validate()),
        ])
    }

    fn config(recipe: &RecipeOf<Self>, corpus: &Self::DataModule, source: &Path) -> Result<Self::Config, Self::Error> {
        let config = recipe.model.config(corpus.vocabulary().vocab_size(), recipe.data.objective);
        TaskError::in_config(source, &ConfigError::list(config.validate()))?;
        Ok(config)
    }

    on_encoder!();

    fn evaluator(_corpus: &MaskedData, recipe: &MaskedLanguageRecipe) -> Box<dyn Evaluator<PretrainingTask>> {
        Box::new(Shared(score::PretrainingScores::of(recipe.data.objective)))
    }

    /// The head of the hidden tokens reads their share of the tokens alone.
    fn batch_cost(recipe: &MaskedLanguageRecipe, config: &PretrainingConfig, _device: &Device) -> BatchCost {
        let (length, share) = (config.encoder.transformer.max_seq_len, recipe.data.masking.ratio);
        let cost = config.init_with(&ParamBuilder::counting()).cost(length, share);
        let logits_per_token = (share * config.encoder.vocab_size as f64).ceil() as usize;
        cost_of(&cost, logits_per_token, recipe.data.batching.max_batch_tokens(recipe.training.batch_size, length))
    }

    fn self_check(run: &Run<Self>) -> Result<Vec<Check>, TaskError> {
        self_check::self_check(run)
    }
}
