//! Random blocks of keys: the sparse part of BigBird.
//!
//! Source: Zaheer et al. 2020, §2 and appendix D (<https://arxiv.org/abs/2007.14062>): a block of queries sees some blocks of
//! keys, drawn at random. Different here: the blocks are drawn from those before the neighbour of the block of the queries, and
//! where the future is seen a draw holds in both directions; so the choice does not depend on the length of the text.
//!
//! Distinct blocks are drawn as Floyd does: Bentley and Floyd 1987, A sample of brilliance
//! (<https://doi.org/10.1145/30401.315746>).

use super::KeyRanges;
use smallvec::SmallVec;
use std::ops::Range;

/// Which blocks see each other: a function of the seed and the number of the later block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomBlocks {
    /// Distinct blocks that are drawn for each block of queries; all that there are where there are fewer. Its own block and its
    /// neighbours are left to a window.
    pub count: usize,
    /// Tokens of a block.
    pub size: usize,
    /// Decides with the number of a block what is drawn for it.
    pub seed: u64,
}

impl RandomBlocks {
    pub(super) fn shows(self, query: usize, key: usize) -> bool {
        let [query, key] = [query, key].map(|position| position / self.size);
        self.blocks_see(query, key)
    }

    /// Whether the earlier of two blocks is among those that are drawn for the later one.
    fn blocks_see(self, one: usize, other: usize) -> bool {
        let (earlier, later) = (one.min(other), one.max(other));
        earlier + 1 < later && self.drawn(later).contains(&earlier)
    }

    /// The blocks that are drawn for a block.
    fn drawn(self, block: usize) -> SmallVec<[usize; 8]> {
        let candidates = block.saturating_sub(1);
        let mut drawn = SmallVec::new();
        for last in candidates.saturating_sub(self.count)..candidates {
            let share = unit([self.seed, block as u64, last as u64]);
            let draw = (share * (last + 1) as f64) as usize;
            drawn.push(if drawn.contains(&draw) { last } else { draw });
        }
        drawn
    }

    pub(super) fn visible_keys(self, query: usize, keys: Range<usize>) -> KeyRanges {
        self.keys_visible_to_any(query..query + 1, keys)
    }

    /// The keys that some of the queries see: the blocks of queries decide, of which there are few.
    pub(super) fn keys_visible_to_any(self, queries: Range<usize>, keys: Range<usize>) -> KeyRanges {
        let own = queries.start / self.size..queries.end.div_ceil(self.size);
        let blocks = keys.start / self.size..keys.end.div_ceil(self.size);
        let seen = blocks.filter(|&block| own.clone().any(|own| self.blocks_see(own, block)));
        let tokens = |block: usize| block * self.size..(block + 1).saturating_mul(self.size);
        let clipped = |range: Range<usize>| range.start.max(keys.start)..range.end.min(keys.end);
        seen.map(tokens).map(clipped).collect()
    }
}

/// A number in `[0, 1)`, evenly spread: a round of SplitMix64 for each of three numbers (Steele et al. 2014, figure 14).
fn unit(numbers: [u64; 3]) -> f64 {
    let mix = |state: u64, number: u64| {
        let z = (state ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let bits = numbers.into_iter().fold(0, mix);
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(blocks: RandomBlocks) -> Vec<usize> {
        (0..100).map(|query| (0..=query).filter(|&key| blocks.shows(query, key)).count()).collect()
    }

    #[test]
    fn each_block_draws_as_many_distinct_ones_as_asked_for_and_others_with_another_seed() {
        let of = |seed| RandomBlocks { count: 3, size: 1, seed };
        let expected: Vec<usize> = (0..100usize).map(|block| block.saturating_sub(1).min(3)).collect();
        assert_eq!(seen(of(1)), expected);
        let pairs = |seed| (0..10_000).map(|pair| of(seed).shows(pair / 100, pair % 100)).collect::<Vec<_>>();
        assert!(pairs(1) == pairs(1) && pairs(1) != pairs(2));
    }

    #[test]
    fn every_block_is_drawn_as_often_as_the_others() {
        // The last of 12 blocks draws two of the ten before its neighbour: each with a chance of a fifth.
        let drawn =
            |block: usize| (0..5000).filter(|&seed| RandomBlocks { count: 2, size: 1, seed }.shows(11, block)).count();
        let counts: Vec<usize> = (0..12).map(drawn).collect();
        assert!(counts[..10].iter().all(|count| (880..1120).contains(count)), "{counts:?}"); // Four standard deviations.
        assert_eq!(counts[10..], [0, 0]);
    }

    #[test]
    fn a_draw_holds_for_whole_blocks_and_in_both_directions() {
        let (whole, single) =
            (RandomBlocks { count: 2, size: 5, seed: 9 }, RandomBlocks { count: 2, size: 1, seed: 9 });
        for (query, key) in (0..60).flat_map(|query| (0..60).map(move |key| (query, key))) {
            assert_eq!(whole.shows(query, key), single.shows(query / 5, key / 5));
            assert_eq!(whole.shows(query, key), whole.shows(key, query));
        }
    }
}
