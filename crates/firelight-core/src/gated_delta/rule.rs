//! The gated delta rule, chunk by chunk.
//!
//! Of the tokens `1 .. C` of a chunk, `b_i` the sum of the logarithms of decay up to `i`, `S` the state before it, with queries, keys
//! and values as rows:
//!
//! ```text
//! A_ij = beta_i exp(b_i - b_j) k_i k_jᵀ  for j < i,     X = (I + A)⁻¹ [beta v | beta exp(b) k] = [U | W]
//! written = U - W S,     output_i = exp(b_i) q_i S + sum_{j <= i} exp(b_i - b_j) q_i k_jᵀ written_j
//! S' = exp(b_C) S + sum_j exp(b_C - b_j) k_jᵀ written_j
//! ```
//!
//! Source: Yang et al. 2024, "Gated Delta Networks", §3.3 (<https://arxiv.org/abs/2412.06464>), after Yang et al. 2024,
//! "Parallelizing Linear Transformers with the Delta Rule", §3.2 (<https://arxiv.org/abs/2406.06484>). Different here: their
//! `S` is the transpose; of all chunks the states come first, by a [`linear_recurrence`], and then all outputs at once.

use burn::tensor::Tensor;
use firelight_kernels::linear_recurrence;

/// Tokens of a chunk.
const CHUNK: usize = 64;

/// Tokens of a chunk of a text of `length`.
fn chunk(length: usize) -> usize {
    CHUNK.min(length.next_power_of_two())
}

/// What every token brings, in single precision: `[B, T, H, _]`.
pub(super) struct Tokens {
    /// `[B, T, H, E]`.
    pub(super) query: Tensor<4>,
    /// `[B, T, H, E]`, of length 1.
    pub(super) key: Tensor<4>,
    /// `[B, T, H, W]`.
    pub(super) value: Tensor<4>,
    /// `beta`, `[B, T, H]`: how much of what the state holds for the key gives way to the value.
    pub(super) strength: Tensor<3>,
    /// `[B, T, H]`, at most 0: the logarithm of what is kept of the state.
    pub(super) log_decay: Tensor<3>,
}

/// Reads the tokens in turn into the state, from `initial_state`, `[B, H, E, W]`, zeros where there is none. Returns what their queries
/// find, `[B, T, H, W]`, and the state after them.
pub(super) fn gated_delta_rule(tokens: Tokens, initial_state: Option<Tensor<4>>) -> (Tensor<4>, Tensor<4>) {
    let [batch, length, heads, width] = tokens.value.dims();
    let d_key = tokens.key.dims()[3];
    // Burn 0.22.1 computes a wrong gradient of the keys on wgpu where a chunk has one token.
    let size = chunk(length).max(if tokens.key.is_autodiff() { 2 } else { 1 });
    let (rows, like) = (batch * heads, (tokens.key.device(), tokens.key.dtype()));
    let chunks = length.div_ceil(size);
    let [query, key, value] = [tokens.query, tokens.key, tokens.value].map(|x| chunked(x, size)); // [N R, C, E | W]
    let [strength, log_decay] = [tokens.strength, tokens.log_decay].map(|x| chunked(x.unsqueeze_dim(3), size)); // [N R, C, 1]
    let decay = Decay::new(log_decay);

    let erased = key.clone() * strength.clone();
    let pairs = |x: Tensor<3>| x.matmul(key.clone().transpose()) * decay.pairs.clone(); // [N R, C, C]
    let system = pairs(erased.clone()) * ones_below(-1, &erased);
    let inverse = inverse(system);
    let [written, erased] = [value * strength, erased * decay.since_begin.clone()].map(|x| inverse.clone().matmul(x)); // [N R, C, W | E]

    let into_state = (key.clone() * decay.to_end).transpose(); // [N R, E, C]
    let [inputs, lost] = [&written, &erased].map(|x| into_state.clone().matmul(x.clone())); // [N R, E, W | E]
    let transitions = identity(&lost) * decay.whole - lost;
    let initial_state = initial_state.unwrap_or_else(|| Tensor::zeros([batch, heads, d_key, width], (&like.0, like.1)));
    let of_chunks = |x: Tensor<3>| {
        let [_, height, width] = x.dims();
        x.reshape([chunks, rows, height, width])
    };
    let initial_state = initial_state.reshape([rows, d_key, width]);
    let states = linear_recurrence(of_chunks(transitions), of_chunks(inputs), initial_state); // [N + 1, R, E, W]
    let final_state = states.clone().narrow(0, chunks, 1);
    let states = states.narrow(0, 0, chunks).reshape([chunks * rows, d_key, width]);

    let written = written - erased.matmul(states.clone());
    let output = (query.clone() * decay.since_begin).matmul(states) + pairs(query).matmul(written);
    (in_order(output, [batch, length, heads]), final_state.reshape([batch, heads, d_key, width]))
}

