//! Language models as recipes train them: what `[data]`, `[model]` and `[loss]` mean, and how a text becomes batches.
//! `firelight_training::Run` does the rest.

mod corpus;
mod estimate;
mod evaluate;
mod model_recipe;
mod recipe;
mod self_check;
mod text;

use std::path::Path;

use burn::tensor::Device;
use firelight_core::{ConfigError, LossConfig, ParamBuilder};
use firelight_training::{BuiltIn, Check, Estimate, Problem, Task};

pub use evaluate::{Evaluation, evaluate};
pub use model_recipe::ModelRecipe;
pub use recipe::{DataRecipe, LanguageRecipe, Packing, stories_recipe};
pub use text::LmText;

use crate::error::LanguageError;
use crate::model::{LanguageModel, LanguageModelConfig};

/// A training of a language model that is ready to begin.
pub type Run = firelight_training::Run<Language>;

/// What the training of a language model leaves behind.
pub type TrainedRun = firelight_training::TrainedRun<Language>;

/// Next-token prediction on running text.
#[derive(Debug, Clone, Copy)]
pub struct Language;

impl Task for Language {
    const NAME: &'static str = crate::TASK;
    const BUILT_IN: &'static [BuiltIn] = &[BuiltIn { name: "stories", text: recipe::STORIES }];

    type Data = DataRecipe;
    type Model = ModelRecipe;
    type Loss = LossConfig;
    type Config = LanguageModelConfig;
    type DataModule = LmText;
    type Net = LanguageModel;
    type Error = LanguageError;

    fn judge(recipe: &LanguageRecipe) -> Vec<Problem> {
        let checks = [
            ("model", recipe.model.config(1).validate()),
            ("loss", recipe.loss.validate()),
            ("data", recipe.data.validate()),
        ];
        checks.into_iter().flat_map(|(section, check)| Problem::list(section, ConfigError::list(check))).collect()
    }

    fn config(recipe: &LanguageRecipe, corpus: &LmText, source: &Path) -> Result<LanguageModelConfig, LanguageError> {
        let config = recipe.model.config(corpus.tokenizer.vocab_size());
        config.validate().map_err(|error| LanguageError::Config { path: source.into(), error })?;
        Ok(config)
    }

    fn model(config: &LanguageModelConfig, seed: u64, device: &Device) -> LanguageModel {
        config.init_with(&ParamBuilder::new(device, seed))
    }

    fn parameters(model: &LanguageModel) -> Vec<(String, usize)> {
        model.report().parts()
    }

    fn estimate(recipe: &LanguageRecipe, config: &LanguageModelConfig) -> Estimate {
        estimate::estimate(config, recipe)
    }

    fn self_check(
        recipe: &LanguageRecipe,
        config: &LanguageModelConfig,
        corpus: &LmText,
        device: &Device,
    ) -> Result<Vec<Check>, LanguageError> {
        self_check::self_check(config, recipe.seed, corpus.training(), device)
    }
}
