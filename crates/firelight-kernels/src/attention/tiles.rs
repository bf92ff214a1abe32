//! Which keys some queries of a pass see: a rule of positions in the indices of queries and keys, for kernels that visit those
//! keys and no others.

use crate::rule::{KeyRanges, PairRule, Tile};
use std::iter::once;
use std::ops::Range;

/// Gaps of hidden keys that are not worth a tile's end.
pub(super) const GAP: usize = 16;

/// Queries that are asked how many keys they see.
const SAMPLES: usize = 64;

/// A rule, and where the queries and keys of a pass stand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tiles<'a> {
    rule: &'a PairRule,
    /// Position of the first key.
    start: usize,
    queries: usize,
    keys: usize,
}

impl<'a> Tiles<'a> {
    /// For queries of which the last stands at the last key.
    pub(super) fn new(rule: &'a PairRule, start: usize, [queries, keys]: [usize; 2]) -> Self {
        Self { rule, start, queries, keys }
    }

    /// Whether every query sees every key.
    pub(super) fn is_full(&self) -> bool {
        matches!(self.rule, PairRule::Full)
    }

    /// How many of `batch` rows differ: one where all are alike.
    pub(super) fn rows(&self, batch: usize) -> usize {
        if self.rule.varies_by_row() { batch } else { 1 }
    }

    /// The row, among those that differ, that stands for a row of the batch.
    #[cfg(feature = "flex")]
    pub(super) fn row(&self, batch: usize) -> usize {
        if self.rule.varies_by_row() { batch } else { 0 }
    }

    /// The keys among `keys` that a query sees.
    #[inline]
    pub(super) fn visible_keys(&self, row: usize, query: usize, keys: &Range<usize>) -> KeyRanges {
        let seen = self.rule.visible_keys(row, self.position(query), self.start + keys.start..self.start + keys.end);
        if self.start == 0 {
            seen
        } else {
            seen.iter().map(|range| range.start - self.start..range.end - self.start).collect()
        }
    }

    /// The keys that some query of some rows sees, in as few ranges as are worth it.
    pub(super) fn visited(&self, rows: Range<usize>, queries: &Range<usize>) -> Vec<Range<usize>> {
        if self.is_full() {
            return once(0..self.keys).collect();
        }
        let positions = self.position(queries.start)..self.position(queries.start) + queries.len();
        let keys = self.start..self.start + self.keys;
        let of_row = |row| self.rule.keys_visible_to_any(row, positions.clone(), keys.clone());
        let seen = rows.fold(KeyRanges::default(), |seen, row| seen.or(&of_row(row)));
        seen.joined(GAP).iter().map(|range| range.start - self.start..range.end - self.start).collect()
    }

    /// Whether every query of a tile sees every key of it.
    pub(super) fn is_tile_full(&self, row: usize, queries: &Range<usize>, keys: &Range<usize>) -> bool {
        self.tile(row, queries, keys) == Tile::Full
    }

    /// What is hidden of a tile.
    pub(super) fn tile(&self, row: usize, queries: &Range<usize>, keys: &Range<usize>) -> Tile {
        if self.is_full() {
            return Tile::Full; // Queries may stand at no positions.
        }
        let queries = self.position(queries.start)..self.position(queries.start) + queries.len();
        self.rule.tile(row, queries, self.start + keys.start..self.start + keys.end)
    }

    /// Keys that nine of ten queries see at most, in the first row.
    pub(super) fn usually_visible_keys(&self) -> usize {
        if self.is_full() || self.queries == 0 {
            return self.keys;
        }
        let samples = SAMPLES.min(self.queries);
        let query = |sample: usize| (sample + 1) * self.queries / samples - 1;
        let mut seen: Vec<usize> =
            (0..samples).map(|sample| self.visible_keys(0, query(sample), &(0..self.keys)).count()).collect();
        seen.sort_unstable();
        seen[(samples * 9).div_ceil(10) - 1]
    }

    fn position(&self, query: usize) -> usize {
        self.start + self.keys + query - self.queries
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of one range are meant")]
mod tests {
    use super::*;

    #[test]
    fn visited_keys_are_those_in_sight() {
        let rule = PairRule::local_global(20, 2);
        let tiles = Tiles::new(&rule, 0, [400, 400]);
        assert_eq!(tiles.visited(0..1, &(100..110)), [0..2, 80..130]);
        assert_eq!(tiles.visited(0..1, &(30..40)), [0..60]); // A gap of 8 keys is closed.
        assert_eq!(tiles.visited(0..1, &(0..1)), [0..400]);
        assert!(tiles.is_tile_full(0, &(100..110), &(0..2)) && !tiles.is_tile_full(0, &(100..110), &(80..130)));
    }

    #[test]
    fn a_tenth_of_queries_that_see_everything_is_unusual() {
        let rule = PairRule::local_global(20, 40);
        assert_eq!(Tiles::new(&rule, 0, [400, 400]).usually_visible_keys(), 40 + 41);
        assert_eq!(Tiles::new(&PairRule::Causal, 0, [400, 400]).usually_visible_keys(), 362);
        assert_eq!(Tiles::new(&PairRule::Full, 0, [400, 300]).usually_visible_keys(), 300);
    }

    #[test]
    fn keys_are_counted_from_the_first_that_a_cache_holds() {
        // Positions 50 to 59, of which the last two are queries; chunks of 8 begin at 48 and 56.
        let tiles = Tiles::new(&PairRule::Chunks { size: 8 }, 50, [2, 10]);
        assert_eq!(tiles.visible_keys(0, 1, &(0..10)).iter().collect::<Vec<_>>(), [6..10]);
        assert_eq!(tiles.visited(0..1, &(0..2)), [6..10]);
        assert_eq!(tiles.usually_visible_keys(), 4);
    }
}
