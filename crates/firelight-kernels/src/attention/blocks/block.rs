//! What both passes share: which queries and keys a block has, and how its scores are made of them.

use super::super::extension::{AttentionKernel, BlockDropout, Inputs};
use super::super::tiles::Tiles;
use super::float::{Float, slices};
use super::{COMPARED, SPARSE_QUERIES};
use crate::rule::KeyRanges;
use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, get_device_settings};
use burn::tensor::{BoolDType, Shape, TensorData};
use std::iter::once;
use std::ops::Range;

/// Some queries, and the keys that some of them see.
pub(super) struct Block<'a, B: Backend> {
    inputs: &'a Inputs<B>,
    rule: Tiles<'a>,
    pub(super) queries: Range<usize>,
    /// Ranges in order, one at least.
    pub(super) keys: Vec<Range<usize>>,
}

/// The blocks of a pass.
pub(super) fn blocks<B: AttentionKernel>(inputs: &Inputs<B>) -> impl Iterator<Item = Block<'_, B>> {
    let [_, _, queries, _] = inputs.query.shape().dims();
    let [_, _, keys, _] = inputs.key.shape().dims();
    let rule = Tiles::new(&inputs.settings.rule, inputs.settings.start, [queries, keys]);
    // The more queries of a sparse rule a block has, the more hidden pairs it forms; the fewer, the thinner its products.
    let seen = rule.usually_visible_keys();
    let most = if seen < keys / 2 { seen.max(SPARSE_QUERIES) } else { queries };
    let mut first = 0;
    std::iter::from_fn(move || {
        let block = (first < queries).then(|| Block::fitting(inputs, rule, first..(first + most).min(queries)))?;
        first = block.queries.end;
        Some(block)
    })
}

impl<'a, B: AttentionKernel> Block<'a, B> {
    /// The first of some queries, as many as the scores may take memory for.
    fn fitting(inputs: &'a Inputs<B>, rule: Tiles<'a>, queries: Range<usize>) -> Self {
        let block = Self::new(inputs, rule, queries.clone());
        let [batch, heads, ..] = block.shape();
        let fitting = (inputs.settings.block / (batch * heads * block.width())).max(1);
        if queries.len() <= fitting { block } else { Self::new(inputs, rule, queries.start..queries.start + fitting) }
    }

