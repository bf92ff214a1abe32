//! Scaled dot-product attention: `softmax(query keyᵀ / sqrt(E) + bias) value`, hidden pairs left out.
//!
//! Source: Vaswani et al. 2017, §3.2.1, eq. 1 (<https://arxiv.org/abs/1706.03762>); grouped key/value heads:
//! Ainslie et al. 2023, §2.2 (<https://arxiv.org/abs/2305.13245>); soft cap of the scores: Gemma Team 2024, §2
//! (<https://arxiv.org/abs/2408.00118>).
//!
//! Order: scale, soft cap, bias, hidden pairs, softmax. As in Burn's fused operation the bias is added after the cap and
//! is not bounded by it; a hidden pair stays hidden whatever its bias.

#[cfg(feature = "extension")]
mod autodiff;
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
mod reference;

#[cfg(feature = "flex")]
use crate::half::{in_single, is_half, widen};
use crate::path::check_types;
use burn::tensor::{Bool, DType, Device, Int, Tensor};

/// A text cut into pieces that see nothing but themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks {
    /// Tokens of a piece.
    pub size: usize,
    /// Tokens before the first key: a key `j` belongs to piece `(j + before) / size`.
    pub before: usize,
}

impl Chunks {
    /// Where the piece of a place begins and ends, counted from the first key, before which a place and its piece may stand.
    fn around(self, place: i64) -> std::ops::Range<i64> {
        let [size, before] =
            [self.size, self.before].map(|number| i64::try_from(number).unwrap_or(i64::MAX).min(1 << 60));
        let start = (place + before).div_euclid(size) * size - before;
        start..start + size
    }
}

/// What is hidden from whom, and how the scores are formed. The default hides nothing and scales by `1 / sqrt(E)`.
///
/// The parts combine: a key is hidden from a query when any of `causal`, `window`, `chunks`,
/// `documents`, `padding` or `hidden` hides it.
#[derive(Debug, Clone, Default)]
pub struct AttentionOptions {
    /// Factor of the scores; `None` means `1 / sqrt(E)`.
    pub scale: Option<f64>,
    /// Hides the future: query `i` sees the keys `0 ..= i + K - Q`, so the last query always sees every key.
    pub causal: bool,
    /// Hides what stands more than this many keys before a query, aligned as `causal`: with both, a query sees itself and the
    /// `window` keys before it. The fused path skips the rest, in time and in memory.
    pub window: Option<usize>,
    /// Hides the keys of other pieces of the text; query `i` stands at key `i + K - Q`, as with `causal`. The fused path of the
    /// CPU skips them.
    pub chunks: Option<Chunks>,
    /// `[B | 1, K]`, the document of every key, which hides the keys of other documents; query `i` is of the document of key
    /// `i + K - Q`. Any number names a document. The fused path of the CPU skips the keys before the first and behind the last
    /// of a document.
    pub documents: Option<Tensor<2, Int>>,
    /// Bounds the scaled scores to `(-c, c)`: `c tanh(scores / c)`. `None` leaves them as they are.
    pub soft_cap: Option<f64>,
    /// `[B, K]`, true where a key is padding and hidden from every query.
    pub padding: Option<Tensor<2, Bool>>,
    /// `[B | 1, H | 1, Q | 1, K]`, true where a pair is hidden.
    pub hidden: Option<Tensor<4, Bool>>,
    /// `[B | 1, H | 1, Q | 1, K]`, added to the scaled and capped scores.
    pub bias: Option<Tensor<4>>,
    /// `[H | 1, Q + K - 1]`, added to the scores as `bias` is, by the distance of query and key: column `Q - 1 + j - i` to
    /// the score of query `i` and key `j`. Where the fused path of the CPU has no other bias, it reads this one in place, so
    /// that it takes no memory for the pairs.
    pub bias_by_distance: Option<Tensor<2>>,
    /// Share of the weights dropped at random, the rest scaled up; in `[0, 1)`. The caller passes 0 outside training.
    pub dropout: f64,
}

impl AttentionOptions {
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

    /// Hides the future, or not.
    pub fn with_causal(mut self, causal: bool) -> Self {
        self.causal = causal;
        self
    }

    /// Hides what stands further before a query than this, or nothing.
    pub fn with_window(mut self, window: Option<usize>) -> Self {
        self.window = window;
        self
    }

