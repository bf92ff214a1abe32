//! Which (query, key) pairs an attention layer leaves out, as a function of their positions.
//!
//! Sources: chunks, as the fixed blocks of Qiu et al. 2019 (<https://arxiv.org/abs/1911.02972>); strided form Child et al.
//! 2019, §4.2 (<https://arxiv.org/abs/1904.10509>); window and global tokens Beltagy et al. 2020, §3.1
//! (<https://arxiv.org/abs/2004.05150>); BigBird Zaheer et al. 2020, §2 (<https://arxiv.org/abs/2007.14062>). Different
//! here: the two sets of the strided form stand together in one head, and a pair of BigBird is random by itself, with a
//! chance, where the paper draws a number of blocks for each query; so the choice does not depend on the length.
//!
//! The query at `i` sees the key at `j`, and no `j > i` where the pattern is causal, if
//!
//! ```text
//! sliding window   i - left <= j <= i + right
//! chunked          floor(i / size) = floor(j / size)
//! strided          |i - j| <= stride, or stride divides |i - j|
//! local + global   |i - j| <= window, or i < global, or j < global
//! BigBird          as local + global, or the draw of (seed, i, j) is below random
//! ```

use crate::error::{Checks, ConfigError};
use crate::mask::AttentionMask;
use burn::tensor::{Bool, Device, Tensor, TensorData};
use firelight_kernels::Chunks;
use serde::{Deserialize, Serialize};
use std::ops::Range;

fn yes() -> bool {
    true
}

/// The shape of a layer's attention, before padding. A position is the index of a token in its row, the tokens in the
/// cache counted, and padding, too: so padding on the left moves the chunks and the global tokens of a text.
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
        /// Number of tokens at the begin of the row that are global.
        global: usize,
        /// Whether the future is hidden, from global tokens as well. Default: true.
        #[serde(default = "yes")]
        causal: bool,
    },
    /// Neighbours, global tokens and random pairs.
    BigBird {
        /// Neighbours on either side.
        window: usize,
        /// Number of tokens at the begin of the row that are global.
        global: usize,
        /// Chance that any other pair is seen, in `[0, 1]`.
        random: f64,
        /// Which pairs are seen: the choice is a function of seed, query and key. Default: 0.
        #[serde(default)]
        seed: u64,
        /// Whether the future is hidden, from global tokens as well. Default: true.
        #[serde(default = "yes")]
        causal: bool,
    },
}

