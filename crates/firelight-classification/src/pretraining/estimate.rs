//! What a pre-training costs.

use firelight_core::ParamBuilder;
use firelight_training::{BatchCost, Estimate};

use super::recipe::MaskedLanguageRecipe;
use crate::objectives::PretrainingConfig;

/// The head of the hidden tokens reads their share of the tokens alone.
pub(super) fn estimate(recipe: &MaskedLanguageRecipe, config: &PretrainingConfig) -> Estimate {
    let (length, share) = (config.encoder.transformer.max_seq_len, recipe.data.masking.ratio);
    let cost = config.init_with(&ParamBuilder::counting()).cost(length, share);
    let batch = BatchCost {
        parameters: cost.parameters,
        flops_per_token: cost.training_flops_per_token(),
        kept_per_token: cost.kept_per_token,
        logits_per_token: (share * config.encoder.vocab_size as f64).ceil() as usize,
        tokens: recipe.data.batching.max_batch_tokens(recipe.training.batch_size, length),
    };
    Estimate::new(batch, &recipe.training)
}
