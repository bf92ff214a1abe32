//! What a pre-training costs.

use firelight_training::{Cost, Estimate};

use super::recipe::MaskedLanguageRecipe;
use crate::objectives::PretrainingConfig;

/// The head of the hidden tokens reads their share of the tokens alone. A generator is a second stack, and has that head then.
pub(super) fn estimate(recipe: &MaskedLanguageRecipe, config: &PretrainingConfig) -> Estimate {
    let (stack, generator) = (&config.encoder.transformer, config.generator());
    let stacks = || [stack].into_iter().chain(&generator);
    let share = recipe.data.masking.ratio;
    let d_hidden = generator.as_ref().unwrap_or(stack).d_model;
    let d_embedding = stack.d_embedding();
    let head = share * (d_embedding * (d_hidden + config.encoder.vocab_size)) as f64;
    let beside =
        generator.as_ref().map_or(0, |generator| d_embedding * generator.d_model + stack.d_model * stack.d_model);
    let cost = Cost {
        parameters: config.num_params(),
        flops_per_token: stacks().map(|stack| stack.train_flops_per_token()).sum::<usize>()
            + (6.0 * head) as usize
            + 6 * beside,
        floats_per_token: stacks().map(|stack| stack.floats_kept_per_token()).sum(),
        vocab_size: (share * config.encoder.vocab_size as f64).ceil() as usize,
        batch_tokens: recipe.data.batching.max_tokens(recipe.training.batch_size, stack.max_seq_len),
    };
    Estimate::new(cost, &recipe.training)
}
