//! Encoder-decoders as recipes train them: what `[data]`, `[model]` and `[loss]` mean, and how pairs become batches.
//! `firelight_training::Run` does the rest.

#[cfg(test)]
mod estimate_tests;
mod evaluate;
mod files;
mod model_recipe;
mod pairs;
mod recipe;
pub(crate) mod score;
mod self_check;

use std::path::Path;

use burn::tensor::Device;
use firelight_core::{ConfigError, LossConfig, ParamBuilder};
use firelight_storage::TaskError;
use firelight_tasks::{cost_of, problems, structure};
use firelight_training::{BatchCost, BuiltIn, Check, Evaluator, Problem, ROWS, Shared, Task};

pub use evaluate::Evaluation;
pub use model_recipe::Seq2SeqModelRecipe;
pub use pairs::PairText;
pub use recipe::{PairRecipe, Seq2SeqRecipe, dates_recipe};

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
    type Error = TaskError;

    fn judge(recipe: &Seq2SeqRecipe) -> Vec<Problem> {
        let (tying, joint) = (recipe.model.tying(), recipe.data.joint);
        let apart = (!joint && tying.needs_one_vocabulary()).then(|| {
            let (name, without) = (tying.name(), tying.without_source());
            format!(
                "tying = \"{name}\" needs data.joint = true: one matrix for one vocabulary; set it to \"{without}\""
            )
        });
        problems([
            ("model", ConfigError::collect([recipe.model.config([2, 2], 0).validate()], [apart])),
            ("loss", recipe.loss.validate()),
            ("data", recipe.data.validate()),
        ])
    }

    fn config(recipe: &Seq2SeqRecipe, corpus: &PairText, source: &Path) -> Result<Seq2SeqConfig, TaskError> {
        let vocabulary = corpus.vocabulary();
        let sizes = [vocabulary.source().vocab_size(), vocabulary.target().vocab_size()];
        let config = recipe.model.config(sizes, vocabulary.ends().start);
        let config = Seq2SeqConfig { joint: vocabulary.is_joint(), ..config };
        TaskError::in_config(source, &ConfigError::list(config.validate()))?;
        Ok(config)
    }

    structure!(adapters, |config, params| config.stacks.init_with(&params.scope(STACKS)));

    fn evaluator(corpus: &PairText, recipe: &Seq2SeqRecipe) -> Box<dyn Evaluator<Seq2SeqTask>> {
        let pairs = &corpus.validation()[..recipe.data.translated.min(corpus.validation().len())];
        let greedy = TranslateOptions::greedy();
        let written = || pairs::translations(corpus.vocabulary().clone(), pairs, greedy, recipe.data.metrics.clone());
        Box::new(Shared(TargetScores::new((!pairs.is_empty()).then(written))))
    }

    /// A token is one of the target with one of the source, as many of both.
    fn batch_cost(recipe: &Seq2SeqRecipe, config: &Seq2SeqConfig, _device: &Device) -> BatchCost {
        let lengths = [&config.stacks.encoder, &config.stacks.decoder].map(|stack| stack.max_seq_len);
        let cost = config.init_with(&ParamBuilder::counting()).cost(lengths);
        let tokens = recipe.data.batching.max_batch_tokens(recipe.training.batch_size, lengths[1]);
        cost_of(&cost, config.target_vocab_size, tokens)
    }

    fn self_check(run: &Run) -> Result<Vec<Check>, TaskError> {
        self_check::self_check(run)
    }
}
