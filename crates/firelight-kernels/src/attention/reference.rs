//! Attention from Burn primitives: scores, hidden pairs, softmax, dropout, mean of the values.

use super::{AttentionOptions, Chunks};
use crate::dropout::reference::dropout;
use burn::tensor::{Bool, Device, Int, Tensor, activation::softmax};

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

/// From scaled scores to weights: cap, bias, softmax, dropout.
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
    let Some(hidden) = hidden(shape, options, &scores.device()) else {
        return softmax(scores, 3);
    };
    let lowest = scores.dtype().finfo().map_or(f64::from(f32::MIN), |info| info.min);
    let hidden = hidden.expand(shape);
    let weights = softmax(scores.mask_fill(hidden.clone(), lowest), 3);
    if sees_something(shape, options) { weights } else { weights.mask_fill(hidden, 0.0) }
}

/// The union of what the options hide, broadcastable to `[B, H, Q, K]`; nothing where there is nothing to hide.
pub(super) fn hidden(shape: [usize; 4], options: &AttentionOptions, device: &Device) -> Option<Tensor<4, Bool>> {
    if shape.contains(&0) {
        return None;
    }
    let [batch, _, queries, keys] = shape;
    let offset = keys as i64 - queries as i64;
    let future = (options.causal && queries > 1)
        .then(|| Tensor::<2, Bool>::tril_mask([queries, keys], offset, device).unsqueeze::<4>());
    let behind = options.window.filter(|window| window + 1 < keys).map(|window| {
        let far = Tensor::<2, Bool>::tril_mask([queries, keys], offset - window as i64 - 1, device);
        far.bool_not().unsqueeze::<4>()
    });
    let padding = options.padding.clone().map(|padding| padding.reshape([batch, 1, 1, keys]));
    [future, behind, padding, of_other_parts(shape, options, device)].into_iter().flatten().reduce(union)
}

/// The union of the hidden pairs, other chunks and other documents.
pub(super) fn of_other_parts(
    [_, _, queries, keys]: [usize; 4],
    options: &AttentionOptions,
    device: &Device,
) -> Option<Tensor<4, Bool>> {
    let chunks = options.chunks.map(|chunks| {
        let part = |places| part(chunks, places, device);
        let before = keys as i64 - queries as i64;
        differ(part(before..keys as i64), part(0..keys as i64))
    });
    let documents = options.documents.clone().map(|documents| {
        let of_queries = documents.clone().narrow(1, keys - queries, queries);
        differ(of_queries, documents)
    });
    [chunks, documents, options.hidden.clone()].into_iter().flatten().reduce(union)
}

/// The chunks of some places up to the last key, `[1, N]`, each named by its end among the keys.
fn part(chunks: Chunks, places: std::ops::Range<i64>, device: &Device) -> Tensor<2, Int> {
    let keys = places.end;
    let parts: Vec<i64> = places.map(|place| chunks.around(place).end.clamp(0, keys)).collect();
    Tensor::<1, Int>::from_ints(parts.as_slice(), device).unsqueeze()
}

/// Where the parts of queries, `[N, Q]`, and of keys, `[N, K]`, differ: `[N, 1, Q, K]`.
fn differ(queries: Tensor<2, Int>, keys: Tensor<2, Int>) -> Tensor<4, Bool> {
    let ([rows, length], [_, width]) = (queries.dims(), keys.dims());
    let shape = [rows, 1, length, width];
    queries.reshape([rows, 1, length, 1]).expand(shape).not_equal(keys.reshape([rows, 1, 1, width]).expand(shape))
}

fn union(a: Tensor<4, Bool>, b: Tensor<4, Bool>) -> Tensor<4, Bool> {
    let (left, right) = (a.dims(), b.dims());
    let shape: [usize; 4] = std::array::from_fn(|i| left[i].max(right[i]));
    a.expand(shape).bool_or(b.expand(shape))
}

/// True when no query can be without a visible key, which a causal mask alone guarantees.
fn sees_something([_, _, queries, keys]: [usize; 4], options: &AttentionOptions) -> bool {
    options.padding.is_none() && options.hidden.is_none() && queries <= keys
}
