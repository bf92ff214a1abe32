//! Linear attention: the weight of a key is the product of its features with those of the query, and not an exponential,
//! so that the keys and values of the past can be summed before any query is known:
//!
//! ```text
//! output_i = phi(q_i)ᵀ S_i / phi(q_i)ᵀ z_i,   S_i = sum_j phi(k_j) v_jᵀ,   z_i = sum_j phi(k_j),   phi(x) = elu(x) + 1
//! ```
//!
//! with `j` over all keys, or over those up to `i` in the causal form. Source: Katharopoulos et al. 2020, §3.2, features
//! §3.2.1, causal form §3.3, as a recurrence §3.4 (<https://arxiv.org/abs/2006.16236>). Different here: the causal form
//! goes in chunks, pairs within a chunk and sums before it, so that it is a few products and not a step per token. Rotary
//! positions turn queries and keys before the features, which keeps all weights positive; Su et al. 2021, §3.3
//! (<https://arxiv.org/abs/2104.09864>) turn the features.

use burn::module::Module;
use burn::tensor::activation::relu;
use burn::tensor::{Bool, Tensor};
use firelight_kernels::{AttentionMask, PairRule};

/// Tokens of the causal form whose pairs are formed.
const CHUNK: usize = 64;

/// `[B, G, E, W + 1]`: the sums `S`, and `z` as their last column.
type Sums = Tensor<4>;

/// Attention in linear time and memory where the mask is full or causal, with padded keys or without. Any other mask
/// takes the pairs one by one. It has no parameters.
#[derive(Module, Debug)]
pub struct LinearAttention {}

impl LinearAttention {
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
        past: Option<&mut Option<Sums>>,
    ) -> Tensor<4> {
        if mask.hidden_pairs().is_some() || !matches!(mask.pair_rule(), PairRule::Full | PairRule::Causal) {
            assert!(
                past.is_none(),
                "a mask of single pairs, as documents make it, needs every key: linear attention that keeps sums of \
                 them cannot tell them apart; use `Transformer::full_cache`"
            );
            return product(self.weights([query, key], mask, None), value);
        }
        let (query, key, value) = (features(query), visible(features(key), mask), with_one(value));
        let before = past.as_deref().cloned().flatten();
        let whole = || add(before.clone(), sum(key.clone(), value.clone()));
        if let Some(past) = past {
            *past = Some(whole());
        }
        if mask.is_causal() { divide(causal([query, key, value], before)) } else { divide(product(query, whole())) }
    }

    /// The weights, each formed: what any mask means, the oracle of the linear forms, and what a trace shows. The share of
    /// the tokens in `past` is what a row lacks to 1.
    ///
    /// # Shapes
    /// - `query`: `[B, H, Q, E]`, `key`: `[B, G, K, E]`; output: `[B, H, Q, K]`
    pub(super) fn weights(&self, [query, key]: [Tensor<4>; 2], mask: &AttentionMask, past: Option<&Sums>) -> Tensor<4> {
        let ([batch, heads, queries, _], keys) = (query.dims(), key.dims()[2]);
        let shape = [batch, heads, queries, keys];
        let query = features(query);
        let products = product(query.clone(), features(key).swap_dims(2, 3));
        let products = match mask.all_hidden_pairs(shape, &products.device()) {
            Some(hidden) => products.mask_fill(hidden.expand(shape), 0.0),
            None => products,
        };
        let total = products.clone().sum_dim(3);
        let total = match past {
            Some(sums) => total + product(query, sums.clone().narrow(3, sums.dims()[3] - 1, 1)),
            None => total,
        };
        products / or_one(total)
    }
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

/// `[B, G, K, E], [B, G, K, W + 1] -> [B, G, E, W + 1]`.
fn sum(key: Tensor<4>, value: Tensor<4>) -> Sums {
    key.swap_dims(2, 3).matmul(value)
}

fn add(before: Option<Sums>, sums: Sums) -> Sums {
    match before {
        Some(before) => before + sums,
        None => sums,
    }
}

