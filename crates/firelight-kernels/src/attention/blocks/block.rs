//! What both passes share: which queries and keys a block has, and how its scores are made of them.

use super::super::extension::{AttentionKernel, Inputs, Place};
use super::WINDOW_QUERIES;
use super::float::{Float, slices};
use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, get_device_settings};
use burn::tensor::Shape;
use std::ops::Range;

/// Some queries, and the keys from the first to the last that any of them sees.
pub(super) struct Block<'a, B: Backend> {
    inputs: &'a Inputs<B>,
    pub(super) queries: Range<usize>,
    pub(super) keys: Range<usize>,
}

/// The blocks of a pass.
pub(super) fn blocks<B: AttentionKernel>(inputs: &Inputs<B>) -> impl Iterator<Item = Block<'_, B>> {
    let [batch, heads, queries, _] = inputs.query.shape().dims();
    let [_, _, keys, _] = inputs.key.shape().dims();
    let fitting = (inputs.settings.block / (batch * heads * keys)).clamp(1, queries);
    // A block sees its window and as many keys as it has queries; the more queries, the more hidden pairs it forms.
    let count = match inputs.settings.window {
        Some(window) => fitting.min(window.max(WINDOW_QUERIES)),
        None => fitting,
    };
    (0..queries).step_by(count).map(move |first| Block::new(inputs, first..(first + count).min(queries)))
}

impl<'a, B: AttentionKernel> Block<'a, B> {
    /// At least one key, so that a block whose queries see nothing is no special case.
    fn new(inputs: &'a Inputs<B>, queries: Range<usize>) -> Self {
        let mut block = Self { inputs, queries, keys: 0..0 };
        let start = block.behind(block.queries.start);
        block.keys = start..block.visible(block.queries.end - 1).max(start + 1);
        block
    }

    /// `[B, H, Q, K]` of the whole pass.
    fn shape(&self) -> [usize; 4] {
        let [batch, heads, queries, _] = self.inputs.query.shape().dims();
        let [_, _, keys, _] = self.inputs.key.shape().dims();
        [batch, heads, queries, keys]
    }

    fn groups(&self) -> usize {
        self.inputs.key.shape()[1]
    }

    /// How many leading keys the future does not hide from a query.
    fn visible(&self, query: usize) -> usize {
        let [_, _, queries, keys] = self.shape();
        if self.inputs.settings.causal { (query + 1 + keys).saturating_sub(queries) } else { keys }
    }

    /// How many leading keys stand too far behind a query.
    fn behind(&self, query: usize) -> usize {
        let [_, _, queries, keys] = self.shape();
        let reach = |window: usize| window.saturating_add(queries);
        self.inputs.settings.window.map_or(0, |window| (query + keys).saturating_sub(reach(window)))
    }

    /// The scaled queries of the block, those of a group below one another: `[B, G, H / G * q, E]`.
    pub(super) fn query(&self) -> Float<B> {
        self.fold(self.of_queries(&self.inputs.query).scale(self.inputs.settings.scale))
    }

    /// The keys of the block, `[B, G, k, E]`.
    pub(super) fn key(&self) -> Float<B> {
        self.of_keys(&self.inputs.key)
    }

    /// Their values, `[B, G, k, F]`.
    pub(super) fn value(&self) -> Float<B> {
        self.of_keys(&self.inputs.value)
    }

    /// The rows of the block of a tensor that has one for every query.
    pub(super) fn of_queries(&self, tensor: &FloatTensor<B>) -> Float<B> {
        let [batch, heads, _, width] = tensor.shape().dims();
        Float(tensor.clone()).slice(&[0..batch, 0..heads, self.queries.clone(), 0..width])
    }

    fn of_keys(&self, tensor: &FloatTensor<B>) -> Float<B> {
        let [batch, groups, _, width] = tensor.shape().dims();
        Float(tensor.clone()).slice(&[0..batch, 0..groups, self.keys.clone(), 0..width])
    }

    /// `[B, H, q, X] -> [B, G, H / G * q, X]`: the queries of a group share one product with its keys.
    pub(super) fn fold(&self, x: Float<B>) -> Float<B> {
        let [batch, heads, queries, width] = x.dims();
        x.reshape([batch, self.groups(), heads / self.groups() * queries, width])
    }

    /// `[B, G, H / G * q, X] -> [B, H, q, X]`.
    pub(super) fn unfold(&self, x: Float<B>) -> Float<B> {
        let ([batch, heads, ..], [.., width]) = (self.shape(), x.dims());
        x.reshape([batch, heads, self.queries.len(), width])
    }