/// Floating point operations of one token of a head: all products above but those inside of the inverse, which are a third of two
/// that it has part in.
pub(super) fn flops_per_token(length: usize, d_key: usize, d_value: usize) -> f64 {
    let [chunk, key, value] = [chunk(length), d_key, d_value].map(|number| number as f64);
    let with_pairs = chunk * (3.0 * key + 2.0 * value + 2.0 * chunk);
    let with_state = key * (key + 3.0 * value) + key * key * value / chunk;
    2.0 * (with_pairs + with_state)
}

/// Numbers that one token of a head keeps for the backward pass: seven matrices of pairs, namely the decay and its exponential, the inverse
/// and what it is found by, the pairs of keys, and those of queries with and without decay; seven vectors of the width of a key, four
/// of a value; its share of the transition and the state of its chunk.
pub(super) fn activations_per_token(length: usize, d_key: usize, d_value: usize) -> usize {
    let chunk = chunk(length);
    let states = d_key.saturating_mul(d_key.saturating_add(d_value)).div_ceil(chunk);
    7 * chunk + 7 * d_key + 4 * d_value + states
}

/// What is left of the state from one token of a chunk to another.
struct Decay {
    /// `[R, C, C]`: from token `j` to `i`, 0 where `i` comes before.
    pairs: Tensor<3>,
    /// `[R, C, 1]`: from the beginning of the chunk to each token.
    since_begin: Tensor<3>,
    /// `[R, C, 1]`: from each token to the end.
    to_end: Tensor<3>,
    /// `[R, 1, 1]`: from the beginning to the end.
    whole: Tensor<3>,
}

impl Decay {
    /// `log_decay` is `[R, C, 1]`. The logarithms between two tokens are summed, and not the difference of sums from the begin: so
    /// a token that keeps nothing costs those behind it no digits. The sum is a product, because a `cumsum` takes one thread.
    fn new(log_decay: Tensor<3>) -> Self {
        let size = log_decay.dims()[1];
        let all = ones_below(0, &log_decay);
        let between = all.clone().matmul(log_decay.clone() * ones_below(-1, &log_decay));
        let pairs = between.exp() * all;
        let since_begin = log_decay.cumsum(1).exp();
        Self {
            to_end: pairs.clone().narrow(1, size - 1, 1).transpose(),
            whole: since_begin.clone().narrow(1, size - 1, 1),
            pairs,
            since_begin,
        }
    }
}

/// `[1, C, C]`, ones from the diagonal `offset` down and zeros above, for tokens `[R, C, _]`.
fn ones_below(offset: i64, like: &Tensor<3>) -> Tensor<3> {
    let size = like.dims()[1];
    Tensor::<2>::ones([size, size], (&like.device(), like.dtype())).tril(offset).unsqueeze()
}

/// `(I + a)⁻¹` of strictly lower triangular matrices, `[R, C, C]`, `C` a power of two.
///
/// The inverse itself is computed apart from the graph. One step of Newton's method from it, `Z + Z (I - (I + a) Z)`, is the same
/// number, and has the right derivative, `-Z da Z`, in two products.
fn inverse(a: Tensor<3>) -> Tensor<3> {
    let found = inverse_by_halves(a.clone().detach());
    let error = identity(&a) - found.clone() - a.matmul(found.clone());
    found.clone() + found.matmul(error)
}

/// By the inverses of both halves of the diagonal: `[[P, 0], [L, Q]]⁻¹ = [[P⁻¹, 0], [-Q⁻¹ L P⁻¹, Q⁻¹]]`. A product of powers of `a`
/// would be shorter and lose all digits where keys are alike: its terms grow as binomials.
fn inverse_by_halves(a: Tensor<3>) -> Tensor<3> {
    let [rows, size, _] = a.dims();
    if size <= 2 {
        return identity(&a) - a;
    }
    let half = size / 2;
    let part = |row, column| a.clone().narrow(1, row, half).narrow(2, column, half);
    let both = inverse_by_halves(Tensor::cat(vec![part(0, 0), part(half, half)], 0));
    let (first, second) = (both.clone().narrow(0, 0, rows), both.narrow(0, rows, rows));
    let below = second.clone().matmul(part(half, 0)).matmul(first.clone()).neg();
    let above = Tensor::cat(vec![first.clone(), first.zeros_like()], 2);
    Tensor::cat(vec![above, Tensor::cat(vec![below, second], 2)], 1)
}

