//! What both passes share: the inputs as views, and how a tile of scores is made of them.

use super::super::Chunks;
use super::documents::Documents;
use super::{Inputs, KEYS, queries_of_tile};
use crate::flex::dropout::Dropout;
use crate::flex::view::{Broadcast, View, readable};
use crate::flex::{MatrixMut, Real, product, vectorised};
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use std::ops::Range;

/// Query, key and value in an order that can be read.
pub(super) struct Tensors {
    query: FlexTensor,
    key: FlexTensor,
    value: FlexTensor,
}

impl Tensors {
    pub(super) fn new(inputs: &Inputs<Flex>) -> Self {
        let [query, key, value] = [&inputs.query, &inputs.key, &inputs.value].map(readable);
        Self { query, key, value }
    }
}

pub(super) struct Problem<'a, T> {
    pub(super) query: View<'a, T>,
    pub(super) key: View<'a, T>,
    pub(super) value: View<'a, T>,
    bias: Option<Broadcast<'a, T>>,
    pub(super) by_distance: bool,
    padding: Option<Broadcast<'a, u8>>,
    hidden: Option<Broadcast<'a, u8>>,
    pub(super) scale: T,
    pub(super) soft_cap: Option<T>,
    causal: bool,
    window: Option<usize>,
    chunks: Option<Chunks>,
    documents: Option<Documents>,
    pub(super) dropout: Option<Dropout<T>>,
}

impl<'a, T: Real> Problem<'a, T> {
    pub(super) fn new(inputs: &'a Inputs<Flex>, tensors: &'a Tensors) -> Self {
        let settings = &inputs.settings;
        Self {
            query: View::new(&tensors.query),
            key: View::new(&tensors.key),
            value: View::new(&tensors.value),
            bias: inputs.bias.as_ref().map(|bias| match settings.by_distance {
                true => Broadcast::by_distance(bias, T::storage(bias), inputs.query.layout().shape()[2]),
                false => Broadcast::new(bias, T::storage(bias)),
            }),
            by_distance: settings.by_distance,
            padding: inputs.padding.as_ref().map(|padding| Broadcast::of_keys(padding, padding.storage::<u8>())),
            hidden: inputs.hidden.as_ref().map(|hidden| Broadcast::new(hidden, hidden.storage::<u8>())),
            scale: T::of(settings.scale),
            soft_cap: settings.soft_cap.map(T::of),
            causal: settings.causal,
            window: settings.window,
            chunks: settings.chunks,
            documents: inputs.documents.as_ref().map(Documents::new),
            dropout: Dropout::new(settings.dropout, settings.seed),
        }
    }

    /// `[B, H, Q]`.
    pub(super) fn queries(&self) -> [usize; 3] {
        let [batch, heads, queries, _] = self.query.shape;
        [batch, heads, queries]
    }

    pub(super) fn keys(&self) -> usize {
        self.key.shape[2]
    }

    /// The key head of a query head.
    pub(super) fn group(&self, head: usize) -> usize {
        head / self.heads_of_group()
    }

    pub(super) fn heads_of_group(&self) -> usize {
        self.query.shape[1] / self.key.shape[1]
    }

    /// The place of a query in the order of all, which dropout is keyed by.
    pub(super) fn row(&self, batch: usize, head: usize, query: usize) -> u64 {
        let [_, heads, queries] = self.queries();
        ((batch * heads + head) * queries + query) as u64
    }

    /// Multiplications of one product of a pass.
    pub(super) fn work(&self) -> usize {
        self.queries().iter().product::<usize>() * self.keys() * self.query.shape[3]
    }

    pub(super) fn query_tiles(&self) -> impl Iterator<Item = Range<usize>> + use<T> {
        let queries = self.query.shape[2];
        let chunk = self.chunks.map_or(queries, |chunks| chunks.size);
        let tile = queries_of_tile(self.window.unwrap_or(queries).min(chunk).min(queries));
        (0..queries.div_ceil(tile)).map(move |index| index * tile..((index + 1) * tile).min(queries))
    }

    /// The most queries and the most keys of a tile.
    pub(super) fn tile(&self) -> [usize; 2] {
        [self.query_tiles().next().map_or(0, |queries| queries.len()), self.keys().min(KEYS)]
    }

    /// The tiles of keys of which some query sees some key.
    pub(super) fn key_tiles(&self, batch: usize, head: usize, queries: &Range<usize>) -> Vec<Range<usize>> {
        let Range { start, end } = self.reach(batch, queries);
        let tiles = (start..end).step_by(KEYS).map(|key| key..(key + KEYS).min(end));
        tiles.filter(|keys| !self.is_hidden(batch, head, queries, keys)).collect()
    }

