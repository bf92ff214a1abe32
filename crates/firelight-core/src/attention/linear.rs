//! Linear attention: the weight of a key is the product of its features with those of the query, and not an exponential,
//! so that the keys and values of the past can be summed before any query is known:
//!
//! ```text
//! output_i = phi(q_i)ᵀ S_i / phi(q_i)ᵀ z_i,   S_i = sum_j phi(k_j) v_jᵀ,   z_i = sum_j phi(k_j),   phi(x) = elu(x) + 1
//! ```
//!
//! with `j` over all keys, or over those up to `i` in the causal form. Random features make an unbiased estimate of softmax attention
//! of it, `phi(x) = exp(ωᵀx - |x|²/2)` for `x` a query or key over the fourth root of its width and random vectors `ω`
//! (Choromanski et al. 2021, §2.3, lemma 1, orthogonal by §2.4, <https://arxiv.org/abs/2009.14794>). Different there: the largest
//! exponent of all keys is taken from each of them, which a stream of keys cannot know; here it is a constant.
//!
//! Source: Katharopoulos et al. 2020, §3.2, features
//! §3.2.1, causal form §3.3, as a recurrence §3.4 (<https://arxiv.org/abs/2006.16236>). Different here: the causal form
//! goes in chunks, pairs within a chunk and sums before it, so that it is a few products and not a step per token. Rotary
//! positions turn queries and keys before the features, which keeps all weights positive; Su et al. 2021, §3.3
//! (<https://arxiv.org/abs/2104.09864>) turn the features.

use crate::heads::product;
use crate::init::ParamBuilder;
use crate::precision::widened;
use burn::module::{Module, Param};
use burn::tensor::activation::relu;
use burn::tensor::{Bool, Tensor};
use firelight_kernels::{AttentionMask, PairRule};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, StandardNormal};

/// Tokens of the causal form whose pairs are formed.
const CHUNK: usize = 64;

/// `[B, G, M, W + 1]` of `M` features: the sums `S`, and `z` as their last column.
type KeyValueSums = Tensor<4>;

/// Attention in linear time and memory where the mask is full or causal, with padded keys or without. Any other mask
/// takes the pairs one by one.
#[derive(Module, Debug)]
pub struct LinearAttention {
    /// `[E, M]`, the vectors of random features, drawn with the weights and never trained. Without them the features are `elu(x) + 1`.
    #[doc(alias = "FAVOR+")]
    pub projections: Option<Param<Tensor<2>>>,
}

impl LinearAttention {
    pub(super) fn new() -> Self {
        Self { projections: None }
    }

    /// With `features` random features of heads of `d_head` channels.
    pub(super) fn random(d_head: usize, features: usize, params: &ParamBuilder) -> Self {
        let drawn = params.drawn("projections", [d_head, features], move |rng| orthogonal(d_head, features, rng));
        Self { projections: Some(drawn.set_require_grad(false)) }
    }

    /// How many features a query or a key of `d_head` channels has.
    pub(super) fn features(&self, d_head: usize) -> usize {
        self.projections.as_ref().map_or(d_head, |projections| projections.dims()[1])
    }

    /// `[B, H, Q, E] -> [B, H, Q, M]`. A factor that all features of a query have in common changes no weight: of random ones the
    /// largest is 1.
    fn of_queries(&self, query: Tensor<4>) -> Tensor<4> {
        let Some(projections) = &self.projections else { return features(query) };
        let exponents = shortened(query).matmul(widened(projections.val()).unsqueeze());
        let largest = exponents.clone().detach().max_dim(3);
        (exponents - largest).exp()
    }

    /// `[B, G, K, E] -> [B, G, K, M]`. All random features have a factor in common that keeps them as far from 0 as from infinity:
    /// `ωᵀx - |x|²/2` is at most `|ω|²/2`.
    fn of_keys(&self, key: Tensor<4>) -> Tensor<4> {
        let Some(projections) = &self.projections else { return features(key) };
        let projections = widened(projections.val());
        let half = projections.clone().square().sum_dim(0).max().reshape([1, 1, 1, 1]) / 4.0;
        let key = shortened(key);
        let square = key.clone().square().sum_dim(3) / 2.0;
        (key.matmul(projections.unsqueeze()) - square - half).exp()
    }