    /// At least one key, so that a block whose queries see nothing is no special case.
    fn new(inputs: &'a Inputs<B>, rule: Tiles<'a>, queries: Range<usize>) -> Self {
        let visited = rule.visited(0..rule.rows(inputs.query.shape()[0]), &queries);
        let keys = if visited.is_empty() { once(0..1).collect() } else { visited };
        Self { inputs, rule, queries, keys }
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

    /// Number of keys of the block.
    fn width(&self) -> usize {
        self.keys.iter().map(Range::len).sum()
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

    /// The sinks, `[1, H, 1, 1]`.
    pub(super) fn sinks(&self) -> Option<Float<B>> {
        self.inputs.sinks.clone().map(|sinks| Float(sinks).widen())
    }

    /// The rows of the block of a tensor that has one for every query.
    pub(super) fn of_queries(&self, tensor: &FloatTensor<B>) -> Float<B> {
        let [batch, heads, _, width] = tensor.shape().dims();
        Float(tensor.clone()).slice(&[0..batch, 0..heads, self.queries.clone(), 0..width])
    }

    fn of_keys(&self, tensor: &FloatTensor<B>) -> Float<B> {
        let [batch, groups, _, width] = tensor.shape().dims();
        let part = |keys: &Range<usize>| Float(tensor.clone()).slice(&[0..batch, 0..groups, keys.clone(), 0..width]);
        Float::cat(self.keys.iter().map(part).collect(), 2)
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

    /// Where a tensor that broadcasts to `[B, H, Q, K]` has what belongs to the block: a place for every range of keys, or one
    /// for all of them.
    pub(super) fn places(&self, shape: [usize; 4]) -> Vec<[Range<usize>; 4]> {
        let [batch, heads, queries, keys] = shape;
        let queries = if queries == 1 { 0..1 } else { self.queries.clone() };
        let place = |keys: Range<usize>| [0..batch, 0..heads, queries.clone(), keys];
        if keys == 1 { vec![place(0..1)] } else { self.keys.iter().cloned().map(place).collect() }
    }

    /// Where each range of keys lies among the keys of the block.
    pub(super) fn columns(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.keys.iter().scan(0, |end, keys| {
            let start = *end;
            *end += keys.len();
            Some(start..*end)
        })
    }

    /// The scores, `[B, H, q, k]`: scaled, capped, biased, and the lowest number where a key is hidden. Beside them the
    /// slopes of the cap.
    pub(super) fn scores(&self) -> (Float<B>, Option<Float<B>>) {
        #[cfg(test)]
        self.keys.iter().for_each(|keys| self.inputs.settings.visits.note(&self.queries, keys));
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
                let parts = self.places(bias.dims()).iter().map(|place| bias.clone().slice(place)).collect();
                scores.add(Float::cat(parts, 3).widen())
            }
            None => scores,
        };
        let lowest = lowest(&scores);
        (self.masks().into_iter().fold(scores, |scores, mask| scores.fill(mask, lowest)), slopes)
    }

    /// Weights or their slopes, some of them dropped and the rest scaled up: the same ones in both passes.
    pub(super) fn drop(&self, weights: Float<B>) -> Float<B> {
        let Some(seed) = &self.inputs.seed else { return weights };
        let [batch, heads, queries, _] = weights.dims();
        let (first_query, rate) = (self.queries.start, self.inputs.settings.dropout);
        let part = |(keys, columns): (&Range<usize>, Range<usize>)| {
            let place = BlockDropout { queries: self.shape()[2], first_query, first_key: keys.start, rate };
            let weights = weights.clone().slice(&[0..batch, 0..heads, 0..queries, columns]);
            Float(B::dropped(weights.0, seed.clone(), place))
        };
        Float::cat(self.keys.iter().zip(self.columns()).map(part).collect(), 3)
    }

    /// What is hidden, in parts that broadcast to `[B, H, q, k]`.
    fn masks(&self) -> Vec<BoolTensor<B>> {
        let [batch, _, _, keys] = self.shape();
        let padding = self.inputs.padding.clone();
        let padding = padding.map(|padding| B::bool_reshape(padding, Shape::from([batch, 1, 1, keys])));
        let given = [padding, self.inputs.hidden.clone()].into_iter().flatten().map(|mask| {
            let places = self.places(mask.shape().dims());
            let mut parts: Vec<_> = places.iter().map(|place| B::bool_slice(mask.clone(), &slices(place))).collect();
            if parts.len() == 1 { parts.swap_remove(0) } else { B::bool_cat(parts, 3) }
        });
        given.chain(self.hidden_by_rule()).collect()
    }

    /// The pairs of the block that the rule hides, if there are any: `[B | 1, 1, q, k]`.
    fn hidden_by_rule(&self) -> Option<BoolTensor<B>> {
        let rows = self.rule.rows(self.shape()[0]);
        let full = |row: usize| self.keys.iter().all(|keys| self.rule.is_tile_full(row, &self.queries, keys));
        if self.rule.is_full() || (0..rows).all(full) {
            return None;
        }
        let pairs = (0..rows).flat_map(|row| self.queries.clone().map(move |query| (row, query)));
        let seen: Vec<KeyRanges> = pairs.map(|(row, query)| self.rule.visible_keys(row, query, &self.hull())).collect();
        let most = seen.iter().map(|ranges| ranges.iter().count()).max().unwrap_or(0);
        let shape = [rows, 1, self.queries.len(), self.width()];
        Some(if most > COMPARED { self.hidden_on_host(&seen, shape) } else { self.outside_of(&seen, most, shape) })
    }

    fn hull(&self) -> Range<usize> {
        self.keys[0].start..self.keys[self.keys.len() - 1].end
    }

    /// Every pair by itself, from the host.
    fn hidden_on_host(&self, seen: &[KeyRanges], shape: [usize; 4]) -> BoolTensor<B> {
        let mut hidden: Vec<bool> = Vec::with_capacity(shape.iter().product());
        for ranges in seen {
            let mut row = vec![true; self.hull().len()];
            ranges
                .iter()
                .for_each(|range| row[range.start - self.hull().start..range.end - self.hull().start].fill(false));
            self.keys.iter().for_each(|keys| hidden.extend(&row[keys.start - self.hull().start..][..keys.len()]));
        }
        let data = TensorData::new(hidden, shape).convert_dtype(self.bool_dtype().into());
        B::bool_from_data(data, &self.inputs.query.device())
    }

    /// The keys outside of all the ranges that a query sees, of which there are `most`: compared on the device.
    fn outside_of(&self, seen: &[KeyRanges], most: usize, shape: [usize; 4]) -> BoolTensor<B> {
        let keys: Vec<i64> = self.keys.iter().flat_map(|keys| keys.clone().map(|key| key as i64)).collect();
        let keys = self.integers(keys, [1, 1, 1, shape[3]], shape);
        let [rows, _, queries, _] = shape;
        // A range that a query does not have is empty, and begins behind all keys.
        let border = |number: usize, end: fn(Range<usize>) -> usize| {
            let of =
                |ranges: &KeyRanges| ranges.iter().nth(number).map_or(i64::from(i32::MAX), |range| end(range) as i64);
            self.integers(seen.iter().map(of).collect(), [rows, 1, queries, 1], shape)
        };
        let outside = |number: usize| {
            let before = B::int_lower(keys.clone(), border(number, |range| range.start), self.bool_dtype());
            let behind = B::int_greater_equal(keys.clone(), border(number, |range| range.end), self.bool_dtype());
            B::bool_or(before, behind)
        };
        let every = (0..most).map(outside).reduce(B::bool_and);
        every.unwrap_or_else(|| self.hidden_on_host(seen, shape))
    }

    /// Integers of one shape, which are read as if they had another.
    fn integers(&self, numbers: Vec<i64>, shape: [usize; 4], read_as: [usize; 4]) -> IntTensor<B> {
        let device = self.inputs.query.device();
        let dtype = get_device_settings::<B>(&device).int_dtype;
        let data = TensorData::new(numbers, shape).convert_dtype(dtype.into());
        B::int_expand(B::int_from_data(data, &device), Shape::from(read_as))
    }

    fn bool_dtype(&self) -> BoolDType {
        get_device_settings::<B>(&self.inputs.query.device()).bool_dtype
    }
}

/// The lowest finite number of a tensor's type.
pub(super) fn lowest<B: Backend>(tensor: &Float<B>) -> f64 {
    tensor.0.dtype().finfo().map_or(f64::from(f32::MIN), |info| info.min)
}