    /// The keys of which some queries see some.
    fn reach(&self, batch: usize, queries: &Range<usize>) -> Range<usize> {
        let span = |query| self.span(batch, query);
        if self.documents.is_none() {
            // From query to query both ends move forward.
            return span(queries.start).start..span(queries.end - 1).end;
        }
        let widest = queries.clone().map(span).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        widest.expect("a tile has queries")
    }

    /// The keys of which a query sees some; causality, window, chunks and documents hide all others.
    fn span(&self, batch: usize, query: usize) -> Range<usize> {
        let mut span = self.behind(query)..self.visible(query);
        let own = self.own_key(query);
        let chunk = self.chunks.map(|chunks| {
            let chunk = chunks.around(own);
            [chunk.start, chunk.end].map(|key| key.clamp(0, self.keys() as i64) as usize)
        });
        let document = self.documents.as_ref().map(|documents| documents.span(batch, own as usize));
        let document = document.map(|keys| [keys.start, keys.end]);
        for [start, end] in [chunk, document].into_iter().flatten() {
            span = span.start.max(start)..span.end.min(end);
        }
        span
    }

    /// The key at which a query stands; below 0 where there are more queries than keys.
    fn own_key(&self, query: usize) -> i64 {
        (query + self.keys()) as i64 - self.query.shape[2] as i64
    }

    /// How many leading keys the future does not hide from a query.
    fn visible(&self, query: usize) -> usize {
        if !self.causal {
            return self.keys();
        }
        (query + 1 + self.keys()).saturating_sub(self.query.shape[2]).min(self.keys())
    }

    /// How many leading keys stand too far behind a query.
    fn behind(&self, query: usize) -> usize {
        let reach = |window: usize| window.saturating_add(self.query.shape[2]);
        self.window.map_or(0, |window| (query + self.keys()).saturating_sub(reach(window)).min(self.keys()))
    }

    fn is_hidden(&self, batch: usize, head: usize, queries: &Range<usize>, keys: &Range<usize>) -> bool {
        let all_hidden = |mask: &Broadcast<'_, u8>, query: usize| {
            let mut all = true;
            mask.for_each_key([batch, head, query], keys, |_, hidden| all &= hidden != 0);
            all
        };
        let rows = |mask: &Broadcast<'_, u8>| if mask.is_one_row() { 0..1 } else { queries.clone() };
        [&self.padding, &self.hidden].into_iter().flatten().any(|mask| rows(mask).all(|query| all_hidden(mask, query)))
    }

    /// A tile of scores: scaled, capped, biased, minus infinity where a key is hidden. The slopes of the cap go to
    /// `slopes` where the backward pass needs them.
    pub(super) fn scores(
        &self,
        [batch, head]: [usize; 2],
        queries: &Range<usize>,
        keys: &Range<usize>,
        scores: &mut [T],
        slopes: Option<&mut [T]>,
    ) {
        let query = self.query.matrix(batch, head, queries);
        let key = self.key.matrix(batch, self.group(head), keys).transposed();
        product(MatrixMut::rows(scores, keys.len()), false, query, key, self.scale, false);
        if let Some(cap) = self.soft_cap {
            vectorised(
                #[inline(always)]
                || {
                    for score in scores.iter_mut() {
                        *score = cap * (*score / cap).tanh();
                    }
                },
            );
            if let Some(slopes) = slopes {
                vectorised(
                    #[inline(always)]
                    || {
                        for (slope, &score) in slopes.iter_mut().zip(&*scores) {
                            *slope = T::ONE - score / cap * (score / cap);
                        }
                    },
                );
            }
        }
        vectorised(
            #[inline(always)]
            || {
                for (query, scores) in queries.clone().zip(scores.chunks_exact_mut(keys.len())) {
                    self.finish_row([batch, head, query], keys, scores);
                }
            },
        );
    }

    #[inline(always)]
    fn finish_row(&self, place: [usize; 3], keys: &Range<usize>, scores: &mut [T]) {
        if let Some(bias) = &self.bias {
            bias.for_each_key(place, keys, |i, bias| scores[i] += bias);
        }
        for mask in [&self.padding, &self.hidden].into_iter().flatten() {
            mask.for_each_key(place, keys, |i, hidden| {
                scores[i] = if hidden == 0 { scores[i] } else { T::NEG_INFINITY };
            });
        }
        let [batch, _, query] = place;
        if let Some(documents) = &self.documents {
            documents.hide_others(batch, self.own_key(query) as usize, keys, scores);
        }
        let within = |key: usize| key.clamp(keys.start, keys.end) - keys.start;
        let span = self.span(batch, query);
        scores[within(span.end)..].fill(T::NEG_INFINITY);
        scores[..within(span.start)].fill(T::NEG_INFINITY);
    }
}