impl AttentionPattern {
    /// Whether the key at position `key` is hidden from the query at position `query`: the definition of the pattern.
    pub fn hidden(self, query: usize, key: usize) -> bool {
        let distance = query.abs_diff(key);
        let near = |window: usize, global: usize| distance <= window || query.min(key) < global;
        let future = self.is_causal() && key > query;
        let seen = match self {
            Self::Full | Self::Causal => true,
            Self::SlidingWindow { left, right } => distance <= if key <= query { left } else { right },
            Self::Chunked { size, .. } => query / size == key / size,
            Self::Strided { stride, .. } => distance <= stride || distance.is_multiple_of(stride),
            Self::LocalGlobal { window, global, .. } => near(window, global),
            Self::BigBird { window, global, random, seed, .. } => {
                near(window, global) || chance(seed, query, key) < random
            }
        };
        future || !seen
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

    /// How many tokens back a query can look: a cache needs no key before them. None when it needs them all.
    pub fn span(self) -> Option<usize> {
        match self {
            Self::SlidingWindow { left, .. } => Some(left),
            Self::Chunked { size, .. } => Some(size.saturating_sub(1)),
            _ => None,
        }
    }

    /// The pattern between the positions of the queries and those of the keys as a mask: symbolic where the kernel
    /// understands it, else `[1, 1, Q, K]`, filled on the host by [`hidden`](Self::hidden).
    pub fn mask(self, queries: Range<usize>, keys: Range<usize>, device: &Device) -> AttentionMask {
        match self {
            Self::Full => AttentionMask::none(),
            Self::Causal => AttentionMask::causal(),
            Self::SlidingWindow { left, right: 0 } if left >= queries.end.saturating_sub(keys.start + 1) => {
                AttentionMask::causal()
            }
            // The kernel counts from the last key, at which the last query must stand.
            Self::SlidingWindow { left, right: 0 } if queries.end == keys.end => {
                AttentionMask::causal().and(AttentionMask::window(left))
            }
            // As above.
            Self::Chunked { size, causal } if queries.end == keys.end => {
                let chunks = Chunks { size, before: keys.start % size };
                let chunks = AttentionMask::chunks(chunks, [queries.len(), keys.len()], device);
                if causal { chunks.and(AttentionMask::causal()) } else { chunks }
            }
            _ => {
                let shape = [1, 1, queries.len(), keys.len()];
                let pairs = queries.flat_map(|query| keys.clone().map(move |key| self.hidden(query, key)));
                let pairs = TensorData::new(pairs.collect::<Vec<bool>>(), shape);
                AttentionMask::from_hidden(Tensor::<4, Bool>::from_bool(pairs, device))
            }
        }
    }

    /// # Errors
    /// If a size is 0 or a chance is none.
    pub fn validate(self) -> Result<(), ConfigError> {
        let checks = Checks::default();
        match self {
            Self::Chunked { size, .. } => checks.size("patterns.size", size),
            Self::Strided { stride, .. } => checks.size("patterns.stride", stride),
            Self::SlidingWindow { left: 0, right: 0 } => checks.require(false, || {
                "patterns.left = 0 and patterns.right = 0 let nothing but the query itself be seen; set left to 1 or more".into()
            }),
            Self::LocalGlobal { window, .. } => checks.size("patterns.window", window),
            Self::BigBird { window, random, .. } => checks
                .size("patterns.window", window)
                .require((0.0..=1.0).contains(&random), || format!("patterns.random = {random} must be in [0, 1]")),
            _ => checks,
        }
        .finish()
    }
}

/// A number in `[0, 1)` for a pair, evenly spread: three rounds of SplitMix64 (Steele et al. 2014, figure 14).
fn chance(seed: u64, query: usize, key: usize) -> f64 {
    let mix = |state: u64, value: u64| {
        let z = (state ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let bits = mix(mix(mix(0, seed), query as u64), key as u64);
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Distribution;
    use firelight_kernels::assert_close;
    use firelight_kernels::attention;

    fn patterns() -> Vec<AttentionPattern> {
        let both = |causal| {
            [
                AttentionPattern::Chunked { size: 3, causal },
                AttentionPattern::Strided { stride: 3, causal },
                AttentionPattern::LocalGlobal { window: 1, global: 2, causal },
                AttentionPattern::BigBird { window: 1, global: 1, random: 0.3, seed: 7, causal },
            ]
        };
        let windows = [(2, 0), (9, 0), (1, 2)].map(|(left, right)| AttentionPattern::SlidingWindow { left, right });
        let simple = [AttentionPattern::Full, AttentionPattern::Causal];
        simple.into_iter().chain(windows).chain(both(true)).chain(both(false)).collect()
    }

    #[test]
    fn patterns_by_hand() {
        let seen = |pattern: AttentionPattern, query: usize| -> Vec<usize> {
            (0..8).filter(|key| !pattern.hidden(query, *key)).collect()
        };
        assert_eq!(seen(AttentionPattern::SlidingWindow { left: 2, right: 0 }, 4), [2, 3, 4]);
        assert_eq!(seen(AttentionPattern::SlidingWindow { left: 0, right: 1 }, 4), [4, 5]);
        assert_eq!(seen(AttentionPattern::Chunked { size: 3, causal: true }, 4), [3, 4]);
        assert_eq!(seen(AttentionPattern::Chunked { size: 3, causal: false }, 4), [3, 4, 5]);
        assert_eq!(seen(AttentionPattern::Strided { stride: 3, causal: true }, 7), [1, 4, 5, 6, 7]);
        assert_eq!(seen(AttentionPattern::LocalGlobal { window: 1, global: 1, causal: true }, 4), [0, 3, 4]);
        assert_eq!(seen(AttentionPattern::LocalGlobal { window: 1, global: 1, causal: false }, 0).len(), 8);
    }

    #[test]
    fn the_mask_of_a_pattern_is_its_definition_with_padding_and_after_a_cache() {
        let device = Device::default();
        let x = Tensor::<4>::random([1, 1, 8, 4], Distribution::Default, &device);
        let padding = [false, true, false, false, false, false, true, false];
        let padded =
            AttentionMask::padding(Tensor::<2, Bool>::from_bool(TensorData::new(padding.to_vec(), [1, 8]), &device));
        for (pattern, start) in patterns().into_iter().flat_map(|pattern| [(pattern, 0), (pattern, 5)]) {
            let hidden = |pair: usize| pattern.hidden(start + pair / 8, pair % 8) || padding[pair % 8];
            let pairs: Vec<bool> = (0..(8 - start) * 8).map(hidden).collect();
            let oracle = Tensor::<4, Bool>::from_bool(TensorData::new(pairs, [1, 1, 8 - start, 8]), &device);
            let query = x.clone().narrow(2, start, 8 - start);
            let attend =
                |mask: AttentionMask| attention(query.clone(), x.clone(), x.clone(), &mask.options()).into_data();
            let mask = pattern.mask(start..8, 0..8, &device).and(padded.clone());
            let expected = attend(AttentionMask::from_hidden(oracle));
            assert_close(&attend(mask), &expected, 1e-6);
        }
    }

    #[test]
    fn causal_patterns_hide_the_future_and_spans_hold() {
        for pattern in patterns() {
            let pairs = || (0..40).flat_map(|query| (0..40).map(move |key| (query, key)));
            let sees_the_future = pairs().any(|(query, key)| key > query && !pattern.hidden(query, key));
            assert_eq!(pattern.is_causal(), !sees_the_future, "{pattern:?}");
            let outside = |query: usize, key: usize| pattern.span().is_some_and(|span| key + span < query);
            assert!(pairs().all(|(query, key)| !outside(query, key) || pattern.hidden(query, key)), "{pattern:?}");
        }
    }

    #[test]
    fn a_window_is_symbolic_and_over_the_whole_sequence_nothing_but_causal() {
        let device = Device::default();
        let options = |left| AttentionPattern::SlidingWindow { left, right: 0 }.mask(0..8, 0..8, &device).options();
        for (left, window) in [(7, None), (usize::MAX, None), (6, Some(6)), (0, Some(0))] {
            let options = options(left);
            assert!(options.causal && options.hidden.is_none() && options.window == window, "{left}");
        }
    }

    #[test]
    fn chunks_are_symbolic_wherever_the_keys_begin() {
        let device = Device::default();
        for (causal, keys) in [(true, 0..8), (false, 2..8), (true, 7..8)] {
            let pattern = AttentionPattern::Chunked { size: 3, causal };
            let options = pattern.mask(7..8, keys.clone(), &device).options();
            assert!(options.causal == causal && options.hidden.is_none(), "{keys:?}");
            assert_eq!(options.chunks, Some(Chunks { size: 3, before: keys.start % 3 }));
            let pairs = options.hidden_pairs([1, 1, 1, keys.len()], &device).expect("a mask of chunks");
            let expected: Vec<bool> = keys.map(|key| pattern.hidden(7, key)).collect();
            assert_eq!(pairs.into_data().iter::<bool>().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn random_pairs_are_as_many_as_asked_for_and_others_with_another_seed() {
        let seen = |seed| -> Vec<bool> {
            let pattern = AttentionPattern::BigBird { window: 0, global: 0, random: 0.25, seed, causal: false };
            (0..10_000).map(|pair| !pattern.hidden(pair / 100, pair % 100)).collect()
        };
        let count = seen(1).iter().filter(|seen| **seen).count();
        assert!((2_300..2_900).contains(&count), "{count} of about 2,575");
        assert!(seen(1) == seen(1) && seen(1) != seen(2));
    }

    #[test]
    fn sizes_of_nothing_are_refused() {
        let error = AttentionPattern::Chunked { size: 0, causal: true }.validate().expect_err("no chunk");
        assert_eq!(error.to_string(), "patterns.size = 0 must be at least 1");
        let windows = [
            AttentionPattern::SlidingWindow { left: 0, right: 0 },
            AttentionPattern::LocalGlobal { window: 0, global: 1, causal: true },
            AttentionPattern::BigBird { window: 0, global: 1, random: 0.1, seed: 1, causal: false },
        ];
        for (pattern, key) in
            windows.into_iter().zip(["patterns.left = 0", "patterns.window = 0", "patterns.window = 0"])
        {
            assert!(pattern.validate().expect_err("no window").to_string().starts_with(key), "{pattern:?}");
        }
        AttentionPattern::SlidingWindow { left: 0, right: 1 }.validate().expect("the next key is seen");
    }
}
