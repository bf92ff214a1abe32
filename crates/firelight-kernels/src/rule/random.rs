//! Random blocks of keys: the sparse part of BigBird.
//!
//! Source: Zaheer et al. 2020, §2 and appendix D (<https://arxiv.org/abs/2007.14062>): a block of queries sees some blocks of
//! keys, drawn at random. Different here: the blocks are drawn, with repetition, from those up to the block of the queries, and
//! where the future is seen a draw holds in both directions; so the choice does not depend on the length of the text.

use super::Runs;
use std::ops::Range;

/// Which blocks see each other: a function of the seed and the number of the later block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomBlocks {
    /// Blocks that are drawn for each block of queries.
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
        (0..self.count).any(|draw| {
            let share = unit([self.seed, later as u64, draw as u64]);
            (share * (later + 1) as f64) as usize == earlier
        })
    }

    pub(super) fn seen(self, query: usize, keys: Range<usize>) -> Runs {
        self.seen_by_any(query..query + 1, keys)
    }

    /// The keys that some of the queries see: the blocks of queries decide, of which there are few.
    pub(super) fn seen_by_any(self, queries: Range<usize>, keys: Range<usize>) -> Runs {
        let own = queries.start / self.size..queries.end.div_ceil(self.size);
        let blocks = keys.start / self.size..keys.end.div_ceil(self.size);
        let seen = blocks.filter(|&block| own.clone().any(|own| self.blocks_see(own, block)));
        let tokens = |block: usize| block * self.size..(block + 1).saturating_mul(self.size);
        let clipped = |run: Range<usize>| run.start.max(keys.start)..run.end.min(keys.end);
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
    fn each_block_draws_as_many_as_asked_for_and_others_with_another_seed() {
        let of = |seed| seen(RandomBlocks { count: 3, size: 1, seed });
        // Of b + 1 blocks, three draws with repetition find (b + 1) (1 - (b / (b + 1))^3).
        let expected: f64 =
            (0..100).map(|b: i32| f64::from(b + 1) * (1.0 - (f64::from(b) / f64::from(b + 1)).powi(3))).sum();
        let found = of(1).iter().sum::<usize>() as f64;
        assert!((found / expected - 1.0).abs() < 0.05, "{found} of about {expected}");
        assert!(of(1).iter().all(|&count| (1..=3).contains(&count)));
        assert!(of(1) == of(1) && of(1) != of(2));
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
