//! Pre-trainings as recipes describe them, to begin classifiers from: what `[data]` and `[model]` mean, how texts become batches,
//! and the loss of each objective. `firelight_training::Run` does the rest.

mod corpus;
mod estimate;
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
use firelight_training::{BuiltIn, Check, Estimate, Evaluator, Problem, Task};

pub use corpus::MaskedCorpus;
pub use evaluate::evaluate_masked;
pub use examples::{NextSentenceBatch, PretrainingBatch, ReplacedBatch};
pub use objective::PretrainingTask;
pub use recipe::{EncoderModelRecipe, MaskedLanguageRecipe, TextsRecipe};

use crate::error::ClassificationError;
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
    type DataModule = MaskedCorpus;
    type Net = PretrainingModel;
    type Error = ClassificationError;

    fn judge(recipe: &MaskedLanguageRecipe) -> Vec<Problem> {
        let (least, around) = if recipe.data.objective.reads_documents() {
            (5, "three tokens stand around a pair of sentences")
        } else {
            (4, "two tokens stand around a text")
        };
        let short = recipe.model.transformer.max_seq_len < least;
        let short = short.then(|| format!("max_seq_len must be at least {least}: {around}"));
        [
            Problem::list("model", ConfigError::list(recipe.model.config(1, recipe.data.objective).validate())),
            Problem::list("model", short),
            Problem::list("loss", ConfigError::list(recipe.loss.validate())),
            Problem::list("data", ConfigError::list(recipe.data.validate())),
        ]
        .concat()
    }

    fn config(
        recipe: &MaskedLanguageRecipe,
        corpus: &MaskedCorpus,
        source: &Path,
    ) -> Result<PretrainingConfig, ClassificationError> {
        let config = recipe.model.config(corpus.vocabulary().vocab_size(), recipe.data.objective);
        ClassificationError::in_config(source, &ConfigError::list(config.validate()))?;
        Ok(config)
    }

    fn model(config: &PretrainingConfig, seed: u64, device: &Device) -> PretrainingModel {
        config.init_with(&ParamBuilder::new(device, seed))
    }

    on_encoder!();

    fn evaluator(_corpus: &MaskedCorpus, recipe: &MaskedLanguageRecipe) -> Box<dyn Evaluator<PretrainingTask>> {
        Box::new(score::PretrainingScores::of(recipe.data.objective))
    }

    fn estimate(recipe: &MaskedLanguageRecipe, config: &PretrainingConfig, _device: &Device) -> Estimate {
        estimate::estimate(recipe, config)
    }

    fn self_check(
        recipe: &MaskedLanguageRecipe,
        config: &PretrainingConfig,
        corpus: &MaskedCorpus,
        device: &Device,
    ) -> Result<Vec<Check>, ClassificationError> {
        self_check::self_check(recipe, config, corpus, device)
    }
}
