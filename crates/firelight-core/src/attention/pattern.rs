//! Which keys the queries of a layer see, as a recipe or a file names it. What a pattern means says its [`PairRule`].

use crate::error::{Checks, ConfigError};
use firelight_kernels::{PairRule, RandomBlocks};
use serde::{Deserialize, Serialize};

fn yes() -> bool {
    true
}

fn block() -> usize {
    64
}

/// The shape of a layer's attention, before padding. A position is the index of a token in its row, the tokens in the
/// cache counted, and padding, too: so padding on the left moves the chunks and the global tokens of a text.
#[doc(alias = "sparse attention")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum AttentionPattern {
    /// Every query sees every key, as in an encoder.
    Full,
    /// A query sees itself and its past, as in a decoder.
    #[default]
    Causal,
    /// A query sees itself and its neighbours.
    #[doc(alias = "local attention")]
    #[doc(alias = "sliding window")]
    SlidingWindow {
        /// Keys before the query that it sees.
        left: usize,
        /// Keys after the query that it sees. Default: 0, which is causal.
        #[serde(default)]
        right: usize,
    },
    /// A query sees its own chunk of the sequence alone.
    Chunked {
        /// Tokens of a chunk.
        size: usize,
        /// Whether the future is hidden. Default: true.
        #[serde(default = "yes")]
        causal: bool,
    },
    /// A query sees the `stride` tokens next to it and every `stride`-th token further away.
    Strided {
        /// The distance `l`.
        stride: usize,
        /// Whether the future is hidden. Default: true.
        #[serde(default = "yes")]
        causal: bool,
    },
    /// A query sees its neighbours, and the first tokens see and are seen by all, as in Longformer.
    LocalGlobal {
        /// Neighbours on either side.
        window: usize,
        /// Number of tokens at the beginning of the row that are global.
        global: usize,
        /// Whether the future is hidden, from global tokens as well. Default: true.
        #[serde(default = "yes")]
        causal: bool,
    },
    /// Neighbours, global tokens and random blocks of keys.
    BigBird {
        /// Neighbours on either side.
        window: usize,
        /// Number of tokens at the beginning of the row that are global.
        global: usize,
        /// Random blocks of keys that every block of queries sees, apart from itself and its neighbours.
        random: usize,
        /// Tokens of a block. Default: 64.
        #[serde(default = "block")]
        block: usize,
        /// Which blocks are seen: the choice is a function of the seed and the number of the block. Default: 0.
        #[serde(default)]
        seed: u64,
        /// Whether the future is hidden, from global tokens as well. Default: true.
        #[serde(default = "yes")]
        causal: bool,
    },
}

impl AttentionPattern {
    /// The rule that the pattern is a name of.
    ///
    /// # Panics
    /// When it is asked, if [`validate`](Self::validate) refuses the pattern.
    pub fn rule(self) -> PairRule {
        let rule = match self {
            Self::Full | Self::Causal => PairRule::Full,
            Self::SlidingWindow { left, right } => PairRule::window(left, right),
            Self::Chunked { size, .. } => PairRule::Chunks { size },
            Self::Strided { stride, .. } => PairRule::strided(stride),
            Self::LocalGlobal { window, global, .. } => PairRule::local_global(window, global),
            Self::BigBird { window, global, random, block, seed, .. } => {
                PairRule::big_bird(window, global, RandomBlocks { count: random, size: block, seed })
            }
        };
        if self.is_causal() && !rule.is_causal() { PairRule::Causal.and(rule) } else { rule }
    }

    /// Whether no query sees its future.
    pub fn is_causal(self) -> bool {
        match self {
            Self::Full => false,
            Self::Causal => true,
            Self::SlidingWindow { right, .. } => right == 0,
            Self::Chunked { causal, .. }
            | Self::Strided { causal, .. }
            | Self::LocalGlobal { causal, .. }
            | Self::BigBird { causal, .. } => causal,
        }
    }