    /// Where a tensor that broadcasts to `[B, H, Q, K]` has what belongs to the block.
    pub(super) fn ranges(&self, shape: [usize; 4]) -> [Range<usize>; 4] {
        let [batch, heads, queries, keys] = shape;
        let part = |size: usize, range: &Range<usize>| if size == 1 { 0..1 } else { range.clone() };
        [0..batch, 0..heads, part(queries, &self.queries), part(keys, &self.keys)]
    }

    /// The scores, `[B, H, q, k]`: scaled, capped, biased, and the lowest number where a key is hidden. Beside them the
    /// slopes of the cap.
    pub(super) fn scores(&self) -> (Float<B>, Option<Float<B>>) {
        let scores = self.unfold(self.query().matmul(self.key().transpose())).widen();
        let (scores, slopes) = match self.inputs.settings.soft_cap {
            Some(cap) => {
                let bounded = scores.scale(1.0 / cap).tanh();
                let slopes = bounded.clone().mul(bounded.clone()).scale(-1.0).add_scalar(1.0);
                (bounded.scale(cap), Some(slopes))
            }
            None => (scores, None),
        };
        let scores = match &self.inputs.bias {
            Some(bias) => {
                let bias = Float(bias.clone());
                let ranges = self.ranges(bias.dims());
                scores.add(bias.slice(&ranges).widen())
            }
            None => scores,
        };
        let lowest = lowest(&scores);
        (self.masks().into_iter().fold(scores, |scores, mask| scores.fill(mask, lowest)), slopes)
    }

    /// Weights or their slopes, some of them dropped and the rest scaled up: the same ones in both passes.
    pub(super) fn drop(&self, weights: Float<B>) -> Float<B> {
        let (first_query, first_key) = (self.queries.start, self.keys.start);
        let place = Place { queries: self.shape()[2], first_query, first_key, rate: self.inputs.settings.dropout };
        match &self.inputs.seed {
            Some(seed) => Float(B::dropped(weights.0, seed.clone(), place)),
            None => weights,
        }
    }

    /// What is hidden, in parts that broadcast to `[B, H, q, k]`.
    fn masks(&self) -> Vec<BoolTensor<B>> {
        let [batch, _, _, keys] = self.shape();
        let padding = self.inputs.padding.clone();
        let padding = padding.map(|padding| B::bool_reshape(padding, Shape::from([batch, 1, 1, keys])));
        let given = [padding, self.inputs.hidden.clone()].into_iter().flatten().map(|mask| {
            let ranges = self.ranges(mask.shape().dims());
            B::bool_slice(mask, &slices(&ranges))
        });
        given.chain(self.future()).chain(self.far()).collect()
    }

    /// Keys after the place of a query, if there are any: `[1, 1, q, k]`.
    fn future(&self) -> Option<BoolTensor<B>> {
        let some = self.visible(self.queries.start) < self.keys.end;
        some.then(|| B::int_greater(self.key_places(0), self.query_places(), self.bool_dtype()))
    }

    /// Keys that stand more than a window before the place of a query, if there are any: `[1, 1, q, k]`.
    fn far(&self) -> Option<BoolTensor<B>> {
        let window = self.inputs.settings.window.filter(|_| self.behind(self.queries.end - 1) > self.keys.start)?;
        Some(B::int_lower(self.key_places(window), self.query_places(), self.bool_dtype()))
    }

    /// The key that stands where a query does, the last ones side by side.
    fn query_places(&self) -> IntTensor<B> {
        let [_, _, queries, keys] = self.shape();
        let shift = keys as i64 - queries as i64;
        self.places(self.queries.start as i64 + shift..self.queries.end as i64 + shift, [1, 1, self.queries.len(), 1])
    }

    fn key_places(&self, ahead: usize) -> IntTensor<B> {
        let range = (self.keys.start + ahead) as i64..(self.keys.end + ahead) as i64;
        self.places(range, [1, 1, 1, self.keys.len()])
    }

    fn places(&self, range: Range<i64>, shape: [usize; 4]) -> IntTensor<B> {
        let device = self.inputs.query.device();
        let places = B::int_arange(range, &device, get_device_settings::<B>(&device).int_dtype);
        let places = B::int_reshape(places, Shape::from(shape));
        B::int_expand(places, Shape::from([1, 1, self.queries.len(), self.keys.len()]))
    }

    fn bool_dtype(&self) -> burn::tensor::BoolDType {
        get_device_settings::<B>(&self.inputs.query.device()).bool_dtype
    }
}

/// The lowest finite number of a tensor's type.
pub(super) fn lowest<B: Backend>(tensor: &Float<B>) -> f64 {
    tensor.0.dtype().finfo().map_or(f64::from(f32::MIN), |info| info.min)
}