    /// Attends from every query to the keys that it may see; one that sees none gives zeros.
    ///
    /// `past` holds the sums of the tokens before the keys and is brought up to date with them.
    ///
    /// # Shapes
    /// - `query`: `[B, H, Q, E]`, `key`: `[B, G, K, E]`, `value`: `[B, G, K, W]`; output: `[B, H, Q, W]`
    ///
    /// # Panics
    /// If the mask hides single pairs and the keys of the past are gone.
    pub(super) fn forward(
        &self,
        [query, key, value]: [Tensor<4>; 3],
        mask: &AttentionMask,
        past: Option<&mut Option<KeyValueSums>>,
    ) -> Tensor<4> {
        if mask.hidden_pairs().is_some() || !matches!(mask.pair_rule(), PairRule::Full | PairRule::Causal) {
            assert!(
                past.is_none(),
                "a mask of single pairs, as documents make it, needs every key: linear attention that keeps sums of \
                 them cannot tell them apart; use `Transformer::full_cache`"
            );
            return product(self.weights([query, key], mask, None), value);
        }
        let dtype = value.dtype();
        let [query, key, value] = [query, key, value].map(widened); // Sums of many numbers need more digits than half precision has.
        let (query, key, value) = (self.of_queries(query), visible(self.of_keys(key), mask), with_one(value));
        let before = past.as_deref().cloned().flatten();
        let whole = || add(before.clone(), sum(key.clone(), value.clone()));
        if let Some(past) = past {
            *past = Some(whole());
        }
        let sums = if mask.is_causal() { causal([query, key, value], before) } else { product(query, whole()) };
        divide(sums).cast(dtype)
    }

    /// The weights, each formed: what any mask means, the oracle of the linear forms, and what a trace shows. The share of
    /// the tokens in `past` is what a row lacks to 1.
    ///
    /// # Shapes
    /// - `query`: `[B, H, Q, E]`, `key`: `[B, G, K, E]`; output: `[B, H, Q, K]`
    pub(super) fn weights(
        &self,
        [query, key]: [Tensor<4>; 2],
        mask: &AttentionMask,
        past: Option<&KeyValueSums>,
    ) -> Tensor<4> {
        let ([batch, heads, queries, _], keys) = (query.dims(), key.dims()[2]);
        let shape = [batch, heads, queries, keys];
        let dtype = query.dtype();
        let (query, key) = (self.of_queries(widened(query)), self.of_keys(widened(key)));
        let products = product(query.clone(), key.swap_dims(2, 3));
        let products = match mask.all_hidden_pairs(shape, &products.device()) {
            Some(hidden) => products.mask_fill(hidden.expand(shape), 0.0),
            None => products,
        };
        let total = products.clone().sum_dim(3);
        let total = match past {
            Some(sums) => total + product(query, sums.clone().narrow(3, sums.dims()[3] - 1, 1)),
            None => total,
        };
        (products / or_one(total)).cast(dtype)
    }
}

/// A query or key over the fourth root of its width, so that a product of both has that of softmax attention.
fn shortened(x: Tensor<4>) -> Tensor<4> {
    let width = x.dims()[3] as f64;
    x / width.sqrt().sqrt()
}

/// Random vectors of `d_head` numbers, `[E, M]`, of standard normal numbers each, and orthogonal to each other in groups of `d_head`.
fn orthogonal(d_head: usize, features: usize, rng: &mut ChaCha8Rng) -> Vec<f32> {
    let mut normal = || (0..d_head).map(|_| StandardNormal.sample(&mut *rng)).collect::<Vec<f64>>();
    let mut vectors: Vec<Vec<f64>> = Vec::with_capacity(features);
    while vectors.len() < features {
        let begin = vectors.len() / d_head * d_head;
        let direction = orthogonal_part(normal(), &vectors[begin..]);
        let ratio = length(&normal()) / length(&direction);
        vectors.push(direction.into_iter().map(|number| number * ratio).collect());
    }
    (0..d_head).flat_map(|row| vectors.iter().map(move |vector| vector[row] as f32)).collect()
}

