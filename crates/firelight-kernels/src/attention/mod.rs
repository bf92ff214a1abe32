//! Scaled dot-product attention: `softmax(query keyᵀ / sqrt(E) + bias) value`, hidden pairs left out.
//!
//! Source: Vaswani et al. 2017, §3.2.1, eq. 1 (<https://arxiv.org/abs/1706.03762>); grouped key/value heads:
//! Ainslie et al. 2023, §2.2 (<https://arxiv.org/abs/2305.13245>); soft cap of the scores: Gemma Team 2024, §2
//! (<https://arxiv.org/abs/2408.00118>); a trained score that no value belongs to in the denominator of the softmax, the
//! attention sink: gpt-oss (OpenAI 2025, §2, <https://arxiv.org/abs/2508.10925>).
//!
//! Order: scale, soft cap, bias, hidden pairs, softmax over the keys and the sink. As in Burn's fused operation the bias is added after the cap and
//! is not bounded by it; a hidden pair stays hidden whatever its bias.

#[cfg(feature = "extension")]
mod blocks;
// A test lists Burn's ndarray backend, too.
#[cfg(feature = "extension")]
#[cfg_attr(test, allow(deprecated))]
#[allow(clippy::too_many_arguments)] // Burn's dispatch takes tensors one by one.
mod extension;
#[cfg(feature = "flex")]
mod flex;
#[cfg(all(test, feature = "flex"))]
mod fused_tests;
mod mask;
mod options;
mod reference;
#[cfg(feature = "extension")]
mod tiles;
#[cfg(all(test, feature = "extension"))]
mod visits;
mod weights;

pub use mask::AttentionMask;
pub use options::AttentionOptions;
pub use weights::{attention_from_scores, attention_with_weights};

#[cfg(feature = "flex")]
use crate::half::{in_single, is_half};
use crate::path::check_types;
use burn::tensor::{DType, FloatDType, Tensor};
use options::check_options;

/// Attends from every query to the keys that it may see and returns the weighted mean of their values.
///
/// Query head `h` reads key/value head `h / (H / G)`, in place: grouped heads are never repeated in memory.
/// A query that sees no key returns zeros and sends no gradient back. On the fused path memory is linear in the number of
/// tokens.
///
/// Keys and values may be of half precision beside a query of single precision, as a cache has them. The fused path of the CPU reads
/// `bf16` as it lies, if there is no autodiff; elsewhere they are cast first. From 32 queries of `bf16` on, without autodiff, a processor with
/// tile registers multiplies them as they are, and weights in two parts of `bf16`, which miss at most `2^-17` of a weight; infinite values
/// may become NaN there.
///
/// # Shapes
/// - `query`: `[B, H, Q, E]`, `key`: `[B, G, K, E]`, `value`: `[B, G, K, F]`, `H` a multiple of `G`
/// - output: `[B, H, Q, F]`
///
/// # Panics
/// If the shapes do not fit together, `dropout` is outside `[0, 1)`, `soft_cap` is not above 0,
/// a rule has more queries than positions up to the last key, or the tensors hold numbers of several other types.
#[doc(alias = "FlashAttention")]
#[doc(alias = "scaled_dot_product_attention")]
pub fn attention(query: Tensor<4>, key: Tensor<4>, value: Tensor<4>, options: &AttentionOptions) -> Tensor<4> {
    check(&query, &key, &value, options);
    #[cfg(feature = "flex")]
    if is_half(&query) {
        let options = options.widened();
        return match multiplies_halves([&query, &key, &value]) {
            true => crate::cast(in_its_type(query, key, value, &options), FloatDType::BF16),
            false => in_single(query, |query| in_its_type(query, key, value, &options)),
        };
    }
    in_its_type(query, key, value, options)
}

/// Attention in the type of the query, or, of `bf16` that tile registers multiply, in `f32`.
fn in_its_type(query: Tensor<4>, key: Tensor<4>, value: Tensor<4>, options: &AttentionOptions) -> Tensor<4> {
    let [key, value] = readable(&query, [key, value]);
    #[cfg(feature = "extension")]
    if crate::path::log_path("attention", is_fused(&query, &key, &value, options)) {
        let settings = extension::Settings::new(options, &query);
        return extension::attention([query, key, value], options, settings);
    }
    reference::mean(reference::weights(query, key, options), value)
}

