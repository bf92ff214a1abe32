//! Language models as recipes train them: what `[data]`, `[model]` and `[loss]` mean, and how a text becomes batches.
//! `firelight_training::Run` does the rest.

mod corpus;
mod estimate;
mod evaluate;
mod model_recipe;
mod recipe;
mod self_check;
mod text;

use std::ops::Range;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use burn::train::{TrainLoader, ValidLoader};
use firelight_core::{ConfigError, LossConfig, ParamBuilder};
use firelight_storage::ModelFolder;
use firelight_training::{BuiltIn, Check, Estimate, Problem, Task};

pub use evaluate::{Evaluation, evaluate};
pub use model_recipe::ModelRecipe;
pub use recipe::{DataRecipe, LanguageRecipe, Packing, stories_recipe};
pub use text::LmText;

use crate::error::LanguageError;
use crate::model::{LanguageModel, LanguageModelConfig};
use crate::training::LmTask;

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
    type Corpus = LmText;
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

    fn read(recipe: &mut LanguageRecipe, source: &Path, paths: &[PathBuf]) -> Result<LmText, LanguageError> {
        LmText::read(recipe, source, paths)
    }

    fn recall(recipe: &mut LanguageRecipe, stored: &LanguageRecipe) {
        if stored.data.stories.is_none() {
            recipe.data.stories = None; // a text was given in their place
        }
    }

    fn save(corpus: &LmText, folder: &ModelFolder) -> Result<(), LanguageError> {
        corpus.save(folder)
    }

    fn open(recipe: &LanguageRecipe, folder: &ModelFolder) -> Result<LmText, LanguageError> {
        LmText::open(recipe, folder)
    }

    fn is_of(corpus: &LmText, recipe: &LanguageRecipe, paths: &[PathBuf]) -> Result<bool, LanguageError> {
        corpus.is_of(recipe, paths)
    }

    fn sizes(corpus: &LmText) -> String {
        let [training, validation] = [corpus.training().len(), corpus.validation().len()];
        format!("{training} tokens to train on, {validation} to validate on")
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

    fn batches_of_an_epoch(corpus: &LmText, recipe: &LanguageRecipe) -> Result<usize, LanguageError> {
        Ok(corpus.parts.0.batches_of_an_epoch(recipe)?)
    }

    fn training_loader(
        corpus: &LmText,
        recipe: &LanguageRecipe,
        batches: Range<usize>,
        device: &Device,
    ) -> Result<TrainLoader<LmTask>, LanguageError> {
        Ok(corpus.parts.0.training_loader(recipe, batches, device)?)
    }

    fn validation_loader(
        corpus: &LmText,
        recipe: &LanguageRecipe,
        device: &Device,
    ) -> Result<ValidLoader<LmTask>, LanguageError> {
        Ok(corpus.parts.1.validation_loader(recipe, device)?)
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
