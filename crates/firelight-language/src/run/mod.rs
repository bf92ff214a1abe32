//! Language models as recipes train them: what `[data]`, `[model]` and `[loss]` mean, and how a text becomes batches.
//! `firelight_training::Run` does the rest.

mod corpus;
mod estimate;
mod evaluate;
mod model_recipe;
mod recipe;
mod self_check;
mod sources;
#[cfg(test)]
mod tests;
mod text;

use std::path::Path;

use burn::tensor::Device;
use firelight_core::{ConfigError, LossConfig, ParamBuilder, check_adapters, merge_adapters};
use firelight_training::{BuiltIn, Check, Estimate, Problem, ROWS, Task};

pub use evaluate::{Evaluation, evaluate};
pub use model_recipe::ModelRecipe;
pub use recipe::{DataRecipe, LanguageRecipe, Packing, stories_recipe};
pub use text::LmText;

use crate::error::LanguageError;
use crate::model::{LanguageModel, LanguageModelConfig, STACK};

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
    const ROWS: &'static [(&'static str, usize)] = &[ROWS[0], ROWS[1], ROWS[2], ("head.weight", 1), ("head.bias", 0)];

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
        LanguageError::in_config(source, &ConfigError::list(config.validate()))?;
        Ok(config)
    }

    fn problems(config: &LanguageModelConfig) -> Vec<String> {
        ConfigError::list(config.validate())
    }

    fn model(config: &LanguageModelConfig, seed: u64, device: &Device) -> LanguageModel {
        config.init_with(&ParamBuilder::new(device, seed))
    }

    fn inspect(config: &LanguageModelConfig, _device: &Device) -> Vec<Problem> {
        let stack = |params: &ParamBuilder| config.transformer.init_with(&params.scope(STACK));
        Problem::list("model", ConfigError::list(check_adapters(config.adapters.as_ref(), stack)))
    }

    fn has_adapters(config: &LanguageModelConfig) -> bool {
        config.adapters.is_some()
    }

    fn merged(config: &LanguageModelConfig, model: LanguageModel) -> (LanguageModelConfig, LanguageModel) {
        let bare = config.clone().with_adapters(None);
        (bare, config.adapters.iter().fold(model, merge_adapters))
    }

    fn estimate(recipe: &LanguageRecipe, config: &LanguageModelConfig, _device: &Device) -> Estimate {
        estimate::estimate(config, recipe)
    }

    fn self_check(
        recipe: &LanguageRecipe,
        config: &LanguageModelConfig,
        corpus: &LmText,
        device: &Device,
    ) -> Result<Vec<Check>, LanguageError> {
        let tokens = corpus.first_tokens(self_check::TOKENS + 1);
        self_check::self_check(&config.clone().with_adapters(None), recipe.seed, &tokens, device)
    }
}
