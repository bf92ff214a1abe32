//! Encoder-decoders as recipes train them: what `[data]`, `[model]` and `[loss]` mean, and how pairs become batches.
//! `firelight_training::Run` does the rest.

mod estimate;
mod evaluate;
mod files;
mod model_recipe;
mod pairs;
mod recipe;
pub(crate) mod score;
mod self_check;

use std::path::Path;

use burn::tensor::Device;
use firelight_core::{ConfigError, LossConfig, ParamBuilder, check_adapters, merge_adapters};
use firelight_training::{BuiltIn, Check, Estimate, Evaluator, Problem, ROWS, Task};

pub use evaluate::{Evaluation, evaluate};
pub use model_recipe::Seq2SeqModelRecipe;
pub use pairs::PairText;
pub use recipe::{PairRecipe, Seq2SeqRecipe, dates_recipe};

use crate::error::Seq2SeqError;
use crate::model::{STACKS, Seq2SeqConfig, Seq2SeqModel};
use crate::training::Seq2SeqTask;
use crate::translator::TranslateOptions;
use score::TargetScores;

/// A training of an encoder-decoder that is ready to begin.
pub type Run = firelight_training::Run<Seq2Seq>;

/// What the training of an encoder-decoder leaves behind.
pub type TrainedRun = firelight_training::TrainedRun<Seq2Seq>;

/// From one sequence to another.
#[derive(Debug, Clone, Copy)]
pub struct Seq2Seq;

impl Task for Seq2Seq {
    const NAME: &'static str = crate::TASK;
    const BUILT_IN: &'static [BuiltIn] = &recipe::BUILT_IN;
    const ROWS: &'static [(&'static str, usize)] = &[ROWS[0], ROWS[1], ROWS[2], ("head.weight", 1), ("head.bias", 0)];

    type Data = PairRecipe;
    type Model = Seq2SeqModelRecipe;
    type Loss = LossConfig;
    type Config = Seq2SeqConfig;
    type DataModule = PairText;
    type Net = Seq2SeqModel;
    type Error = Seq2SeqError;

    fn judge(recipe: &Seq2SeqRecipe) -> Vec<Problem> {
        let (tying, joint) = (recipe.model.tying(), recipe.data.joint);
        let apart = (!joint && tying.ties_source()).then(|| {
            let (name, without) = (tying.name(), tying.without_source());
            format!(
                "tying = \"{name}\" needs data.joint = true: one matrix for one vocabulary; set it to \"{without}\""
            )
        });
        let problems = [
            ("model", ConfigError::list(recipe.model.config([2, 2], 0).validate())),
            ("model", apart.into_iter().collect()),
            ("loss", ConfigError::list(recipe.loss.validate())),
            ("data", ConfigError::list(recipe.data.validate())),
        ];
        problems.into_iter().flat_map(|(section, problems)| Problem::list(section, problems)).collect()
    }

    fn config(recipe: &Seq2SeqRecipe, corpus: &PairText, source: &Path) -> Result<Seq2SeqConfig, Seq2SeqError> {
        let vocabulary = corpus.vocabulary();
        let sizes = [vocabulary.source().vocab_size(), vocabulary.target().vocab_size()];
        let config = recipe.model.config(sizes, vocabulary.ends().start);
        let config = Seq2SeqConfig { joint: vocabulary.is_joint(), ..config };
        Seq2SeqError::in_config(source, &ConfigError::list(config.validate()))?;
        Ok(config)
    }

    fn problems(config: &Seq2SeqConfig) -> Vec<String> {
        ConfigError::list(config.validate())
    }

    fn model(config: &Seq2SeqConfig, seed: u64, device: &Device) -> Seq2SeqModel {
        config.init_with(&ParamBuilder::new(device, seed))
    }

    fn inspect(config: &Seq2SeqConfig, _device: &Device) -> Vec<Problem> {
        let stacks = |params: &ParamBuilder| config.stacks.init_with(&params.scope(STACKS));
        Problem::list("model", ConfigError::list(check_adapters(config.adapters.as_ref(), stacks)))
    }

    fn has_adapters(config: &Seq2SeqConfig) -> bool {
        config.adapters.is_some()
    }

    fn merged(config: &Seq2SeqConfig, model: Seq2SeqModel) -> (Seq2SeqConfig, Seq2SeqModel) {
        let bare = config.clone().with_adapters(None);
        (bare, config.adapters.iter().fold(model, merge_adapters))
    }

    fn evaluator(corpus: &PairText, recipe: &Seq2SeqRecipe) -> Box<dyn Evaluator<Seq2SeqTask>> {
        let pairs = &corpus.validation()[..recipe.data.translated.min(corpus.validation().len())];
        let greedy = TranslateOptions::greedy();
        let written = || pairs::translations(corpus.vocabulary().clone(), pairs, greedy, recipe.data.metrics.clone());
        Box::new(TargetScores::new((!pairs.is_empty()).then(written)))
    }

    fn estimate(recipe: &Seq2SeqRecipe, config: &Seq2SeqConfig, _device: &Device) -> Estimate {
        estimate::estimate(config, recipe)
    }

    fn self_check(
        recipe: &Seq2SeqRecipe,
        config: &Seq2SeqConfig,
        corpus: &PairText,
        device: &Device,
    ) -> Result<Vec<Check>, Seq2SeqError> {
        self_check::self_check(&config.clone().with_adapters(None), recipe.seed, corpus, device)
    }
}