    /// Hides the other pieces of a text, or nothing.
    pub fn with_chunks(mut self, chunks: Option<Chunks>) -> Self {
        self.chunks = chunks;
        self
    }

    /// Hides other documents, `[B | 1, K]`.
    pub fn with_documents(mut self, documents: Option<Tensor<2, Int>>) -> Self {
        self.documents = documents;
        self
    }

    /// Hides padded keys, `[B, K]`.
    pub fn with_padding(mut self, padding: Option<Tensor<2, Bool>>) -> Self {
        self.padding = padding;
        self
    }

    /// Hides pairs, `[B | 1, H | 1, Q | 1, K]`.
    pub fn with_hidden(mut self, hidden: Option<Tensor<4, Bool>>) -> Self {
        self.hidden = hidden;
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

    /// Drops weights at random.
    pub fn with_dropout(mut self, dropout: f64) -> Self {
        self.dropout = dropout;
        self
    }

    /// The types of the tensors of numbers.
    fn types(&self) -> [(&'static str, Option<DType>); 2] {
        let by_distance = self.bias_by_distance.as_ref().map(Tensor::dtype);
        [("bias", self.bias.as_ref().map(Tensor::dtype)), ("bias by distance", by_distance)]
    }

    /// The same with biases in single precision where they are of half precision.
    #[cfg(feature = "flex")]
    fn widened(&self) -> Self {
        let (bias, by_distance) = (self.bias.clone().map(widen), self.bias_by_distance.clone().map(widen));
        self.clone().with_bias(bias).with_bias_by_distance(by_distance)
    }

    /// All that is hidden, as pairs: for scores of the shape `[B, H, Q, K]` a mask that broadcasts to it, or none when
    /// every query sees every key.
    pub fn hidden_pairs(&self, shape: [usize; 4], device: &Device) -> Option<Tensor<4, Bool>> {
        reference::hidden(shape, self, device)
    }
}

/// Attends from every query to the keys that it may see and returns the weighted mean of their values.
///
/// Query head `h` reads key/value head `h / (H / G)`, in place: grouped heads are never repeated in memory.
/// A query that sees no key returns zeros and sends no gradient back. On the fused path memory is linear in the number of
/// tokens.
///
/// # Shapes
/// - `query`: `[B, H, Q, E]`, `key`: `[B, G, K, E]`, `value`: `[B, G, K, F]`, `H` a multiple of `G`
/// - output: `[B, H, Q, F]`
///
/// # Panics
/// If the shapes do not fit together, `dropout` is outside `[0, 1)`, `soft_cap` is not above 0,
/// `documents` have more queries than keys, or the tensors hold numbers of several types.
pub fn attention(query: Tensor<4>, key: Tensor<4>, value: Tensor<4>, options: &AttentionOptions) -> Tensor<4> {
    check(&query, &key, &value, options);
    #[cfg(feature = "flex")]
    if is_half(&query) {
        let options = options.widened();
        return in_single(query, |query| attention(query, widen(key), widen(value), &options));
    }
    #[cfg(feature = "extension")]
    if is_fused(&query, &key, &value, options) {
        let settings = extension::Settings::new(options, &query);
        return extension::attention([query, key, value], options, settings);
    }
    reference::mean(reference::weights(query, key, options), value)
}

#[cfg(feature = "extension")]
fn is_fused(query: &Tensor<4>, key: &Tensor<4>, value: &Tensor<4>, options: &AttentionOptions) -> bool {
    let tensors = [Some(query), Some(key), Some(value), options.bias.as_ref()];
    tensors.into_iter().flatten().all(crate::path::is_fused)
        && options.documents.as_ref().is_none_or(|documents| matches!(documents.dtype(), DType::I32 | DType::I64))
}

/// [`attention`], and the weights that it took the mean with: dropout included, so that the weights times the values
/// are the output. Without dropout a row sums to 1, or to 0 where its query sees no key.
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
    let weights = reference::weights(query.clone(), key.clone(), options);
    // Dropped weights are drawn, so that a second draw would not belong to the first.
    let output = if options.dropout > 0.0 {
        reference::mean(weights.clone(), value)
    } else {
        attention(query, key, value, options)
    };
    (output, weights)
}

/// Attention with scores that are formed elsewhere, and the weights. The options follow as in [`attention`], but that
/// the scores have no factor where `scale` is `None`.
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
    check_types("attention", &[&types[..], &options.types()].concat());
}

