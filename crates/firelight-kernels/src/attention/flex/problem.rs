//! What both passes share: the inputs as views, and how a tile of scores is made of them.

use super::super::tiles::Tiles;
#[cfg(test)]
use super::super::visits::Visits;
use super::{Inputs, KEYS, queries_of_tile};
use crate::flex::dropout::Dropout;
use crate::flex::view::{Broadcast, View, readable};
use crate::flex::{Number, Real, contiguous, values, vectorised};
use crate::rule::Tile;
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

/// Keys and values may be stored as numbers of another type `S` than is computed in, and queries as numbers of type `Q`.
pub(super) struct Problem<'a, T, S = T, Q = T> {
    pub(super) query: View<'a, Q>,
    pub(super) key: View<'a, S>,
    pub(super) value: View<'a, S>,
    bias: Option<Broadcast<'a, T>>,
    pub(super) by_distance: bool,
    sinks: Option<Vec<T>>,
    padding: Option<Broadcast<'a, u8>>,
    hidden: Option<Broadcast<'a, u8>>,
    pub(super) scale: T,
    pub(super) soft_cap: Option<T>,
    rule: Tiles<'a>,
    /// Of every tile of queries the tiles of keys, one row of the batch after the other where they differ.
    tiles: Vec<Vec<KeyTile>>,
    queries_of_tile: usize,
    pub(super) dropout: Option<Dropout<T>>,
    #[cfg(test)]
    pub(super) visits: &'a Visits,
}

/// Some keys, and whether all queries of a tile see them all, as far as the rule tells.
#[derive(Debug, Clone)]
pub(super) struct KeyTile {
    pub(super) keys: Range<usize>,
    is_full: bool,
}

impl<'a, T: Real, S: Number<Sum = T>, Q: Number<Sum = T>> Problem<'a, T, S, Q> {
    pub(super) fn new(inputs: &'a Inputs<Flex>, tensors: &'a Tensors) -> Self {
        let settings = &inputs.settings;
        let (query, key) = (View::<Q>::new(&tensors.query), View::new(&tensors.key));
        let [batch, _, queries, _] = query.shape;
        let rule = Tiles::new(&settings.rule, settings.start, [queries, key.shape[2]]);
        let queries_of_tile = queries_of_tile(rule.usually_visible_keys().min(queries));
        Self {
            query,
            key,
            value: View::new(&tensors.value),
            bias: inputs.bias.as_ref().map(|bias| match settings.by_distance {
                true => Broadcast::by_distance(bias, T::storage(bias), inputs.query.layout().shape()[2]),
                false => Broadcast::new(bias, T::storage(bias)),
            }),
            by_distance: settings.by_distance,
            sinks: inputs.sinks.clone().map(|sinks| values(&contiguous(sinks)).to_vec()),
            padding: inputs.padding.as_ref().map(|padding| Broadcast::of_keys(padding, padding.storage::<u8>())),
            hidden: inputs.hidden.as_ref().map(|hidden| Broadcast::new(hidden, hidden.storage::<u8>())),
            scale: T::of(settings.scale),
            soft_cap: settings.soft_cap.map(T::of),
            rule,
            tiles: key_tiles(rule, batch, tiles_of(queries, queries_of_tile)),
            queries_of_tile,
            dropout: Dropout::new(settings.dropout, settings.seed),
            #[cfg(test)]
            visits: &settings.visits,
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

    /// The sink of a head: one of minus infinity, which adds nothing, where there are none.
    pub(super) fn sink(&self, head: usize) -> T {
        self.sinks.as_ref().map_or(T::NEG_INFINITY, |sinks| sinks[head])
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

    pub(super) fn query_tiles(&self) -> impl Iterator<Item = Range<usize>> + Clone + use<T, S, Q> {
        tiles_of(self.query.shape[2], self.queries_of_tile)
    }

    /// The most queries and the most keys of a tile.
    pub(super) fn tile(&self) -> [usize; 2] {
        [self.query_tiles().next().map_or(0, |queries| queries.len()), self.keys().min(KEYS)]
    }

    /// The most numbers that the keys or the values of a tile have.
    pub(super) fn numbers_of_tile(&self) -> usize {
        self.tile()[1] * self.value.shape[3].max(self.key.shape[3])
    }

    /// The tiles of keys of which some query sees some key.
    pub(super) fn key_tiles(
        &self,
        batch: usize,
        head: usize,
        queries: &Range<usize>,
    ) -> impl Iterator<Item = &KeyTile> + use<'_, 'a, T, S, Q> {
        let queries = queries.clone();
        let tile = self.rule.row(batch) * self.query_tiles().count() + queries.start / self.queries_of_tile;
        self.tiles[tile].iter().filter(move |tile| !self.is_hidden(batch, head, &queries, &tile.keys))
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

    /// Makes scores of scaled products, of a tile: capped, biased, minus infinity where a key is hidden. The slopes of the cap go to
    /// `slopes` where the backward pass needs them.
    pub(super) fn finish_scores(
        &self,
        [batch, head]: [usize; 2],
        queries: &Range<usize>,
        tile: &KeyTile,
        scores: &mut [T],
        slopes: Option<&mut [T]>,
    ) {
        let keys = &tile.keys;
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
                    self.finish_row([batch, head, query], tile, scores);
                }
            },
        );
    }

    #[inline(always)]
    fn finish_row(&self, place: [usize; 3], KeyTile { keys, is_full }: &KeyTile, scores: &mut [T]) {
        if let Some(bias) = &self.bias {
            bias.for_each_key(place, keys, |i, bias| scores[i] += bias);
        }
        for mask in [&self.padding, &self.hidden].into_iter().flatten() {
            mask.for_each_key(place, keys, |i, hidden| {
                scores[i] = if hidden == 0 { scores[i] } else { T::NEG_INFINITY };
            });
        }
        let [batch, _, query] = place;
        if !is_full {
            let mut hidden_from = keys.start;
            for range in self.rule.visible_keys(batch, query, keys).iter() {
                scores[hidden_from - keys.start..range.start - keys.start].fill(T::NEG_INFINITY);
                hidden_from = range.end;
            }
            scores[hidden_from - keys.start..].fill(T::NEG_INFINITY);
        }
    }
}

fn tiles_of(queries: usize, tile: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    (0..queries.div_ceil(tile)).map(move |index| index * tile..((index + 1) * tile).min(queries))
}

/// The tiles of keys of each tile of queries, of each row of the batch where rows differ.
fn key_tiles(rule: Tiles<'_>, batch: usize, queries: impl Iterator<Item = Range<usize>> + Clone) -> Vec<Vec<KeyTile>> {
    let of_row = |row| queries.clone().map(move |queries| (row, queries));
    let tile = |(row, queries): (usize, Range<usize>)| {
        let visited = rule.visited(row..row + 1, &queries).into_iter();
        let cut =
            visited.flat_map(|range| range.clone().step_by(KEYS).map(move |key| key..(key + KEYS).min(range.end)));
        let visible = |keys: Range<usize>| match rule.tile(row, &queries, &keys) {
            Tile::Empty => None,
            tile => Some(KeyTile { is_full: tile == Tile::Full, keys }),
        };
        cut.filter_map(visible).collect()
    };
    (0..rule.rows(batch)).flat_map(of_row).map(tile).collect()
}
