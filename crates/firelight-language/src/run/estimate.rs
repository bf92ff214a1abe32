//! What a training is going to cost, known before anything is allocated: parameters, arithmetic and memory.
//!
//! Source of the arithmetic: Chowdhery et al. 2022, PaLM, appendix B (<https://arxiv.org/abs/2204.02311>): `6 N + 12 L H Q T`
//! floating point operations per token in forward and backward pass. The memory is counted from what this library's own
//! operations keep for the backward pass; docs/results.md has measurements beside it.

use firelight_data::Batching;
use firelight_training::{Estimate, Recipe};

use super::LanguageRecipe;
use crate::model::LanguageModelConfig;

/// Bytes of a 32-bit float.
const FLOAT: usize = 4;

/// Logits of more floats than this are computed in blocks and never lie in memory whole.
const LOGITS_IN_BLOCKS: usize = 16 << 20;

/// What a training of `config` by `recipe` costs.
pub(super) fn estimate(config: &LanguageModelConfig, recipe: &LanguageRecipe) -> Estimate {
    let Recipe { training, .. } = recipe;
    let (parameters, tokens) = (config.num_params(), batch_tokens(config, recipe));
    // Weights, gradients, two moments; the moving average is one copy more.
    let copies = if training.smoothing > 0.0 { 5 } else { 4 };
    Estimate {
        parameters,
        flops_per_token: flops_per_token(config),
        tokens_per_step: tokens * training.accumulate,
        steps: training.steps,
        state_bytes: copies * FLOAT * parameters,
        activation_bytes: FLOAT * (tokens * floats_per_token(config) + logits(config, tokens)),
    }
}

/// The most tokens that a batch can have, padding included.
fn batch_tokens(config: &LanguageModelConfig, recipe: &LanguageRecipe) -> usize {
    match recipe.data.batching {
        Batching::Tokens { budget, .. } => budget,
        _ => recipe.training.batch_size * config.transformer.max_seq_len,
    }
}

/// The lookup of the embedding is no product; a tied matrix is one in the head.
fn flops_per_token(config: &LanguageModelConfig) -> usize {
    let stack = &config.transformer;
    let products = stack.num_params() + config.vocab_size * stack.d_model;
    6 * products + 12 * stack.n_layers * stack.n_heads * stack.d_head() * stack.max_seq_len
}

/// Floats that the layers keep of one token: in each two norms with their inputs (4 d), queries, keys and values (3 d or
/// less), the output of the attention (d), and the inner activations before and after their curve (2 or 3 d_ff).
fn floats_per_token(config: &LanguageModelConfig) -> usize {
    let stack = &config.transformer;
    let heads = stack.n_heads + 2 * stack.n_kv_heads.unwrap_or(stack.n_heads);
    let inner = if stack.activation.is_gated() { 3 } else { 2 };
    let layer = 4 * stack.d_model
        + (heads + stack.n_heads) * stack.d_head()
        + inner * stack.d_ff.unwrap_or_else(|| stack.activation.default_d_ff(stack.d_model));
    stack.n_layers * layer + 2 * stack.d_model
}

/// Logits and their gradient, where they are not computed in blocks.
fn logits(config: &LanguageModelConfig, tokens: usize) -> usize {
    let all = tokens * config.vocab_size;
    if all > LOGITS_IN_BLOCKS { LOGITS_IN_BLOCKS } else { 2 * all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_costs_of_a_small_model_are_counted_by_hand() {
        // d 8, 2 heads of 4, 1 layer, inner 32, context 4, 5 tokens, tied, no positions to learn.
        let text = "task = \"language\"\n[model]\nd_model = 8\nn_heads = 2\nn_layers = 1\nd_ff = 32\nmax_seq_len = 4\n\
                    position = \"none\"\n[training]\nsteps = 10\nbatch_size = 3\naccumulate = 2\n";
        let recipe = LanguageRecipe::parse(text, "small.toml", &[]).unwrap();
        let config = recipe.model.config(5);
        let estimate = estimate(&config, &recipe);
        // Attention 4 (64 + 8), feed-forward 2 * 256 + 32 + 8, three norms of 16, embedding 40.
        assert_eq!(estimate.parameters, 288 + 552 + 48 + 40);
        assert_eq!(estimate.flops_per_token, 6 * (888 + 40) + 12 * 8 * 4);
        assert_eq!((estimate.tokens_per_step, estimate.steps), (24, 10));
        assert_eq!(estimate.state_bytes, 16 * 928);
        // A token keeps 4 * 8 + 4 * 8 + 2 * 32 floats of the layer, 16 of the head, and 10 of the logits.
        assert_eq!(estimate.activation_bytes, 4 * 12 * (128 + 16 + 10));
        assert!(
            estimate.to_string().starts_with("928 parameters, 0.0 MFLOP per token, 24 tokens a step"),
            "{estimate}"
        );
    }
}