    /// # Errors
    /// If a size is 0.
    pub fn validate(self) -> Result<(), ConfigError> {
        let checks = Checks::default();
        match self {
            Self::Chunked { size, .. } => checks.size("patterns.size", size),
            Self::Strided { stride, .. } => checks.size("patterns.stride", stride),
            Self::SlidingWindow { left: 0, right: 0 } => checks.require(false, || {
                "patterns.left = 0 and patterns.right = 0 hide every key but that of the query itself; set left to 1 or more".into()
            }),
            Self::LocalGlobal { window, .. } => checks.size("patterns.window", window),
            Self::BigBird { window, block, .. } => {
                checks.size("patterns.window", window).size("patterns.block", block)
            }
            _ => checks,
        }
        .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_by_hand() {
        let seen = |pattern: AttentionPattern, query: usize| -> Vec<usize> {
            (0..8).filter(|key| !pattern.rule().hidden(0, query, *key)).collect()
        };
        assert_eq!(seen(AttentionPattern::Full, 4).len(), 8);
        assert_eq!(seen(AttentionPattern::Causal, 4), [0, 1, 2, 3, 4]);
        assert_eq!(seen(AttentionPattern::SlidingWindow { left: 2, right: 0 }, 4), [2, 3, 4]);
        assert_eq!(seen(AttentionPattern::SlidingWindow { left: 0, right: 1 }, 4), [4, 5]);
        assert_eq!(seen(AttentionPattern::Chunked { size: 3, causal: true }, 4), [3, 4]);
        assert_eq!(seen(AttentionPattern::Chunked { size: 3, causal: false }, 4), [3, 4, 5]);
        assert_eq!(seen(AttentionPattern::Strided { stride: 3, causal: true }, 7), [1, 4, 5, 6, 7]);
        assert_eq!(seen(AttentionPattern::LocalGlobal { window: 1, global: 1, causal: true }, 4), [0, 3, 4]);
        assert_eq!(seen(AttentionPattern::LocalGlobal { window: 1, global: 1, causal: false }, 0).len(), 8);
        let random = AttentionPattern::BigBird { window: 1, global: 0, random: 99, block: 2, seed: 1, causal: false };
        assert_eq!(seen(random, 4), [0, 1, 3, 4, 5]); // So many draws find every block before the neighbour.
    }

    #[test]
    fn the_rule_of_a_causal_pattern_is_causal_and_says_how_far_it_looks() {
        let looks_back = |pattern: AttentionPattern| {
            assert_eq!(pattern.rule().is_causal(), pattern.is_causal(), "{pattern:?}");
            pattern.rule().max_lookback()
        };
        for causal in [true, false] {
            assert_eq!(looks_back(AttentionPattern::Chunked { size: 3, causal }), Some(2));
            assert_eq!(looks_back(AttentionPattern::Strided { stride: 3, causal }), None);
            assert_eq!(looks_back(AttentionPattern::LocalGlobal { window: 1, global: 2, causal }), None);
            let random = AttentionPattern::BigBird { window: 1, global: 1, random: 1, block: 2, seed: 7, causal };
            assert_eq!(looks_back(random), None);
        }
        assert_eq!(looks_back(AttentionPattern::SlidingWindow { left: 4, right: 0 }), Some(4));
        assert_eq!(looks_back(AttentionPattern::SlidingWindow { left: 4, right: 2 }), Some(4));
        assert_eq!([AttentionPattern::Full, AttentionPattern::Causal].map(looks_back), [None, None]);
    }

    #[test]
    fn sizes_of_nothing_are_refused() {
        let error = AttentionPattern::Chunked { size: 0, causal: true }.validate().expect_err("no chunk");
        assert_eq!(error.to_string(), "patterns.size = 0 must be at least 1");
        let windows = [
            AttentionPattern::SlidingWindow { left: 0, right: 0 },
            AttentionPattern::LocalGlobal { window: 0, global: 1, causal: true },
            AttentionPattern::BigBird { window: 0, global: 1, random: 1, block: 2, seed: 1, causal: false },
        ];
        for (pattern, key) in
            windows.into_iter().zip(["patterns.left = 0", "patterns.window = 0", "patterns.window = 0"])
        {
            assert!(pattern.validate().expect_err("no window").to_string().starts_with(key), "{pattern:?}");
        }
        AttentionPattern::SlidingWindow { left: 0, right: 1 }.validate().expect("the next key is seen");
    }
}
