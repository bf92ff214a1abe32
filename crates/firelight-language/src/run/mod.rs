//! Language models as recipes train them: what `[data]`, `[model]` and `[loss]` mean, and how a text becomes batches.
//! `firelight_training::Run` does the rest.

mod corpus;
#[cfg(test)]
mod estimate_tests;
mod evaluate;
mod model_recipe;
mod recipe;
mod score;
mod self_check;
mod sources;
#[cfg(test)]
mod tests;
mod text;

use std::path::Path;

use burn::tensor::Device;
use firelight_core::{ConfigError, LossConfig, ParamBuilder, TransformerConfig};
use firelight_storage::TaskError;
use firelight_tasks::{cost_of, problems, structure};
use firelight_training::{BatchCost, BuiltIn, Check, Evaluator, Problem, ROWS, Shared, StackPath, Task};

pub use evaluate::Evaluation;
pub use model_recipe::ModelRecipe;
pub use recipe::{DataRecipe, LanguageRecipe, Packing, stories_recipe};
pub use text::LmText;

use crate::model::{LanguageModel, LanguageModelConfig, STACK};
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
    const ROWS: &'static [(&'static str, usize)] = &[ROWS[0], ROWS[1], ROWS[2], ("head.weight", 1), ("head.bias", 0)];
    const STACK: Option<StackPath> = Some(StackPath::of::<TransformerConfig>(&["transformer"]));

    type Data = DataRecipe;
    type Model = ModelRecipe;
    type Loss = LossConfig;
    type Config = LanguageModelConfig;
    type DataModule = LmText;
    type Net = LanguageModel;
    type Error = TaskError;

    fn judge(recipe: &LanguageRecipe) -> Vec<Problem> {
        problems([
            ("model", recipe.model.config(1).validate()),
            ("loss", recipe.loss.validate()),
            ("data", recipe.data.validate()),
        ])
    }

    fn config(recipe: &LanguageRecipe, corpus: &LmText, source: &Path) -> Result<LanguageModelConfig, TaskError> {
        let config = recipe.model.config(corpus.tokenizer.vocab_size());
        TaskError::in_config(source, &ConfigError::list(config.validate()))?;
        Ok(config)
    }

    structure!(adapters, |config, params| config.transformer.init_with(&params.scope(STACK)));

    fn evaluator(corpus: &LmText, _recipe: &LanguageRecipe) -> Box<dyn Evaluator<LmTask>> {
        Box::new(Shared(score::TextScores::of(corpus)))
    }

    fn batch_cost(recipe: &LanguageRecipe, config: &LanguageModelConfig, _device: &Device) -> BatchCost {
        let length = config.transformer.max_seq_len;
        let cost = config.init_with(&ParamBuilder::counting()).cost(length);
        let tokens = recipe.data.batching.max_batch_tokens(recipe.training.batch_size, length);
        cost_of(&cost, config.vocab_size, tokens)
    }

    fn self_check(run: &Run) -> Result<Vec<Check>, TaskError> {
        let (config, tokens) = (run.config().clone(), run.corpus.first_tokens(self_check::TOKENS + 1));
        self_check::self_check(&config.with_adapters(None), run.recipe.seed, &tokens, run.device())
    }
}
