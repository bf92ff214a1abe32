//! What is hidden from whom, and how the scores are formed: the options of every form of attention.

use super::AttentionMask;
#[cfg(feature = "flex")]
use crate::half::widen;
use crate::logits::check_soft_cap;
use burn::tensor::{DType, Tensor};

/// The mask of attention and how its scores are computed. The default masks nothing and scales by `1 / sqrt(E)`.
#[derive(Debug, Clone, Default)]
pub struct AttentionOptions {
    /// The pairs that are left out. The fused path does not visit what the rule hides, in time or in memory.
    pub mask: AttentionMask,
    /// Factor of the scores; `None` means `1 / sqrt(E)`.
    pub scale: Option<f64>,
    /// Bounds the scaled scores to `(-c, c)`: `c tanh(scores / c)`. `None` leaves them as they are.
    pub soft_cap: Option<f64>,
    /// `[B | 1, H | 1, Q | 1, K]`, added to the scaled and capped scores.
    pub bias: Option<Tensor<4>>,
    /// `[H | 1, Q + K - 1]`, added to the scores as `bias` is, by the distance of query and key: column `Q - 1 + j - i` to
    /// the score of query `i` and key `j`. Where the fused path of the CPU has no other bias, it reads this one in place, so
    /// that it takes no memory for the pairs.
    pub bias_by_distance: Option<Tensor<2>>,
    /// `[H]`, the attention sinks: a score of each head that takes part in the softmax as if there were one key more, with
    /// zeros for a value. So the weights of a query sum to less than 1. Neither scale nor cap, bias or mask touch it.
    pub sinks: Option<Tensor<1>>,
    /// Share of the weights dropped at random, the rest scaled up; in `[0, 1)`. The caller passes 0 outside training.
    pub dropout: f64,
}

impl AttentionOptions {
    /// Sets the pairs that are left out.
    pub fn with_mask(mut self, mask: AttentionMask) -> Self {
        self.mask = mask;
        self
    }

    /// Sets the factor of the scores.
    pub fn with_scale(mut self, scale: Option<f64>) -> Self {
        self.scale = scale;
        self
    }

    /// Sets the bound of the scaled scores.
    pub fn with_soft_cap(mut self, soft_cap: Option<f64>) -> Self {
        self.soft_cap = soft_cap;
        self
    }

    /// Adds to the scores, `[B | 1, H | 1, Q | 1, K]`.
    pub fn with_bias(mut self, bias: Option<Tensor<4>>) -> Self {
        self.bias = bias;
        self
    }

    /// Adds to the scores by distance, `[H | 1, Q + K - 1]`.
    pub fn with_bias_by_distance(mut self, bias_by_distance: Option<Tensor<2>>) -> Self {
        self.bias_by_distance = bias_by_distance;
        self
    }

    /// Sets the attention sinks, `[H]`.
    pub fn with_sinks(mut self, sinks: Option<Tensor<1>>) -> Self {
        self.sinks = sinks;
        self
    }

    /// Drops weights at random.
    pub fn with_dropout(mut self, dropout: f64) -> Self {
        self.dropout = dropout;
        self
    }

    /// The types of the tensors of numbers.
    pub(super) fn types(&self) -> [(&'static str, Option<DType>); 3] {
        [
            ("bias", self.bias.as_ref().map(Tensor::dtype)),
            ("bias by distance", self.bias_by_distance.as_ref().map(Tensor::dtype)),
            ("sinks", self.sinks.as_ref().map(Tensor::dtype)),
        ]
    }

    /// The same with biases and sinks in single precision where they are of half precision.
    #[cfg(feature = "flex")]
    pub(super) fn widened(&self) -> Self {
        let (bias, by_distance) = (self.bias.clone().map(widen), self.bias_by_distance.clone().map(widen));
        self.clone().with_bias(bias).with_bias_by_distance(by_distance).with_sinks(self.sinks.clone().map(widen))
    }
}

/// Mask, biases and sinks must fit the scores, `[B, H, Q, K]`.
pub(super) fn check_options(scores: [usize; 4], options: &AttentionOptions) {
    options.mask.check(scores);
    let [_, heads, queries, keys] = scores;
    if let Some(bias) = &options.bias {
        let fits = bias.dims().iter().zip(scores).all(|(size, whole)| *size == 1 || *size == whole);
        assert!(fits, "attention: bias {:?} does not fit the scores {scores:?}", bias.dims());
    }
    if let Some(bias) = &options.bias_by_distance {
        let [rows, distances] = bias.dims();
        assert!(
            (rows == 1 || rows == heads) && distances == queries + keys - 1,
            "attention: bias by distance {:?} does not fit the scores {scores:?}: [H | 1, Q + K - 1] is needed",
            bias.dims()
        );
    }
    if let Some(sinks) = &options.sinks {
        assert!(sinks.dims() == [heads], "attention: sinks {:?} of {heads} heads: [H] is needed", sinks.dims());
    }
    check_soft_cap("attention", options.soft_cap);
    assert!((0.0..1.0).contains(&options.dropout), "attention: dropout {} is not in [0, 1)", options.dropout);
}

#[cfg(test)]
mod tests {
    use super::super::tests::rows;
    use super::super::{attention, attention_with_weights};
    use super::*;
    use crate::PairRule;
    use crate::assert_close;
    use burn::tensor::{Device, TensorData};