#[cfg(feature = "extension")]
fn is_fused(query: &Tensor<4>, key: &Tensor<4>, value: &Tensor<4>, options: &AttentionOptions) -> bool {
    #[cfg(feature = "flex")]
    if reads_as_it_lies(query, [key, value]) {
        return options.bias.iter().all(crate::path::is_fused) && options.sinks.iter().all(crate::path::is_fused);
    }
    let tensors = [Some(query), Some(key), Some(value), options.bias.as_ref()];
    tensors.into_iter().flatten().all(crate::path::is_fused) && options.sinks.iter().all(crate::path::is_fused)
}

/// Keys and values in the type of the query, unless kernels read them as they lie.
fn readable(query: &Tensor<4>, tensors: [Tensor<4>; 2]) -> [Tensor<4>; 2] {
    #[cfg(feature = "flex")]
    if reads_as_it_lies(query, tensors.each_ref()) {
        return tensors;
    }
    in_type_of(query, tensors)
}

/// Whether the kernels of the CPU read keys and values of `bf16`: beside queries of `f32` widened tile by tile, beside those of `bf16` as they are.
#[cfg(feature = "flex")]
fn reads_as_it_lies(query: &Tensor<4>, tensors: [&Tensor<4>; 2]) -> bool {
    let is_known = matches!(query.dtype(), DType::F32 | DType::BF16);
    let is_here = is_known && crate::path::is_fused_on_cpu_in_any_type(query) && !query.device().is_autodiff();
    is_here && tensors.iter().all(|x| x.dtype() == DType::BF16 && x.shape().num_elements() > 0)
}

/// Whether queries, keys and values are of `bf16` and multiplied as they are.
#[cfg(feature = "flex")]
fn multiplies_halves([query, key, value]: [&Tensor<4>; 3]) -> bool {
    query.dtype() == DType::BF16 && reads_as_it_lies(query, [key, value]) && flex::multiplies_halves(query.dims()[2])
}

/// Keys and values in the type of the query.
fn in_type_of(query: &Tensor<4>, tensors: [Tensor<4>; 2]) -> [Tensor<4>; 2] {
    let dtype = query.dtype();
    tensors.map(|x| if x.dtype() == dtype { x } else { crate::cast(x, FloatDType::from(dtype)) })
}