/// `[1, C, C]`.
fn identity(like: &Tensor<3>) -> Tensor<3> {
    ones_below(0, like) - ones_below(-1, like)
}

/// Whole chunks, the last one filled up with zeros: `[B, T, H, X] -> [N B H, C, X]`.
fn chunked(x: Tensor<4>, size: usize) -> Tensor<3> {
    let [batch, length, heads, width] = x.dims();
    let chunks = length.div_ceil(size);
    let missing = chunks * size - length;
    let x = match missing {
        0 => x,
        _ => Tensor::cat(vec![x.clone(), Tensor::zeros([batch, missing, heads, width], (&x.device(), x.dtype()))], 1),
    };
    let x = x.reshape([batch, chunks, size, heads, width]).permute([1, 0, 3, 2, 4]); // [N, B, H, C, X]
    x.reshape([chunks * batch * heads, size, width])
}

/// `[N B H, C, X] -> [B, T, H, X]`.
fn in_order(x: Tensor<3>, [batch, length, heads]: [usize; 3]) -> Tensor<4> {
    let [rows, size, width] = x.dims();
    let chunks = rows / (batch * heads);
    let x = x.reshape([chunks, batch, heads, size, width]).permute([1, 0, 3, 2, 4]); // [B, N, C, H, X]
    x.reshape([batch, chunks * size, heads, width]).narrow(1, 0, length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::activation::sigmoid;
    use burn::tensor::{Bool, Device, Distribution, TensorData};
    use firelight_kernels::assert_close;

    /// The definition, token by token: the state decays, and gives `strength` of what it holds for the key in exchange for the value.
    fn token_by_token(tokens: Tokens, initial_state: Option<Tensor<4>>) -> (Tensor<4>, Tensor<4>) {
        let [batch, length, heads, width] = tokens.value.dims();
        let d_key = tokens.key.dims()[3];
        let column = |x: &Tensor<4>, t| {
            let [_, _, _, width] = x.dims();
            x.clone().narrow(1, t, 1).reshape([batch, heads, width, 1])
        };
        let number = |x: &Tensor<3>, t| x.clone().narrow(1, t, 1).reshape([batch, heads, 1, 1]);
        let mut state =
            initial_state.unwrap_or_else(|| Tensor::zeros([batch, heads, d_key, width], &tokens.key.device()));
        let outputs = (0..length).map(|t| {
            let kept = number(&tokens.log_decay, t).exp();
            let (query, key, value) = (column(&tokens.query, t), column(&tokens.key, t), column(&tokens.value, t));
            let decayed = state.clone() * kept;
            let held = decayed.clone().transpose().matmul(key.clone()); // [B, H, W, 1]
            let change = (value - held) * number(&tokens.strength, t);
            state = decayed + key.matmul(change.transpose());
            state.clone().transpose().matmul(query).reshape([batch, 1, heads, width])
        });
        (Tensor::cat(outputs.collect(), 1), state)
    }

    /// Leaves of tokens, `[B, T, H, _]`.
    fn random([batch, length, heads, d_key, width]: [usize; 5], device: &Device) -> [Tensor<4>; 5] {
        [d_key, d_key, width, 1, 1]
            .map(|width| Tensor::random([batch, length, heads, width], Distribution::Normal(0.0, 1.0), device))
    }

    /// The tokens made of leaves. Nothing is kept where one of `every` begins a document.
    fn tokens([query, key, value, strength, decay]: [Tensor<4>; 5], every: Option<usize>) -> Tokens {
        let shape @ [_, length, _, _] = decay.dims();
        let starts = |every| {
            let flags = (0..length).map(|i| i % every == 0).collect::<Vec<_>>();
            let flags = Tensor::<1, Bool>::from_bool(TensorData::new(flags, [length]), &decay.device());
            flags.reshape([1, length, 1, 1]).expand(shape)
        };
        let log_decay = decay.clone().square().neg();
        let log_decay = every.map_or(log_decay.clone(), |every| log_decay.mask_fill(starts(every), -1e30));
        Tokens {
            query,
            key: key.clone() / key.square().sum_dim(3).sqrt(),
            value,
            strength: sigmoid(strength * 2.0).squeeze_dim(3),
            log_decay: log_decay.squeeze_dim(3),
        }
    }

    #[test]
    fn two_tokens_by_hand() {
        // Keys [1, 0] and [.6, .8], values 2 and 1, strengths .5 and 1, all kept and then a half. The state is [1, 0], then
        // decays to [.5, 0]; for the second key it holds .3, and the change of .7 makes it [.92, .56].
        let device = Device::default();
        let rows = |rows: [[f32; 2]; 2]| Tensor::<2>::from_floats(rows, &device).reshape([1, 2, 1, 2]);
        let numbers = |numbers: [f32; 2]| Tensor::<1>::from_floats(numbers, &device).reshape([1, 2, 1]);
        let tokens = Tokens {
            query: rows([[1.0, 1.0], [1.0, -1.0]]),
            key: rows([[1.0, 0.0], [0.6, 0.8]]),
            value: numbers([2.0, 1.0]).unsqueeze_dim(3),
            strength: numbers([0.5, 1.0]),
            log_decay: numbers([0.0, -std::f32::consts::LN_2]),
        };
        let (output, state) = gated_delta_rule(tokens, None);
        assert_close(&output, &[1.0, 0.36], 1e-6);
        assert_close(&state, &[0.92, 0.56], 1e-6);
    }

    #[test]
    fn chunks_are_the_tokens_in_turn() {
        let device = Device::default();
        for length in [1, 2, 3, 7, 32, 33, 63, 64, 65, 100, 127, 128, 129, 192, 200] {
            for document in [None, Some(5), Some(64), Some(90)] {
                let leaves = random([2, length, 3, 4, 5], &device);
                let initial_state = Tensor::random([2, 3, 4, 5], Distribution::Normal(0.0, 1.0), &device);
                for initial_state in [None, Some(initial_state)] {
                    let (expected, expected_state) =
                        token_by_token(tokens(leaves.clone(), document), initial_state.clone());
                    let (found, state) = gated_delta_rule(tokens(leaves.clone(), document), initial_state);
                    assert_close(&found, &expected, 2e-5);
                    assert_close(&state, &expected_state, 2e-5);
                }
            }
        }
    }

    #[test]
    fn gradients_of_chunks_are_those_of_the_tokens_in_turn() {
        let device = Device::default().autodiff();
        for (length, document) in [(1, None), (6, None), (64, Some(10)), (130, None), (200, Some(70))] {
            let leaves = random([1, length, 2, 4, 3], &device).map(Tensor::require_grad);
            let initial_state = Tensor::random([1, 2, 4, 3], Distribution::Normal(0.0, 1.0), &device).require_grad();
            let cotangent = Tensor::random([1, length, 2, 3], Distribution::Normal(0.0, 1.0), &device);
            let gradients = |(output, state): (Tensor<4>, Tensor<4>)| {
                let gradients = ((output * cotangent.clone()).sum() + state.powi_scalar(2).sum()).backward();
                let leaves = leaves.iter().chain([&initial_state]);
                leaves.map(|leaf| leaf.grad(&gradients).expect("a gradient").into_data()).collect::<Vec<_>>()
            };
            let expected = gradients(token_by_token(tokens(leaves.clone(), document), Some(initial_state.clone())));
            let found = gradients(gated_delta_rule(tokens(leaves.clone(), document), Some(initial_state.clone())));
            for (found, expected) in found.iter().zip(&expected) {
                assert_close(found, expected, 1e-4);
            }
        }
    }

    #[test]
    fn equal_keys_lose_no_digits() {
        // The system is all ones below the diagonal, whose powers are binomials up to 1e17.
        let device = Device::default();
        let number = |number: f32| Tensor::<3>::full([1, 128, 1], number, &device);
        let values = Tensor::<4>::random([1, 128, 1, 2], Distribution::Normal(0.0, 1.0), &device);
        let key = Tensor::<4>::from_floats([[[[0.6, 0.8]]]], &device).expand([1, 128, 1, 2]);
        let [strength, log_decay] = [number(1.0), number(0.0)];
        let tokens = Tokens { query: key.clone(), key, value: values.clone(), strength, log_decay };
        assert_close(&gated_delta_rule(tokens, None).0, &values, 1e-5); // Each takes the place of the one before it.
    }

    #[test]
    fn a_strong_decay_overflows_nowhere() {
        let device = Device::default().autodiff();
        let leaves = random([1, 70, 1, 2, 2], &device).map(Tensor::require_grad);
        let decaying = || {
            let log_decay = leaves[4].clone().squeeze_dim::<3>(3).abs() * -1e4;
            Tokens { log_decay, ..tokens(leaves.clone(), None) }
        };
        let (output, _) = gated_delta_rule(decaying(), None);
        assert_close(&output, &token_by_token(decaying(), None).0, 1e-5);
        let gradients = output.sum().backward();
        for leaf in &leaves {
            let sum = leaf.grad(&gradients).expect("a gradient").sum().into_scalar::<f32>();
            assert!(sum.is_finite(), "{sum}");
        }
    }
}