/// Masks and biases must fit the scores, `[B, H, Q, K]`.
fn check_options(scores: [usize; 4], options: &AttentionOptions) {
    let [batch, _, queries, keys] = scores;
    let masks =
        [("hidden", options.hidden.as_ref().map(Tensor::dims)), ("bias", options.bias.as_ref().map(Tensor::dims))];
    for (name, shape) in masks {
        let shape = shape.unwrap_or([1; 4]);
        let fits = shape.iter().zip(scores).all(|(size, whole)| *size == 1 || *size == whole);
        assert!(fits, "attention: {name} {shape:?} does not fit the scores {scores:?}");
    }
    if let Some(bias) = &options.bias_by_distance {
        let ([_, heads, queries, _], [rows, distances]) = (scores, bias.dims());
        assert!(
            (rows == 1 || rows == heads) && distances == queries + keys - 1,
            "attention: bias by distance {:?} does not fit the scores {scores:?}: [H | 1, Q + K - 1] is needed",
            bias.dims()
        );
    }
    if let Some(padding) = &options.padding {
        assert!(padding.dims() == [batch, keys], "attention: padding {:?} is not [B, K]", padding.dims());
    }
    if let Some(documents) = &options.documents {
        let [rows, names] = documents.dims();
        assert!(
            (rows == batch || rows == 1) && names == keys,
            "attention: documents {:?} are not [B | 1, K] of the scores {scores:?}",
            [rows, names]
        );
        assert!(queries <= keys, "attention: documents of {keys} keys do not tell that of {queries} queries");
    }
    assert!(options.chunks.is_none_or(|chunks| chunks.size > 0), "attention: chunks of 0 tokens");
    assert!(options.soft_cap.is_none_or(|cap| cap > 0.0), "attention: soft cap {:?} is not above 0", options.soft_cap);
    assert!((0.0..1.0).contains(&options.dropout), "attention: dropout {} is not in [0, 1)", options.dropout);
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Distribution, TensorData, Tolerance};

    fn rows<const N: usize, const M: usize>(values: [[f32; M]; N], device: &Device) -> Tensor<4> {
        Tensor::<2>::from_floats(values, device).unsqueeze()
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
        middle.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-4));
        let expected = TensorData::from([[[[0.3289f32, 0.4018, 0.2693]]]]);
        weights.narrow(2, 1, 1).into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-4));
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
        weights.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-4));
        let expected = TensorData::from([[[[18.09f32, 28.09]]]]);
        output.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-2));
    }

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
        weights(&options).assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-4));
        let biased = options.with_bias(Some(rows([[2.0, 0.0]], &device)));
        let expected = TensorData::from([[[[0.5f32, 0.5]]]]);
        weights(&biased).assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-4));
    }

    #[test]
    fn weights_sum_to_one_or_zero_and_make_the_output() {
        let device = Device::default();
        let random = |shape: [usize; 4]| Tensor::<4>::random(shape, Distribution::Default, &device);
        let (query, key, value) = (random([2, 4, 3, 8]), random([2, 4, 5, 8]), random([2, 4, 5, 6]));
        let padding = [[false, false, true, false, true], [true, true, true, true, true]];
        let padding = Tensor::<2, Bool>::from_bool(padding, &device);
        let options = AttentionOptions::default().with_causal(true).with_padding(Some(padding));
        let (output, weights) = attention_with_weights(query.clone(), key.clone(), value.clone(), &options);
        let sums = Tensor::cat(vec![Tensor::<4>::ones([1, 4, 3, 1], &device), Tensor::zeros([1, 4, 3, 1], &device)], 0);
        let found = weights.clone().sum_dim(3).into_data();
        found.assert_approx_eq::<f32>(&sums.into_data(), Tolerance::absolute(1e-5));
        let product = weights.matmul(value.clone()).into_data();
        output.clone().into_data().assert_approx_eq::<f32>(&product, Tolerance::absolute(1e-6));
        output.into_data().assert_eq(&attention(query, key, value, &options).into_data(), true);
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
            output.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
        }
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
    fn a_fully_hidden_query_gives_zeros_and_no_gradient() {
        let device = Device::default().autodiff();
        let x = Tensor::<4>::random([2, 1, 3, 4], Distribution::Default, &device).require_grad();
        let padding = Tensor::<2, Bool>::from_bool([[true, true, true], [false, false, true]], &device);
        let options = AttentionOptions::default().with_padding(Some(padding));
        let output = attention(x.clone(), x.clone(), x.clone(), &options);
        let grads = output.clone().sum().backward();
        let hidden_row = output.narrow(0, 0, 1).abs().max().into_scalar::<f32>();
        let gradient = x.grad(&grads).expect("x requires a gradient");
        assert_eq!(hidden_row, 0.0);
        assert_eq!(gradient.clone().narrow(0, 0, 1).abs().max().into_scalar::<f32>(), 0.0);
        assert!(gradient.abs().max().into_scalar::<f32>() > 0.0);
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
        let options = AttentionOptions::default().with_causal(true);
        let grouped = attention(query.clone(), key.clone(), value.clone(), &options);
        let repeated = attention(query, repeat(key), repeat(value), &options);
        grouped.into_data().assert_approx_eq::<f32>(&repeated.into_data(), Tolerance::absolute(1e-6));
    }

    #[test]
    fn causal_is_aligned_to_the_last_key() {
        // One query after two keys sees all three; its predecessor sees two.
        let device = Device::default();
        let query = rows([[0.0], [0.0]], &device);
        let value = rows([[3.0], [6.0], [9.0]], &device);
        let output = attention(query, value.clone(), value, &AttentionOptions::default().with_causal(true));
        let expected = TensorData::from([[[[4.5f32], [6.0]]]]);
        output.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
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
            found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
        };
        let window = |window| AttentionOptions::default().with_window(Some(window));
        expect(mean(window(1).with_causal(true)), [4.5, 7.5]);
        expect(mean(window(0).with_causal(true)), [6.0, 9.0]);
        expect(mean(window(0)), [7.5, 9.0]);
        expect(mean(window(9).with_causal(true)), [4.5, 6.0]);
    }

    #[test]
    #[should_panic(expected = "hidden [1, 1, 2, 3] does not fit the scores [1, 2, 2, 2]")]
    fn a_mask_of_another_length_panics() {
        let device = Device::default();
        let x = Tensor::<4>::zeros([1, 2, 2, 4], &device);
        let hidden = Tensor::<4>::zeros([1, 1, 2, 3], &device).bool();
        attention(x.clone(), x.clone(), x, &AttentionOptions::default().with_hidden(Some(hidden)));
    }

    #[test]
    fn scores_of_ones_own_are_capped_hidden_and_weighed_as_products_are() {
        let device = Device::default();
        let random = |shape: [usize; 4]| Tensor::<4>::random(shape, Distribution::Default, &device);
        let (query, key, value) = (random([2, 4, 3, 8]), random([2, 4, 5, 8]), random([2, 2, 5, 6]));
        let padding = [[false, false, true, false, true], [true, true, true, true, true]];
        let options = AttentionOptions::default()
            .with_causal(true)
            .with_soft_cap(Some(1.5))
            .with_scale(Some(0.5))
            .with_padding(Some(Tensor::<2, Bool>::from_bool(padding, &device)))
            .with_bias(Some(random([1, 4, 3, 5])));
        let scores = query.clone().matmul(key.clone().swap_dims(2, 3));
        let keys = |x: Tensor<4>| Tensor::cat([0, 0, 1, 1].map(|head| x.clone().narrow(1, head, 1)).to_vec(), 1);
        let (output, weights) = attention_from_scores(scores, value.clone(), &options);
        let (expected, expected_weights) = attention_with_weights(query, key, keys(value), &options);
        output.into_data().assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-6));
        weights.into_data().assert_approx_eq::<f32>(&expected_weights.into_data(), Tolerance::absolute(1e-6));
    }

    #[test]
    #[should_panic(expected = "scores [1, 3, 2, 5] and value [1, 2, 5, 4] do not fit")]
    fn scores_that_do_not_fit_panic() {
        let device = Device::default();
        let (scores, value) = (Tensor::zeros([1, 3, 2, 5], &device), Tensor::zeros([1, 2, 5, 4], &device));
        attention_from_scores(scores, value, &AttentionOptions::default());
    }

    #[test]
    #[should_panic(expected = "do not fit")]
    fn heads_that_do_not_divide_panic() {
        let device = Device::default();
        let x = |heads| Tensor::<4>::zeros([1, heads, 2, 4], &device);
        attention(x(3), x(2), x(2), &AttentionOptions::default());
    }
}