/// The product of each head with the matrix of its group: `[B, H, Q, X], [B, G, X, Y] -> [B, H, Q, Y]`.
fn product(weights: Tensor<4>, value: Tensor<4>) -> Tensor<4> {
    let [batch, heads, queries, keys] = weights.dims();
    let [_, groups, _, width] = value.dims();
    let weights = weights.reshape([batch, groups, heads / groups * queries, keys]);
    weights.matmul(value).reshape([batch, heads, queries, width])
}

/// Sums over the keys up to each query, the last query aligned to the last key: `[B, H, Q, W + 1]`.
fn causal([query, key, value]: [Tensor<4>; 3], before: Option<Sums>) -> Tensor<4> {
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
fn causal_chunks([query, key, value]: [Tensor<4>; 3], before: Option<Sums>) -> Tensor<4> {
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

    /// The weights times the values.
    fn oracle([query, key, value]: [Tensor<4>; 3], mask: &AttentionMask) -> Tensor<4> {
        product(LinearAttention {}.weights([query, key], mask, None), value)
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
        let output = LinearAttention {}.forward([query, key, column(&[3.0, 6.0])], &AttentionMask::none(), None);
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
                let qkv = [query.clone(), key.clone(), value.clone()];
                agree(LinearAttention {}.forward(qkv.clone(), &mask, None), oracle(qkv, &mask));
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
            let expected = gradients(oracle(qkv.clone(), &mask));
            let found = gradients(LinearAttention {}.forward(qkv.clone(), &mask, None));
            for (found, expected) in found.iter().zip(&expected) {
                assert_close(&found, expected, 1e-5);
            }
        }
    }

    #[test]
    fn a_query_that_sees_nothing_gives_zeros_and_no_gradient() {
        let device = Device::default().autodiff();
        let x = random([2, 1, 3, 4], &device).require_grad();
        for mask in [AttentionMask::none(), AttentionMask::causal()] {
            let mask = mask.and(AttentionMask::from_lengths(&[0, 3], 3, &device));
            let output = LinearAttention {}.forward([x.clone(), x.clone(), x.clone()], &mask, None);
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
            let output = LinearAttention {}.forward([x.clone(), x.clone(), ones.clone()], &mask, None);
            assert_close(&output, &ones, 1e-4);
        }
    }

    #[test]
    fn sums_stand_for_the_past() {
        let device = Device::default();
        let [query, key, value] = [[1, 4, 90, 3], [1, 2, 90, 3], [1, 2, 90, 5]].map(|shape| random(shape, &device));
        let whole = oracle([query.clone(), key.clone(), value.clone()], &AttentionMask::causal());
        let mut past = None;
        for (start, length) in [(0, 1), (1, 70), (71, 19)] {
            let part = [&query, &key, &value].map(|x| x.clone().narrow(2, start, length));
            let sums: Option<Sums> = past.clone();
            let output = LinearAttention {}.forward(part.clone(), &AttentionMask::causal(), Some(&mut past));
            agree(output, whole.clone().narrow(2, start, length));
            assert_eq!(past.as_ref().expect("sums").dims(), [1, 2, 3, 6]);
            // A trace shows this part's keys; in the first part they are all there are.
            let [query, key, _] = part;
            let weights = LinearAttention {}.weights([query, key], &AttentionMask::causal(), sums.as_ref());
            let total = weights.sum_dim(3).min().into_scalar::<f64>();
            assert!(if start == 0 { (total - 1.0).abs() < 1e-6 } else { total < 0.999 }, "{total}");
        }
    }

    #[test]
    #[should_panic(expected = "use `Transformer::full_cache`")]
    fn sums_do_not_distinguish_documents() {
        let device = Device::default();
        let x = random([1, 1, 2, 4], &device);
        let mask = AttentionMask::rule(PairRule::documents(&Tensor::from_ints([[0, 1]], &device)));
        LinearAttention {}.forward([x.clone(), x.clone(), x], &mask, Some(&mut None));
    }
}
