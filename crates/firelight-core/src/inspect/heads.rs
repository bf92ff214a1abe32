//! What heads attend to: scores of attention weights `[B, H, Q, K]`, a number for each head, `[H]`.
//!
//! The weights are those of a trace, or the activations `blocks.N.attention.weights`. With a cache the last query stands at the last key. Leave
//! padded rows out. A score whose keys no query has is NaN.
//!
//! Sources: entropy and attention to separators, Clark et al. 2019, §3 (<https://arxiv.org/abs/1906.04341>); positional heads and
//! confidence, Voita et al. 2019, §4 and §5.2.1 (<https://arxiv.org/abs/1905.09418>); induction heads by prefix matching, Olsson et al. 2022,
//! "In-context learning and induction heads" (<https://transformer-circuits.pub/2022/in-context-learning-and-induction-heads/index.html>), after
//! Elhage et al. 2021; heads of the same token, Wang et al. 2022, §3.2 (<https://arxiv.org/abs/2211.00593>). Olsson et al. show a head
//! 25 random tokens four times; here the rows are the caller's.

use crate::precision::widened;
use burn::tensor::{Tensor, TensorData};

/// The mean entropy of a row, in nats: 0 for a head that sees one key, `ln K` for one that sees all alike.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::inspect::heads::entropy;
///
/// let weights = Tensor::<4>::from_floats([[[[0.5, 0.5]], [[1.0, 0.0]]]], &Device::flex()); // Two heads, one query.
/// let found: Vec<f32> = entropy(weights).into_data().iter().collect();
/// assert!((found[0] - 2f32.ln()).abs() < 1e-6 && found[1] == 0.0);
/// ```
pub fn entropy(weights: Tensor<4>) -> Tensor<1> {
    let weights = widened(weights);
    let [batch, _, queries, _] = weights.dims();
    let each = weights.clone() * weights.clamp_min(f32::MIN_POSITIVE).log();
    per_head(each.neg()) / (batch * queries) as f64
}

/// The mean of the largest weight of a row.
pub fn confidence(weights: Tensor<4>) -> Tensor<1> {
    let weights = widened(weights);
    let [batch, _, queries, _] = weights.dims();
    per_head(weights.max_dim(3)) / (batch * queries) as f64
}

/// The mean weight of the token `distance` behind each query, or before it where that is negative: -1 is the previous token, 1 the next one,
/// 0 the query's own.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::inspect::heads::at_distance;
///
/// let weights = Tensor::<4>::from_floats([[[[1.0, 0.0], [0.75, 0.25]]]], &Device::flex());
/// assert_eq!(at_distance(weights.clone(), -1).into_scalar::<f32>(), 0.75); // The first query has no previous token.
/// assert_eq!(at_distance(weights, 0).into_scalar::<f32>(), 0.625);
/// ```
pub fn at_distance(weights: Tensor<4>, distance: isize) -> Tensor<1> {
    on_pairs(weights, |_, query, key| query.checked_add_signed(distance) == Some(key))
}

/// The mean weight of the first token, over the queries behind it.
#[doc(alias = "attention sink")]
pub fn first_token(weights: Tensor<4>) -> Tensor<1> {
    on_pairs(weights, |_, query, key| key == 0 && query > 0)
}

/// The mean weight of all tokens of these kinds together, such as separators: `ids` are those of the keys, a row each.
///
/// # Panics
/// If `ids` are not `[B, K]`.
pub fn on_tokens(weights: Tensor<4>, ids: &[Vec<u32>], kinds: &[u32]) -> Tensor<1> {
    check(&weights, ids);
    on_pairs(weights, |row, _, key| kinds.contains(&ids[row][key]))
}

/// The mean weight of the earlier tokens that are the same as the query's, over the queries that have such.
///
/// # Panics
/// If `ids` are not `[B, K]`.
#[doc(alias = "duplicate token head")]
pub fn same_token(weights: Tensor<4>, ids: &[Vec<u32>]) -> Tensor<1> {
    check(&weights, ids);
    on_pairs(weights, |row, query, key| key < query && ids[row][key] == ids[row][query])
}

/// The mean weight of the tokens behind earlier ones that are the same as the query's, over the queries that have such: prefix matching.
///
/// # Panics
/// If `ids` are not `[B, K]`.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::inspect::heads::induction;
///
/// // Of a b a the last one looks at b, which stood behind the first one.
/// let weights = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.75, 0.0]];
/// let weights = Tensor::<4>::from_floats([[weights]], &Device::flex());
/// assert_eq!(induction(weights, &[vec![7, 8, 7]]).into_scalar::<f32>(), 0.75);
/// ```
#[doc(alias = "prefix matching")]
pub fn induction(weights: Tensor<4>, ids: &[Vec<u32>]) -> Tensor<1> {
    check(&weights, ids);
    on_pairs(weights, |row, query, key| key > 0 && key <= query && ids[row][key - 1] == ids[row][query])
}

/// The mean weight of the keys that `pairs` is true of, `(row, query, key)`, over the queries that have any. Queries and keys are counted from
/// the first key.
///
/// # Panics
/// If there are more queries than keys.
pub fn on_pairs(weights: Tensor<4>, pairs: impl Fn(usize, usize, usize) -> bool) -> Tensor<1> {
    let weights = widened(weights);
    let [batch, _, queries, keys] = weights.dims();
    assert!(queries <= keys, "weights of {queries} queries and {keys} keys are none of a self-attention");
    let (mut flags, mut count) = (Vec::with_capacity(batch * queries * keys), 0);
    for (row, query) in (0..batch).flat_map(|row| (keys - queries..keys).map(move |query| (row, query))) {
        let before = flags.len();
        flags.extend((0..keys).map(|key| f32::from(u8::from(pairs(row, query, key)))));
        count += usize::from(flags[before..].contains(&1.0));
    }
    let flags = TensorData::new(flags, [batch, 1, queries, keys]);
    let flags = Tensor::<4>::from_data(flags, (&weights.device(), weights.dtype()));
    per_head(weights * flags) / count as f64
}

/// `[B, H, Q, K] -> [H]`.
fn per_head(x: Tensor<4>) -> Tensor<1> {
    let heads = x.dims()[1];
    x.sum_dim(0).sum_dim(2).sum_dim(3).reshape([heads])
}

fn check(weights: &Tensor<4>, ids: &[Vec<u32>]) {
    let [batch, _, _, keys] = weights.dims();
    let fits = ids.len() == batch && ids.iter().all(|row| row.len() == keys);
    assert!(fits, "ids of {} rows are not [B, K] of the weights {:?}", ids.len(), weights.dims());
}