fn check(query: &Tensor<4>, key: &Tensor<4>, value: &Tensor<4>, options: &AttentionOptions) {
    let ([batch, heads, _, d_head], [key_batch, groups, keys, key_d]) = (query.dims(), key.dims());
    let [value_batch, value_groups, values, _] = value.dims();
    assert!(
        batch == key_batch && d_head == key_d && heads.is_multiple_of(groups),
        "attention: query {:?} and key {:?} do not fit: equal batch and head size are needed, and query heads that are \
         a multiple of the key heads",
        query.dims(),
        key.dims()
    );
    assert!(
        [value_batch, value_groups, values] == [batch, groups, keys],
        "attention: key {:?} and value {:?} differ in batch, heads or length",
        key.dims(),
        value.dims()
    );
    check_options([batch, heads, query.dims()[2], keys], options);
    let types = [("query", query), ("key", key), ("value", value)].map(|(name, tensor)| (name, Some(tensor.dtype())));
    let are_narrow = query.dtype() == DType::F32 && matches!(key.dtype(), DType::F16 | DType::BF16);
    let (computed, stored) = types.split_at(if are_narrow { 1 } else { 3 });
    check_types("attention", &[computed, &options.types()].concat());
    check_types("attention", stored);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Difference, assert_close};
    use burn::tensor::{Bool, Device, Distribution, TensorData};

    pub(super) fn rows<const N: usize, const M: usize>(values: [[f32; M]; N], device: &Device) -> Tensor<4> {
        Tensor::<2>::from_floats(values, device).unsqueeze()
    }

    #[cfg(feature = "flex")]
    #[test]
    fn many_queries_of_half_precision_are_rounded_once() {
        let case = crate::testing::Case::plain();
        let device = Device::flex();
        let tensors = [([2, 4, 40, 24], 1), ([2, 2, 70, 24], 2), ([2, 2, 70, 20], 3)].map(|(shape, seed)| {
            let numbers = crate::testing::random::<4>(&case, shape, seed).into_data();
            Tensor::<4>::from_data(numbers, (&device, DType::BF16))
        });
        let options = AttentionOptions::default().with_mask(AttentionMask::causal());
        let by = |dtype: FloatDType| {
            let [query, key, value] = tensors.clone().map(|tensor| tensor.cast(dtype));
            attention(query, key, value, &options)
        };
        let (half, single) = (by(FloatDType::BF16), by(FloatDType::F32));
        assert_eq!(half.dtype(), DType::BF16);
        let (half, single) = (half.into_data(), single.into_data());
        assert_eq!(half.shape(), single.shape());
        for (found, expected) in half.iter::<f32>().zip(single.iter::<f32>()) {
            let allowed = 1.01 * 2f32.powi(-8) * expected.abs() + 2e-5; // Half a unit of the last place.
            assert!((found - expected).abs() <= allowed, "{found} {expected}");
        }
    }

    #[test]
    fn worked_self_attention() {
        // Unscaled dot products of x = [1, 0], [.8, .6], [0, 1] with themselves; the middle row by hand:
        // exp(.8), exp(1), exp(.6) = 2.2255, 2.7183, 1.8221 -> weights .3289, .4018, .2693.
        let device = Device::default();
        let x = rows([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], &device);
        let options = AttentionOptions::default().with_scale(Some(1.0));
        let (output, weights) = attention_with_weights(x.clone(), x.clone(), x, &options);
        let middle = output.slice([0..1, 0..1, 1..2, 0..2]).into_data();
        let expected = TensorData::from([[[[0.6503f32, 0.5104]]]]);
        assert_close(&middle, &expected, 1e-4);
        let expected = TensorData::from([[[[0.3289f32, 0.4018, 0.2693]]]]);
        assert_close(&weights.narrow(2, 1, 1), &expected, 1e-4);
    }

    #[test]
    fn a_soft_look_up() {
        // Scores .9, .1, .7, -.9 of the query with the keys; exponentials 2.4596, 1.1052, 2.0138, .4066; sum 5.9851.
        let device = Device::default();
        let query = rows([[0.9, 0.1]], &device);
        let key = rows([[1.0, 0.0], [0.0, 1.0], [0.7, 0.7], [-1.0, 0.0]], &device);
        let value = rows([[10.0, 20.0], [30.0, 40.0], [15.0, 25.0], [50.0, 60.0]], &device);
        let options = AttentionOptions::default().with_scale(Some(1.0));
        let (output, weights) = attention_with_weights(query, key, value, &options);
        let expected = TensorData::from([[[[0.4110f32, 0.1847, 0.3365, 0.0679]]]]);
        assert_close(&weights, &expected, 1e-4);
        let expected = TensorData::from([[[[18.09f32, 28.09]]]]);
        assert_close(&output, &expected, 1e-2);
    }

    #[test]
    fn a_fully_hidden_query_gives_zeros_and_no_gradient() {
        let device = Device::default().autodiff();
        let x = Tensor::<4>::random([2, 1, 3, 4], Distribution::Default, &device).require_grad();
        let padding = Tensor::<2, Bool>::from_bool([[true, true, true], [false, false, true]], &device);
        let options = AttentionOptions::default().with_mask(AttentionMask::padding(padding));
        let output = attention(x.clone(), x.clone(), x.clone(), &options);
        let grads = output.clone().sum().backward();
        let gradient = x.grad(&grads).expect("x requires a gradient");
        let [hidden, shown] = [0, 1].map(|row| gradient.clone().narrow(0, row, 1));
        assert_close(&output.narrow(0, 0, 1), &[0.0; 12], 0.0);
        assert_close(&hidden, &[0.0; 12], 0.0);
        assert!(Difference::between(&shown, &[0.0; 12]).absolute.is_normal());
    }

    #[test]
    fn grouped_heads_equal_repeated_heads() {
        let device = Device::default();
        let random = |shape: [usize; 4]| Tensor::<4>::random(shape, Distribution::Default, &device);
        let (query, key, value) = (random([2, 4, 3, 8]), random([2, 2, 5, 8]), random([2, 2, 5, 6]));
        let repeat = |x: Tensor<4>| {
            let [b, g, k, e] = x.dims();
            x.reshape([b, g, 1, k * e]).repeat_dim(2, 2).reshape([b, 2 * g, k, e])
        };
        let options = AttentionOptions::default().with_mask(AttentionMask::causal());
        let grouped = attention(query.clone(), key.clone(), value.clone(), &options);
        let repeated = attention(query, repeat(key), repeat(value), &options);
        assert_close(&grouped, &repeated, 1e-6);
    }

    #[test]
    #[should_panic(expected = "do not fit")]
    fn heads_that_do_not_divide_panic() {
        let device = Device::default();
        let x = |heads| Tensor::<4>::zeros([1, heads, 2, 4], &device);
        attention(x(3), x(2), x(2), &AttentionOptions::default());
    }
}