    #[test]
    fn a_cap_bounds_the_scores_and_not_the_bias() {
        // Scores 0 and 200 under a cap of 2: 0 and 2, weights .1192 and .8808; a bias of 2 on the first makes them equal.
        let device = Device::default();
        let (query, key) = (rows([[1.0]], &device), rows([[0.0], [200.0]], &device));
        let options = AttentionOptions::default().with_soft_cap(Some(2.0));
        let weights = |options: &AttentionOptions| {
            attention_with_weights(query.clone(), key.clone(), key.clone(), options).1.into_data()
        };
        let expected = TensorData::from([[[[0.1192f32, 0.8808]]]]);
        assert_close(&weights(&options), &expected, 1e-4);
        let biased = options.with_bias(Some(rows([[2.0, 0.0]], &device)));
        let expected = TensorData::from([[[[0.5f32, 0.5]]]]);
        assert_close(&weights(&biased), &expected, 1e-4);
    }

    #[test]
    #[should_panic(expected = "attention: soft_cap = -1.0 is not above 0")]
    fn a_cap_below_zero_panics() {
        let one = || rows([[1.0]], &Device::default());
        attention(one(), one(), one(), &AttentionOptions::default().with_soft_cap(Some(-1.0)));
    }

    #[test]
    fn a_bias_by_distance_by_hand() {
        // Zero scores. Two queries and three keys: column 1 - i + j of [a, b, c, d], so query 0 adds b, c, d and query 1
        // a, b, c. With ln 2 for c and else 0 the weights are 1/4, 1/2, 1/4 and 1/4, 1/4, 1/2.
        let device = Device::default();
        let (query, key) = (rows([[0.0], [0.0]], &device), rows([[0.0], [0.0], [0.0]], &device));
        let bias = Tensor::<2>::from_floats([[0.0, 0.0, 2f32.ln(), 0.0]], &device);
        let options = AttentionOptions::default().with_bias_by_distance(Some(bias));
        let value = rows([[4.0], [8.0], [16.0]], &device);
        let expected = TensorData::from([[[[9.0f32], [11.0]]]]);
        for output in [
            attention(query.clone(), key.clone(), value.clone(), &options),
            attention_with_weights(query, key, value, &options).0,
        ] {
            assert_close(&output, &expected, 1e-5);
        }
    }

    #[test]
    fn a_sink_by_hand() {
        // Zero scores of two keys and a sink of ln 2: the exponentials 1, 1 and 2 make weights of 1/4, so that the mean of 4
        // and 8 is 3. Its gradient by the sink is minus the weight of the sink times the mean: -3/2.
        let device = Device::default().autodiff();
        let (query, key) = (rows([[0.0]], &device), rows([[0.0], [0.0]], &device));
        let value = rows([[4.0], [8.0]], &device);
        let sinks = Tensor::<1>::from_floats([2f32.ln()], &device).require_grad();
        let options = AttentionOptions::default().with_sinks(Some(sinks.clone()));
        let output = attention(query.clone(), key.clone(), value.clone(), &options);
        assert_close(&output, &[3.0], 1e-5);
        let gradient = sinks.grad(&output.backward()).expect("sinks require a gradient");
        assert_close(&gradient, &[-1.5], 1e-5);
        assert_close(&attention_with_weights(query, key, value, &options).1, &[0.25, 0.25], 1e-5);
    }

