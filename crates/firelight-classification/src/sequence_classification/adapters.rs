//! Low-rank adapters in the recipe of a classifier, `[model.adapters]`: the encoder of the run that `model.from` names stays as it
//! is, and adapters of its layers are trained with the head.
//!
//! Source: Hu et al. 2021, LoRA, section 4.1 (<https://arxiv.org/abs/2106.09685>): the weights that were learnt before "do not receive
//! gradient updates"; a classifier's head has none and is trained whole.

use firelight_core::ConfigError;
use firelight_training::Problem;

use super::ClassificationRecipe;
use crate::model::{ENCODER, TextClassifierConfig};

/// What is wrong with the `[model]` of a recipe, whose structure was found to be `model`.
pub(super) fn judge(recipe: &ClassificationRecipe, model: Result<(), ConfigError>) -> Vec<Problem> {
    let alone = recipe.model.adapts_nothing();
    let alone =
        alone.then(|| "adapters change an encoder that has learnt: name its run as model.from, or by --from".into());
    let unlearnt = recipe.model.adapts_a_new_embedding();
    let unlearnt =
        unlearnt.then(|| "new_embedding = true does not fit model.adapters: it would stay as it begins".into());
    [problems(model), Problem::list("model", alone), Problem::list("model", unlearnt)].concat()
}

/// The problems of a structure by their keys in a recipe, where adapters are a section within that of the model.
pub(super) fn problems(structure: Result<(), ConfigError>) -> Vec<Problem> {
    let whole = |text: String| if text.starts_with("adapters.") { format!("model.{text}") } else { text };
    Problem::list("model", ConfigError::list(structure).into_iter().map(whole))
}

/// What is not trained, as patterns of `training.freeze`: with adapters, everything of the encoder but them.
pub(super) fn frozen(config: &TextClassifierConfig) -> Vec<String> {
    let patterns = [ENCODER, "!*.adapter"].map(str::to_owned).to_vec();
    config.encoder.adapters.as_ref().map_or(Vec::new(), |_| patterns)
}

#[cfg(test)]
mod tests;
