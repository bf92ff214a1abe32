//! Attention from Burn primitives: scores, hidden pairs, softmax, dropout, mean of the values.

use super::AttentionOptions;
use crate::dropout::reference::dropout;
use burn::tensor::{Tensor, activation::softmax};

/// The weights that the values are taken with, `[B, H, Q, K]`.
pub(super) fn weights(query: Tensor<4>, key: Tensor<4>, options: &AttentionOptions) -> Tensor<4> {
    finish(products(query, key, options), options)
}

/// The weights of scores that are formed elsewhere, `[B, H, Q, K]`.
pub(super) fn weights_of(scores: Tensor<4>, options: &AttentionOptions) -> Tensor<4> {
    let scores = match options.scale {
        Some(scale) => scores.mul_scalar(scale),
        None => scores,
    };
    finish(scores, options)
}

/// The weighted mean of the values, `[B, H, Q, F]`.
pub(super) fn mean(weights: Tensor<4>, value: Tensor<4>) -> Tensor<4> {
    let [batch, heads, queries, _] = weights.dims();
    let [_, groups, _, d_value] = value.dims();
    fold(weights, groups).matmul(value).reshape([batch, heads, queries, d_value]) // [B, H, Q, F]
}

/// Scaled products, `[B, H, Q, K]`.
fn products(query: Tensor<4>, key: Tensor<4>, options: &AttentionOptions) -> Tensor<4> {
    let [batch, heads, queries, d_head] = query.dims();
    let [_, groups, keys, _] = key.dims();
    let scale = options.scale.unwrap_or(1.0 / (d_head as f64).sqrt());
    let query = fold(query.mul_scalar(scale), groups);
    query.matmul(key.swap_dims(2, 3)).reshape([batch, heads, queries, keys])
}

/// From scaled scores to weights: cap, bias, softmax beside the sinks, dropout.
fn finish(scores: Tensor<4>, options: &AttentionOptions) -> Tensor<4> {
    let scores = match options.soft_cap {
        Some(cap) => scores.div_scalar(cap).tanh().mul_scalar(cap),
        None => scores,
    };
    let [_, _, queries, keys] = scores.dims();
    let scores = match bias(options, [queries, keys]) {
        Some(bias) => scores + bias,
        None => scores,
    };
    dropout(normalise(scores, options), options.dropout)
}

/// All that is added to the scores, broadcastable to `[B, H, Q, K]`.
pub(super) fn bias(options: &AttentionOptions, [queries, keys]: [usize; 2]) -> Option<Tensor<4>> {
    let by_distance = options.bias_by_distance.clone().map(|bias| of_pairs(bias, [queries, keys]));
    match (options.bias.clone(), by_distance) {
        (Some(bias), Some(by_distance)) => Some(bias + by_distance),
        (bias, by_distance) => bias.or(by_distance),
    }
}

/// `[H, Q + K - 1] -> [1, H, Q, K]`, where column `Q - 1 + j - i` goes to the pair `(i, j)`: rows that stand one after the
/// other and are then read one element shorter move to the left by one from row to row.
fn of_pairs(bias: Tensor<2>, [queries, keys]: [usize; 2]) -> Tensor<4> {
    let [heads, distances] = bias.dims();
    if queries == 1 {
        return bias.reshape([1, heads, 1, keys]);
    }
    let rows = bias.unsqueeze_dim::<3>(1).repeat_dim(1, queries).reshape([heads, queries * distances]);
    let moved = rows.narrow(1, queries - 1, queries * (distances - 1)).reshape([heads, queries, distances - 1]);
    moved.narrow(2, 0, keys).unsqueeze()
}

/// `[B, H, Q, X] -> [B, G, H / G * Q, X]`: the queries of a group share one product with its keys.
fn fold(x: Tensor<4>, groups: usize) -> Tensor<4> {
    let [batch, heads, queries, width] = x.dims();
    if heads == groups { x } else { x.reshape([batch, groups, heads / groups * queries, width]) }
}

/// Softmax over the visible keys. Hidden scores are the lowest finite number and not `-inf`, so that a query that sees
/// nothing gives numbers, which the second fill turns into zeros, and never NaN.
fn normalise(scores: Tensor<4>, options: &AttentionOptions) -> Tensor<4> {
    let shape = scores.dims();
    let Some(hidden) = options.mask.all_hidden_pairs(shape, &scores.device()) else {
        return softmax_beside(scores, &options.sinks);
    };
    let lowest = scores.dtype().finfo().map_or(f64::from(f32::MIN), |info| info.min);
    let hidden = hidden.expand(shape);
    softmax_beside(scores.mask_fill(hidden.clone(), lowest), &options.sinks).mask_fill(hidden, 0.0)
}

/// Softmax over the keys, and over the sink of each head where there are sinks, whose weights are left out.
fn softmax_beside(scores: Tensor<4>, sinks: &Option<Tensor<1>>) -> Tensor<4> {
    // Where there is no row there is none to extend, and Burn expands to no size of 0.
    let Some(sinks) = sinks.as_ref().filter(|_| scores.shape().num_elements() > 0) else { return softmax(scores, 3) };
    let [batch, heads, queries, keys] = scores.dims();
    let sinks = sinks.clone().reshape([1, heads, 1, 1]).expand([batch, heads, queries, 1]);
    softmax(Tensor::cat(vec![scores, sinks], 3), 3).narrow(3, 0, keys)
}
