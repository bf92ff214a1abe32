//! Attention that hands out the weights that it took the mean with, and attention with scores that are formed elsewhere: both
//! hold all pairs in memory.

use super::options::check_options;
use super::{AttentionOptions, attention, check, in_type_of, reference};
#[cfg(feature = "flex")]
use crate::half::{is_half, widen};
use crate::path::check_types;
use burn::tensor::Tensor;

/// [`attention`] together with its attention weights. They include dropout, so the weights times the values are the output. Without dropout
/// a row sums to 1, or to 0 where its query sees no key; with sinks to less than 1, and what is missing is the weight of the sink.
///
/// # Shapes
/// - as [`attention`]; weights: `[B, H, Q, K]`
///
/// # Panics
/// As [`attention`].
pub fn attention_with_weights(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
) -> (Tensor<4>, Tensor<4>) {
    check(&query, &key, &value, options);
    #[cfg(feature = "flex")]
    if is_half(&query) {
        let (options, dtype) = (options.widened(), query.dtype());
        let (output, weights) = attention_with_weights(widen(query), widen(key), widen(value), &options);
        return (output.cast(dtype), weights.cast(dtype));
    }
    let [key, value] = in_type_of(&query, [key, value]);
    let weights = reference::weights(query.clone(), key.clone(), options);
    // Dropped weights are drawn, so that a second draw would not belong to the first.
    let output = if options.dropout > 0.0 {
        reference::mean(weights.clone(), value)
    } else {
        attention(query, key, value, options)
    };
    (output, weights)
}

/// Attention from given scores, with its weights. The options apply as in [`attention`], except that the scores are not scaled where
/// `scale` is `None`.
///
/// # Shapes
/// - `scores`: `[B, H, Q, K]`, `value`: `[B, G, K, F]`, `H` a multiple of `G`
/// - output: `[B, H, Q, F]`, weights: `[B, H, Q, K]`
///
/// # Panics
/// As [`attention`].
pub fn attention_from_scores(
    scores: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
) -> (Tensor<4>, Tensor<4>) {
    let ([batch, heads, _, keys], [value_batch, groups, values, _]) = (scores.dims(), value.dims());
    assert!(
        [batch, keys] == [value_batch, values] && heads.is_multiple_of(groups),
        "attention: scores {:?} and value {:?} do not fit: equal batch and keys are needed, and heads of scores that are a \
         multiple of those of the values",
        scores.dims(),
        value.dims()
    );
    check_options(scores.dims(), options);
    let types = [("scores", Some(scores.dtype())), ("value", Some(value.dtype()))];
    check_types("attention_from_scores", &[&types[..], &options.types()].concat());
    #[cfg(feature = "flex")]
    if is_half(&scores) {
        let (options, dtype) = (options.widened(), scores.dtype());
        let (output, weights) = attention_from_scores(widen(scores), widen(value), &options);
        return (output.cast(dtype), weights.cast(dtype));
    }
    let weights = reference::weights_of(scores, options);
    (reference::mean(weights.clone(), value), weights)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AttentionMask, assert_close};
    use burn::tensor::{Bool, Device, Distribution};

    #[test]
    fn weights_sum_to_one_or_zero_and_make_the_output() {
        let device = Device::default();
        let random = |shape: [usize; 4]| Tensor::<4>::random(shape, Distribution::Default, &device);
        let (query, key, value) = (random([2, 4, 3, 8]), random([2, 4, 5, 8]), random([2, 4, 5, 6]));
        let padding = [[false, false, true, false, true], [true, true, true, true, true]];
        let padding = Tensor::<2, Bool>::from_bool(padding, &device);
        let mask = AttentionMask::causal().and(AttentionMask::padding(padding));
        let options = AttentionOptions::default().with_mask(mask);
        let (output, weights) = attention_with_weights(query.clone(), key.clone(), value.clone(), &options);
        let sums = Tensor::cat(vec![Tensor::<4>::ones([1, 4, 3, 1], &device), Tensor::zeros([1, 4, 3, 1], &device)], 0);
        let found = weights.clone().sum_dim(3).into_data();
        assert_close(&found, &sums, 1e-5);
        let product = weights.matmul(value.clone()).into_data();
        assert_close(&output, &product, 1e-6);
        output.into_data().assert_eq(&attention(query, key, value, &options).into_data(), true);
    }

    #[test]
    fn scores_of_ones_own_are_capped_hidden_and_weighed_as_products_are() {
        let device = Device::default();
        let random = |shape: [usize; 4]| Tensor::<4>::random(shape, Distribution::Default, &device);
        let (query, key, value) = (random([2, 4, 3, 8]), random([2, 4, 5, 8]), random([2, 2, 5, 6]));
        let padding = [[false, false, true, false, true], [true, true, true, true, true]];
        let padding = AttentionMask::padding(Tensor::<2, Bool>::from_bool(padding, &device));
        let options = AttentionOptions::default()
            .with_mask(AttentionMask::causal().and(padding))
            .with_soft_cap(Some(1.5))
            .with_scale(Some(0.5))
            .with_bias(Some(random([1, 4, 3, 5])));
        let scores = query.clone().matmul(key.clone().swap_dims(2, 3));
        let keys = |x: Tensor<4>| Tensor::cat([0, 0, 1, 1].map(|head| x.clone().narrow(1, head, 1)).to_vec(), 1);
        let (output, weights) = attention_from_scores(scores, value.clone(), &options);
        let (expected, expected_weights) = attention_with_weights(query, key, keys(value), &options);
        assert_close(&output, &expected, 1e-6);
        assert_close(&weights, &expected_weights, 1e-6);
    }

    #[test]
    #[should_panic(expected = "scores [1, 3, 2, 5] and value [1, 2, 5, 4] do not fit")]
    fn scores_that_do_not_fit_panic() {
        let device = Device::default();
        let (scores, value) = (Tensor::zeros([1, 3, 2, 5], &device), Tensor::zeros([1, 2, 5, 4], &device));
        attention_from_scores(scores, value, &AttentionOptions::default());
    }
}