    #[test]
    fn a_query_that_sees_the_sink_alone_gives_zeros_and_no_gradient() {
        let device = Device::default().autodiff();
        let x = rows([[1.0], [2.0]], &device).require_grad();
        let hidden = Tensor::<4>::ones([1, 1, 2, 2], &device).bool();
        // Far below what single precision holds beside other scores, usual, and beyond its exponentials.
        for sink in [f32::NEG_INFINITY, -1e30, 0.5, 1e30] {
            let sinks = Tensor::<1>::from_floats([sink], &device).require_grad();
            let options = AttentionOptions::default().with_sinks(Some(sinks.clone()));
            let options = options.with_mask(AttentionMask::from_hidden(hidden.clone()));
            for output in [
                attention(x.clone(), x.clone(), x.clone(), &options),
                attention_with_weights(x.clone(), x.clone(), x.clone(), &options).0,
            ] {
                let grads = output.clone().sum().backward();
                assert_close(&output, &[0.0; 2], 0.0);
                assert_close(&x.grad(&grads).expect("x requires a gradient"), &[0.0; 2], 0.0);
                assert_close(&sinks.grad(&grads).expect("sinks require a gradient"), &[0.0], 0.0);
            }
        }
    }

    #[test]
    #[should_panic(expected = "attention: sinks [2] of 1 heads: [H] is needed")]
    fn sinks_of_another_number_of_heads_panic() {
        let device = Device::default();
        let x = rows([[0.0], [0.0]], &device);
        let options = AttentionOptions::default().with_sinks(Some(Tensor::zeros([2], &device)));
        attention(x.clone(), x.clone(), x, &options);
    }

    #[test]
    #[should_panic(expected = "[H | 1, Q + K - 1] is needed")]
    fn a_bias_by_too_few_distances_panics() {
        let device = Device::default();
        let x = rows([[0.0], [0.0]], &device);
        let options = AttentionOptions::default().with_bias_by_distance(Some(Tensor::zeros([1, 2], &device)));
        attention(x.clone(), x.clone(), x, &options);
    }

    #[test]
    fn causal_is_aligned_to_the_last_key() {
        // One query after two keys sees all three; its predecessor sees two.
        let device = Device::default();
        let query = rows([[0.0], [0.0]], &device);
        let value = rows([[3.0], [6.0], [9.0]], &device);
        let output =
            attention(query, value.clone(), value, &AttentionOptions::default().with_mask(AttentionMask::causal()));
        let expected = TensorData::from([[[[4.5f32], [6.0]]]]);
        assert_close(&output, &expected, 1e-6);
    }

    #[test]
    fn a_window_shows_the_query_and_the_keys_before_it() {
        // Zero scores: the mean of what is seen. The last query stands at the last key.
        let device = Device::default();
        let query = rows([[0.0], [0.0]], &device);
        let value = rows([[3.0], [6.0], [9.0]], &device);
        let mean =
            |options: AttentionOptions| attention(query.clone(), value.clone(), value.clone(), &options).into_data();
        let expect = |found: TensorData, expected: [f32; 2]| {
            let expected = TensorData::new(expected.to_vec(), [1, 1, 2, 1]);
            assert_close(&found, &expected, 1e-6);
        };
        let window =
            |left, right| AttentionOptions::default().with_mask(AttentionMask::rule(PairRule::window(left, right)));
        expect(mean(window(1, 0)), [4.5, 7.5]);
        expect(mean(window(0, 0)), [6.0, 9.0]);
        expect(mean(window(0, 1)), [7.5, 9.0]);
        expect(mean(window(9, 0)), [4.5, 6.0]);
    }

    #[test]
    #[should_panic(expected = "of 3 queries the last stands at the last of 2 keys")]
    fn a_rule_for_queries_before_the_first_position_panics() {
        let x = |length| Tensor::<4>::zeros([1, 1, length, 4], &Device::default());
        attention(x(3), x(2), x(2), &AttentionOptions::default().with_mask(AttentionMask::causal()));
    }

    #[test]
    #[should_panic(expected = "hidden [1, 1, 2, 3] does not fit the scores [1, 2, 2, 2]")]
    fn a_mask_of_another_length_panics() {
        let device = Device::default();
        let x = Tensor::<4>::zeros([1, 2, 2, 4], &device);
        let hidden = Tensor::<4>::zeros([1, 1, 2, 3], &device).bool();
        attention(x.clone(), x.clone(), x, &AttentionOptions::default().with_mask(AttentionMask::from_hidden(hidden)));
    }
}