/// What of `vector` is orthogonal to the others, which are orthogonal to each other: by Gram and Schmidt, twice, for all digits.
fn orthogonal_part(vector: Vec<f64>, others: &[Vec<f64>]) -> Vec<f64> {
    others.iter().chain(others).fold(vector, |vector, other| {
        let share = dot(&vector, other) / dot(other, other);
        vector.iter().zip(other).map(|(number, other)| number - share * other).collect()
    })
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn length(vector: &[f64]) -> f64 {
    dot(vector, vector).sqrt()
}

/// `elu(x) + 1` without its rounding: `exp(x)` below 0, `x + 1` above.
fn features(x: Tensor<4>) -> Tensor<4> {
    x.clone().clamp_max(0.0).exp() + relu(x)
}

/// Features of 0 where a key is padding: it adds to no sum.
fn visible(key: Tensor<4>, mask: &AttentionMask) -> Tensor<4> {
    let shape @ [batch, _, keys, _] = key.dims();
    match mask.padded_keys() {
        Some(padding) => key.mask_fill(padding.clone().reshape([batch, 1, keys, 1]).expand(shape), 0.0),
        None => key,
    }
}

/// A one behind each value, `[B, G, K, W + 1]`: summed as the values are, it is the sum of the weights.
fn with_one(value: Tensor<4>) -> Tensor<4> {
    let [batch, groups, keys, _] = value.dims();
    let one = Tensor::ones([batch, groups, keys, 1], (&value.device(), value.dtype()));
    Tensor::cat(vec![value, one], 3)
}

/// `[B, G, K, M], [B, G, K, W + 1] -> [B, G, M, W + 1]`.
fn sum(key: Tensor<4>, value: Tensor<4>) -> KeyValueSums {
    key.swap_dims(2, 3).matmul(value)
}

fn add(before: Option<KeyValueSums>, sums: KeyValueSums) -> KeyValueSums {
    match before {
        Some(before) => before + sums,
        None => sums,
    }
}

/// Sums over the keys up to each query, the last query aligned to the last key: `[B, H, Q, W + 1]`.
fn causal([query, key, value]: [Tensor<4>; 3], before: Option<KeyValueSums>) -> Tensor<4> {
    let (queries, keys) = (query.dims()[2], key.dims()[2]);
    if keys == queries {
        return causal_chunks([query, key, value], before);
    }
    let earlier = keys - queries; // These keys are in sight of all queries.
    let part = |x: &Tensor<4>, start, length| x.clone().narrow(2, start, length);
    let sums = sum(part(&key, 0, earlier), part(&value, 0, earlier));
    let (key, value) = (part(&key, earlier, queries), part(&value, earlier, queries));
    causal_chunks([query, key, value], Some(add(before, sums)))
}

/// As [`causal`], with as many keys as queries. In each chunk the queries of a group's heads stand one below the other.
fn causal_chunks([query, key, value]: [Tensor<4>; 3], before: Option<KeyValueSums>) -> Tensor<4> {
    let [batch, heads, length, d_head] = query.dims();
    let [_, groups, _, width] = value.dims();
    let (size, repeats, rows) = (CHUNK.min(length), heads / groups, batch * groups);
    let chunks = length.div_ceil(size);
    let (query, key, value) = (chunked(query, size), chunked(key, size), chunked(value, size)); // [B, H | G, N, C, _]
    let query = query.reshape([batch, groups, repeats, chunks, size, d_head]).swap_dims(2, 3);
    let query = query.reshape([rows, chunks, repeats * size, d_head]);
    let (key, value) = (key.reshape([rows, chunks, size, d_head]), value.reshape([rows, chunks, size, width]));

    let sums = key.clone().swap_dims(2, 3).matmul(value.clone()); // [B G, N, E, W + 1]
    let device = sums.device();
    let before = before.map(|before| before.reshape([rows, 1, d_head, width]));
    let before = before.unwrap_or_else(|| Tensor::zeros([rows, 1, d_head, width], (&device, sums.dtype())));
    let before = Tensor::cat(vec![before, sums], 1).cumsum(1).narrow(1, 0, chunks);

    let shape = [rows * chunks, repeats, size, size];
    let future = Tensor::<2, Bool>::tril_mask([size, size], 0, &device).unsqueeze::<4>().expand(shape);
    let pairs = query.clone().matmul(key.swap_dims(2, 3)).reshape(shape).mask_fill(future, 0.0);
    let within = pairs.reshape([rows, chunks, repeats * size, size]).matmul(value);
    let output = (within + query.matmul(before)).reshape([batch, groups, chunks, repeats, size, width]);
    output.swap_dims(2, 3).reshape([batch, heads, chunks * size, width]).narrow(2, 0, length)
}

/// Whole chunks, the last one filled up with zeros: `[B, H, T, X] -> [B, H, N, C, X]`.
fn chunked(x: Tensor<4>, size: usize) -> Tensor<5> {
    let [batch, heads, length, width] = x.dims();
    let chunks = length.div_ceil(size);
    let missing = chunks * size - length;
    let x = match missing {
        0 => x,
        _ => {
            let zeros = Tensor::zeros([batch, heads, missing, width], (&x.device(), x.dtype()));
            Tensor::cat(vec![x, zeros], 2)
        }
    };
    x.reshape([batch, heads, chunks, size, width])
}

/// Sums of values over the sum of their weights; both are 0 where nothing is seen: `[B, H, Q, W + 1] -> [B, H, Q, W]`.
fn divide(sums: Tensor<4>) -> Tensor<4> {
    let width = sums.dims()[3] - 1;
    sums.clone().narrow(3, 0, width) / or_one(sums.narrow(3, width, 1))
}

fn or_one(total: Tensor<4>) -> Tensor<4> {
    let empty = total.clone().equal_scalar(0.0);
    total.mask_fill(empty, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Distribution, TensorData};
    use firelight_kernels::{Difference, assert_close};

    fn random(shape: [usize; 4], device: &Device) -> Tensor<4> {
        Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
    }

    /// Without random features and with 5 of them, more than a head of 3 channels has.
    fn both(device: &Device) -> [LinearAttention; 2] {
        [LinearAttention::new(), LinearAttention::random(3, 5, &ParamBuilder::new(device, 3))]
    }

    /// The weights times the values.
    fn oracle(layer: &LinearAttention, [query, key, value]: [Tensor<4>; 3], mask: &AttentionMask) -> Tensor<4> {
        product(layer.weights([query, key], mask, None), value)
    }

    fn agree(found: Tensor<4>, expected: Tensor<4>) {
        assert_close(&found, &expected, 2e-6);
    }

    #[test]
    fn two_keys_by_hand() {
        // Features of -ln 2 and 1: a half and 2; of the query 0: 1. (0.5 * 3 + 2 * 6) / 2.5 = 5.4.
        let device = Device::default();
        let column = |values: &[f32]| Tensor::<1>::from_floats(values, &device).reshape([1, 1, values.len(), 1]);
        let (query, key) = (column(&[0.0]), column(&[-std::f32::consts::LN_2, 1.0]));
        let output = LinearAttention::new().forward([query, key, column(&[3.0, 6.0])], &AttentionMask::none(), None);
        assert_close(&output, &TensorData::from([[[[5.4f32]]]]), 1e-5);
    }

    #[test]
    fn the_linear_forms_are_the_weights_times_the_values() {
        let device = Device::default();
        for (length, earlier) in [(1, 0), (5, 0), (63, 0), (64, 0), (65, 0), (130, 0), (1, 70), (70, 3), (128, 64)] {
            let keys = earlier + length;
            let query = random([2, 4, length, 3], &device);
            let (key, value) = (random([2, 2, keys, 3], &device), random([2, 2, keys, 5], &device));
            let padding = AttentionMask::from_lengths(&[keys, keys / 2], keys, &device);
            let masks = [AttentionMask::none(), AttentionMask::causal(), padding.clone()];
            for mask in masks.into_iter().chain([AttentionMask::causal().and(padding)]) {
                for layer in both(&device) {
                    let qkv = [query.clone(), key.clone(), value.clone()];
                    agree(layer.forward(qkv.clone(), &mask, None), oracle(&layer, qkv, &mask));
                }
            }
        }
    }

    #[test]
    fn gradients_of_the_linear_forms_are_those_of_the_weights() {
        let device = Device::default().autodiff();
        let qkv = [[1, 4, 70, 3], [1, 2, 70, 3], [1, 2, 70, 5]].map(|shape| random(shape, &device).require_grad());
        let cotangent = random([1, 4, 70, 5], &device);
        let padding: Vec<bool> = (0..70).map(|token| token < 2 || token == 40).collect();
        let padding = Tensor::<2, Bool>::from_bool(TensorData::new(padding, [1, 70]), &device);
        for mask in [AttentionMask::none(), AttentionMask::causal()] {
            let mask = mask.and(AttentionMask::padding(padding.clone()));
            let gradients = |output: Tensor<4>| {
                let gradients = (output * cotangent.clone()).sum().backward();
                qkv.clone().map(|x| x.grad(&gradients).expect("a gradient").into_data())
            };
            for layer in both(&device) {
                let expected = gradients(oracle(&layer, qkv.clone(), &mask));
                let found = gradients(layer.forward(qkv.clone(), &mask, None));
                for (found, expected) in found.iter().zip(&expected) {
                    assert_close(&found, expected, 1e-5);
                }
            }
        }
    }

    #[test]
    fn a_query_that_sees_nothing_gives_zeros_and_no_gradient() {
        let device = Device::default().autodiff();
        let x = random([2, 1, 3, 4], &device).require_grad();
        for mask in [AttentionMask::none(), AttentionMask::causal()] {
            let mask = mask.and(AttentionMask::from_lengths(&[0, 3], 3, &device));
            let output = LinearAttention::new().forward([x.clone(), x.clone(), x.clone()], &mask, None);
            let gradients = output.clone().sum().backward();
            assert_close(&output.narrow(0, 0, 1), &[0.0; 12], 0.0);
            let gradient = x.grad(&gradients).expect("x requires a gradient");
            assert_close(&gradient.clone().narrow(0, 0, 1), &[0.0; 12], 0.0);
            assert!(Difference::between(&gradient.narrow(0, 1, 1), &[0.0; 12]).absolute.is_normal());
        }
    }

    #[test]
    fn a_long_text_takes_no_square_of_its_length() {
        // All pairs of 65,536 tokens would be 17 GB.
        let x = random([1, 1, 1 << 16, 2], &Device::default());
        let ones = Tensor::ones(x.dims(), &x.device());
        for mask in [AttentionMask::none(), AttentionMask::causal()] {
            let output = LinearAttention::new().forward([x.clone(), x.clone(), ones.clone()], &mask, None);
            assert_close(&output, &ones, 1e-4);
        }
    }

    #[test]
    fn sums_stand_for_the_past() {
        let device = Device::default();
        let [query, key, value] = [[1, 4, 90, 3], [1, 2, 90, 3], [1, 2, 90, 5]].map(|shape| random(shape, &device));
        for (layer, features) in both(&device).into_iter().zip([3, 5]) {
            let whole = oracle(&layer, [query.clone(), key.clone(), value.clone()], &AttentionMask::causal());
            let mut past = None;
            for (start, length) in [(0, 1), (1, 70), (71, 19)] {
                let part = [&query, &key, &value].map(|x| x.clone().narrow(2, start, length));
                let sums: Option<KeyValueSums> = past.clone();
                let output = layer.forward(part.clone(), &AttentionMask::causal(), Some(&mut past));
                agree(output, whole.clone().narrow(2, start, length));
                assert_eq!(past.as_ref().expect("sums").dims(), [1, 2, features, 6]);
                // A trace shows this part's keys; in the first part they are all there are.
                let [query, key, _] = part;
                let weights = layer.weights([query, key], &AttentionMask::causal(), sums.as_ref());
                let total = weights.sum_dim(3).min().into_scalar::<f64>();
                assert!(if start == 0 { (total - 1.0).abs() < 1e-6 } else { total < 0.999 }, "{total}");
            }
        }
    }

    #[test]
    fn two_random_features_by_hand() {
        // Heads of one channel, vectors 1 and -1. The key ln 2 has exponents ln 2 - c and -ln 2 - c with c = (ln 2)²/2: features 2 and
        // 1/2, times exp(-c); the key 0 has features of 1. The query ln 2 has features in the ratio of 4 to 1.
        let device = Device::default();
        let projections = Param::from_tensor(Tensor::<2>::from_floats([[1.0, -1.0]], &device));
        let layer = LinearAttention { projections: Some(projections) };
        let column = |values: &[f32]| Tensor::<1>::from_floats(values, &device).reshape([1, 1, values.len(), 1]);
        let two = std::f32::consts::LN_2;
        let output =
            layer.forward([column(&[two]), column(&[two, 0.0]), column(&[1.0, 0.0])], &AttentionMask::none(), None);
        let first = (4.0 * 2.0 + 0.5) * (-two * two / 2.0).exp();
        assert_close(&output, &TensorData::from([[[[first / (first + 5.0)]]]]), 1e-5);
    }

    #[test]
    fn many_random_features_approach_softmax_attention() {
        let device = Device::default();
        let numbers =
            |count: usize, stream: f32| (0..count).map(|i| (i as f32 * 1.7 + stream).sin() * 0.8).collect::<Vec<_>>();
        let [query, key, value] = [(1.0, 8), (2.0, 8), (3.0, 4)].map(|(stream, width)| {
            Tensor::<4>::from_data(TensorData::new(numbers(12 * width, stream), [1, 2, 6, width]), &device)
        });
        let options = firelight_kernels::AttentionOptions::default().with_mask(AttentionMask::causal());
        let expected = firelight_kernels::attention(query.clone(), key.clone(), value.clone(), &options);
        let error = |features| {
            let layer = LinearAttention::random(8, features, &ParamBuilder::new(&device, 7));
            let found = layer.forward([query.clone(), key.clone(), value.clone()], &AttentionMask::causal(), None);
            (found - expected.clone()).square().mean().into_scalar::<f64>().sqrt()
        };
        // The error of a mean of so many random numbers falls with the root of their number.
        let (few, many) = (error(64), error(16_384));
        assert!(many < 0.01 && many < few / 4.0, "{few} {many}");
    }

    #[test]
    fn random_vectors_are_orthogonal_in_groups_and_as_long_as_normal_ones() {
        let layer = LinearAttention::random(64, 160, &ParamBuilder::new(&Device::default(), 7));
        let vectors = layer.projections.expect("vectors").val();
        let products = vectors.clone().transpose().matmul(vectors).try_into_vec_as::<f32>().unwrap();
        let at = |i: usize, j: usize| products[i * 160 + j];
        for i in 0..160 {
            let others = (0..i).filter(|j| i / 64 == j / 64);
            assert!(others.clone().all(|j| at(i, j).abs() < 1e-3), "vector {i}");
            assert!((20.0..130.0).contains(&at(i, i)), "a square of {}", at(i, i));
        }
        assert!(at(0, 64).abs() > 1e-2, "vectors of two groups are drawn apart");
        let mean = (0..160).map(|i| at(i, i)).sum::<f32>() / 160.0;
        assert!((mean - 64.0).abs() < 4.0, "a mean square of {mean}");
    }

    #[test]
    fn keys_of_any_length_have_finite_features() {
        let device = Device::default();
        let layer = LinearAttention::random(128, 256, &ParamBuilder::new(&device, 0));
        for size in [0.0, 1.0, 4.0, 30.0] {
            let [query, key] = [0, 1].map(|_| random([1, 1, 9, 128], &device) * size);
            let value = random([1, 1, 9, 4], &device);
            let output = layer.forward([query, key, value], &AttentionMask::causal(), None);
            let largest = output.abs().max().into_scalar::<f64>();
            assert!(largest.is_finite(), "{largest} of keys of size {size}");
        }
    }

    #[test]
    #[should_panic(expected = "use `Transformer::full_cache`")]
    fn sums_do_not_distinguish_documents() {
        let device = Device::default();
        let x = random([1, 1, 2, 4], &device);
        let mask = AttentionMask::rule(PairRule::documents(&Tensor::from_ints([[0, 1]], &device)));
        LinearAttention::new().forward([x.clone(), x.clone(), x], &mask, Some(&mut None));
    }
}
