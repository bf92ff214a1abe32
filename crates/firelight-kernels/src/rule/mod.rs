//! Attention masks as functions of the positions of query and key. [`PairRule`] is the one type for them: the
//! reference asks [`PairRule::hidden`] for every pair, and the kernels visit what [`PairRule::visible_keys`] returns and nothing else.
//!
//! The model is FlexAttention's `mask_mod` with its `BlockMask` (Dong et al. 2024, <https://arxiv.org/abs/2412.05496>).
//! Different here: a rule gives ranges of keys, from which every kernel cuts tiles of its own size.

mod documents;
mod key_ranges;
mod random;

pub use documents::Documents;
pub use key_ranges::KeyRanges;
pub use random::RandomBlocks;

use burn::tensor::{Int, Tensor};
use std::fmt::Debug;
use std::iter::once;
use std::ops::Range;
use std::sync::Arc;

/// A custom mask rule: [`PairRule::custom`] makes a [`PairRule`] of it.
///
/// ```
/// use firelight_kernels::{MaskRule, PairRule};
///
/// /// Even tokens see even ones, odd ones odd ones.
/// #[derive(Debug)]
/// struct Parity;
///
/// impl MaskRule for Parity {
///     fn hidden(&self, _row: usize, query: usize, key: usize) -> bool {
///         query % 2 != key % 2
///     }
/// }
///
/// let rule = PairRule::custom(Parity).and(PairRule::Causal);
/// assert_eq!(rule.grid(0, 4), "#...\n.#..\n#.#.\n.#.#\n");
/// ```
#[doc(alias = "mask_mod")]
pub trait MaskRule: Debug + Send + Sync {
    /// Whether the key at position `key` is hidden from the query at position `query` in batch row `row`.
    fn hidden(&self, row: usize, query: usize, key: usize) -> bool;

    /// The keys among `keys` that are not hidden. The default calls [`hidden`](Self::hidden) for each of them, which takes time in the
    /// square of the length; override it where the visible keys are a few ranges.
    fn visible_keys(&self, row: usize, query: usize, keys: Range<usize>) -> KeyRanges {
        keys.filter(|&key| !self.hidden(row, query, key)).map(|key| key..key + 1).collect()
    }

    /// Whether rows of a batch differ. Default: yes.
    fn varies_by_row(&self) -> bool {
        true
    }

    /// Whether no query sees a later key. Only such rules can be used with a cache. Default: no.
    fn is_causal(&self) -> bool {
        false
    }

    /// The most tokens that a query can look back; a cache drops older keys. Default: no limit.
    fn max_lookback(&self) -> Option<usize> {
        None
    }
}

/// A mask rule: which keys are hidden from which queries. The default hides none.
///
/// A position is the index of a token in its row, those in a cache counted, and padding, too.
///
/// ```
/// use firelight_kernels::{PairRule, Tile};
///
/// // A sliding window with two global tokens, as Longformer.
/// let rule = PairRule::window(1, 1).or(PairRule::Global { tokens: 1 });
/// assert_eq!(rule.grid(0, 5), "#####\n###..\n####.\n#.###\n#..##\n");
/// assert_eq!(rule.tile(0, 3..5, 1..2), Tile::Empty);
/// ```
#[doc(alias = "BlockMask")]
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum PairRule {
    /// Every query sees every key.
    #[default]
    Full,
    /// A query sees itself and what stands before it.
    Causal,
    /// A query sees itself, the `left` keys before it and the `right` keys behind it.
    Window {
        /// Keys before the query.
        left: usize,
        /// Keys behind it.
        right: usize,
    },
    /// A query sees its own chunk of the row.
    Chunks {
        /// Tokens of a chunk.
        size: usize,
    },
    /// A query sees the keys at multiples of a distance, itself included.
    Multiples {
        /// The distance.
        stride: usize,
    },
    /// The first tokens of a row see all and are seen by all.
    Global {
        /// Their number.
        tokens: usize,
    },
    /// Every query sees the first keys of its row.
    Prefix {
        /// Number of keys, one for all rows of a batch or one for each.
        lengths: Arc<[usize]>,
    },
    /// Random blocks of keys for every block of queries.
    Random(RandomBlocks),
    /// A query sees the tokens of its own document.
    Documents(Arc<Documents>),
    /// A custom rule.
    Custom(Arc<dyn MaskRule>),
    /// A query sees what it sees by all of these.
    And(Arc<[PairRule]>),
    /// A query sees what it sees by any of these.
    Or(Arc<[PairRule]>),
}

/// How much of a tile of queries and keys a rule hides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tile {
    /// Every pair.
    Empty,
    /// Some pairs.
    Partial,
    /// No pair.
    Full,
}

impl PairRule {
    /// A sliding window: the query, `left` keys before it and `right` behind it.
    #[doc(alias = "sliding window")]
    pub fn window(left: usize, right: usize) -> Self {
        Self::Window { left, right }
    }

    /// Neighbours up to a distance, and every key at a multiple of it; Child et al. 2019, §4.2
    /// (<https://arxiv.org/abs/1904.10509>). Different here: both sets stand together in one head.
    pub fn strided(stride: usize) -> Self {
        Self::window(stride, stride).or(Self::Multiples { stride })
    }

    /// Neighbours, and global tokens at the beginning of the row; Longformer, Beltagy et al. 2020, §3.1
    /// (<https://arxiv.org/abs/2004.05150>).
    pub fn local_global(window: usize, tokens: usize) -> Self {
        Self::window(window, window).or(Self::Global { tokens })
    }

    /// Neighbours, global tokens and random blocks; Zaheer et al. 2020, §2 (<https://arxiv.org/abs/2007.14062>).
    pub fn big_bird(window: usize, tokens: usize, blocks: RandomBlocks) -> Self {
        Self::local_global(window, tokens).or(Self::Random(blocks))
    }

    /// A prefix that sees itself whole, before a text that sees its past; Raffel et al. 2020, §3.2.1
    /// (<https://arxiv.org/abs/1910.10683>). `lengths`: of one prefix for all rows of a batch, or of one for each.
    pub fn prefix_lm(lengths: &[usize]) -> Self {
        Self::Causal.or(Self::Prefix { lengths: lengths.into() })
    }

    /// Hides other documents: `names` is `[B | 1, T]`, the document of every token of a row from position 0 on. Any number is a
    /// name. They are read from the device once.
    pub fn documents(names: &Tensor<2, Int>) -> Self {
        Self::Documents(Arc::new(Documents::read(names)))
    }

    /// A custom rule.
    pub fn custom(rule: impl MaskRule + 'static) -> Self {
        Self::Custom(Arc::new(rule))
    }

    /// Hides what either rule hides.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Full, rule) | (rule, Self::Full) => rule,
            (a, b) => Self::And([a, b].into()),
        }
    }

    /// Hides what both rules hide.
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Full, _) | (_, Self::Full) => Self::Full,
            (a, b) => Self::Or([a, b].into()),
        }
    }

    /// Whether the key at position `key` is hidden from the query at position `query` in batch row `row`: the definition of
    /// the rule.
    ///
    /// # Panics
    /// If documents are not named up to these positions.
    pub fn hidden(&self, row: usize, query: usize, key: usize) -> bool {
        match self {
            Self::Full => false,
            Self::Causal => key > query,
            Self::Window { left, right } => key.saturating_add(*left) < query || key > query.saturating_add(*right),
            Self::Chunks { size } => query / size != key / size,
            Self::Multiples { stride } => !query.abs_diff(key).is_multiple_of(*stride),
            Self::Global { tokens } => query.min(key) >= *tokens,
            Self::Prefix { lengths } => key >= of_row(lengths, row),
            Self::Random(blocks) => !blocks.shows(query, key),
            Self::Documents(documents) => documents.hidden(row, query, key),
            Self::Custom(rule) => rule.hidden(row, query, key),
            Self::And(rules) => rules.iter().any(|rule| rule.hidden(row, query, key)),
            Self::Or(rules) => rules.iter().all(|rule| rule.hidden(row, query, key)),
        }
    }

    /// The keys among `keys` that a query sees.
    ///
    /// # Panics
    /// If documents are not named up to the query.
    pub fn visible_keys(&self, row: usize, query: usize, keys: Range<usize>) -> KeyRanges {
        let within = |start: usize, end: usize| {
            let mut ranges = KeyRanges::default();
            ranges.push(keys.start.max(start)..keys.end.min(end));
            ranges
        };
        match self {
            Self::Full => within(0, usize::MAX),
            Self::Causal => within(0, query + 1),
            Self::Window { left, right } => {
                within(query.saturating_sub(*left), query.saturating_add(*right).saturating_add(1))
            }
            Self::Chunks { size } => within(query / size * size, (query / size * size).saturating_add(*size)),
            Self::Multiples { stride } => multiples(query, *stride, keys),
            Self::Global { tokens } => within(0, if query < *tokens { usize::MAX } else { *tokens }),
            Self::Prefix { lengths } => within(0, of_row(lengths, row)),
            Self::Random(blocks) => blocks.visible_keys(query, keys),
            Self::Documents(documents) => documents.visible_keys(row, query, keys),
            Self::Custom(rule) => rule.visible_keys(row, query, keys),
            Self::And(rules) => {
                let hull = |seen: &KeyRanges| seen.hull();
                rules
                    .iter()
                    .fold(within(0, usize::MAX), |seen, rule| seen.and(&rule.visible_keys(row, query, hull(&seen))))
            }
            Self::Or(rules) => rules
                .iter()
                .fold(KeyRanges::default(), |seen, rule| seen.or(&rule.visible_keys(row, query, keys.clone()))),
        }
    }

    /// The keys among `keys` that some query of `queries` may see: all of them, and possibly a few that no query sees.
    ///
    /// # Panics
    /// If documents are not named up to the last query.
    pub fn keys_visible_to_any(&self, row: usize, queries: Range<usize>, keys: Range<usize>) -> KeyRanges {
        if queries.is_empty() || keys.is_empty() {
            return KeyRanges::default();
        }
        let (first, last) = (queries.start, queries.end - 1);
        match self {
            // From query to query both ends move forward, and no key between them is left out.
            Self::Full | Self::Causal | Self::Window { .. } | Self::Chunks { .. } | Self::Prefix { .. } => {
                let [first, last] = [first, last].map(|query| self.visible_keys(row, query, keys.clone()));
                match (first.is_empty(), last.is_empty()) {
                    (false, false) => once(first.hull().start..last.hull().end).collect(),
                    _ => self.keys_visible_to_each(row, queries, keys),
                }
            }
            Self::Global { .. } => self.visible_keys(row, first, keys),
            Self::Random(blocks) => blocks.keys_visible_to_any(queries, keys),
            Self::And(rules) => {
                let all = once(keys.clone()).collect();
                rules.iter().fold(all, |seen: KeyRanges, rule| {
                    seen.and(&rule.keys_visible_to_any(row, queries.clone(), seen.hull()))
                })
            }
            Self::Or(rules) => rules.iter().fold(KeyRanges::default(), |seen, rule| {
                seen.or(&rule.keys_visible_to_any(row, queries.clone(), keys.clone()))
            }),
            Self::Multiples { .. } | Self::Documents(_) | Self::Custom(_) => {
                self.keys_visible_to_each(row, queries, keys)
            }
        }
    }

    /// The keys that some query sees, from one query after the other.
    fn keys_visible_to_each(&self, row: usize, queries: Range<usize>, keys: Range<usize>) -> KeyRanges {
        queries.fold(KeyRanges::default(), |seen, query| seen.or(&self.visible_keys(row, query, keys.clone())))
    }

    /// What the rule hides of some queries and keys.
    pub fn tile(&self, row: usize, queries: Range<usize>, keys: Range<usize>) -> Tile {
        let (mut some, mut all) = (false, true);
        for query in queries {
            let seen = self.visible_keys(row, query, keys.clone());
            some |= !seen.is_empty();
            all &= seen.covers(&keys);
            if some && !all {
                return Tile::Partial;
            }
        }
        if some { Tile::Full } else { Tile::Empty }
    }

    /// Whether rows of a batch differ.
    pub fn varies_by_row(&self) -> bool {
        match self {
            Self::Prefix { lengths } => lengths.len() > 1,
            Self::Documents(documents) => documents.varies_by_row(),
            Self::Custom(rule) => rule.varies_by_row(),
            Self::And(rules) | Self::Or(rules) => rules.iter().any(Self::varies_by_row),
            _ => false,
        }
    }

    /// Whether no query sees a later key, as far as the parts of the rule tell.
    pub fn is_causal(&self) -> bool {
        match self {
            Self::Causal | Self::Window { right: 0, .. } => true,
            Self::Custom(rule) => rule.is_causal(),
            Self::And(rules) => rules.iter().any(Self::is_causal),
            Self::Or(rules) => rules.iter().all(Self::is_causal),
            _ => false,
        }
    }

    /// The most tokens that a query can look back, as far as the parts of the rule tell; a cache drops older keys. `None` means no
    /// limit.
    pub fn max_lookback(&self) -> Option<usize> {
        match self {
            Self::Window { left, .. } => Some(*left),
            Self::Chunks { size } => Some(size.saturating_sub(1)),
            Self::Custom(rule) => rule.max_lookback(),
            Self::And(rules) => rules.iter().filter_map(Self::max_lookback).min(),
            Self::Or(rules) => rules.iter().map(Self::max_lookback).try_fold(0, |most, back| Some(most.max(back?))),
            _ => None,
        }
    }

    /// The mask of the first `length` tokens as text, a line for each query: `#` where the key is visible, `.` where it is hidden.
    pub fn grid(&self, row: usize, length: usize) -> String {
        let character = |query, key| if self.hidden(row, query, key) { '.' } else { '#' };
        (0..length).flat_map(|query| (0..length).map(move |key| character(query, key)).chain(['\n'])).collect()
    }
}

/// What belongs to a row of the batch, where there may be one for all.
fn of_row(values: &[usize], row: usize) -> usize {
    values[if values.len() == 1 { 0 } else { row }]
}

fn multiples(query: usize, stride: usize, keys: Range<usize>) -> KeyRanges {
    let [rest, first] = [query, keys.start].map(|position| position % stride);
    // Sums would overflow where the stride is near the largest number.
    let missing = if rest >= first { rest - first } else { stride - (first - rest) };
    (keys.start.saturating_add(missing)..keys.end).step_by(stride).map(|key| key..key + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    /// Sees the keys whose bit is set in the product of the positions: no range to be had.
    #[derive(Debug)]
    struct Bits;

    impl MaskRule for Bits {
        fn hidden(&self, row: usize, query: usize, key: usize) -> bool {
            (query * key + row) % 3 == 1
        }
    }

    fn names() -> Tensor<2, Int> {
        let together = [3, 3, 3, 3, 7, 7, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 2, 2, 2];
        let mixed: [i64; 20] = std::array::from_fn(|token| (token / 3 * 5 % 4) as i64 - 1);
        Tensor::from_ints([together, mixed], &Device::default())
    }

    #[test]
    fn multiples_of_the_largest_distance_are_the_key_itself() {
        let found = |query, keys| {
            multiples(query, usize::MAX, keys).iter().map(|range| (range.start, range.end)).collect::<Vec<_>>()
        };
        assert_eq!(found(5, 2..9), [(5, 6)]);
        assert!(found(2, 5..9).is_empty() && found(9, 2..9).is_empty());
        assert_eq!(PairRule::strided(usize::MAX).visible_keys(0, 1, 0..3).hull(), 0..3);
    }

    pub(crate) fn rules() -> Vec<PairRule> {
        let blocks = RandomBlocks { count: 2, size: 3, seed: 5 };
        let atoms = vec![
            PairRule::Full,
            PairRule::Causal,
            PairRule::window(2, 0),
            PairRule::window(1, 3),
            PairRule::window(usize::MAX, usize::MAX),
            PairRule::Chunks { size: 4 },
            PairRule::Chunks { size: usize::MAX },
            PairRule::Multiples { stride: 3 },
            PairRule::Global { tokens: 2 },
            PairRule::Prefix { lengths: [3, 5].into() },
            PairRule::Random(blocks),
            PairRule::documents(&names()),
            PairRule::custom(Bits),
        ];
        let both = |rule: fn(PairRule, PairRule) -> PairRule| {
            let atoms = &atoms;
            let pairs = (0..atoms.len()).flat_map(move |a| (0..a).map(move |b| [a, b]));
            pairs.map(move |[a, b]| rule(atoms[a].clone(), atoms[b].clone())).collect::<Vec<_>>()
        };
        let named = [
            PairRule::strided(4),
            PairRule::local_global(1, 2),
            PairRule::big_bird(1, 1, blocks),
            PairRule::big_bird(1, 1, blocks).and(PairRule::Causal),
            PairRule::prefix_lm(&[4]),
        ];
        [atoms.clone(), both(PairRule::and), both(PairRule::or), named.to_vec()].concat()
    }

    #[test]
    fn seen_keys_are_those_that_are_not_hidden() {
        for (rule, row) in rules().into_iter().flat_map(|rule| [(rule.clone(), 0), (rule, 1)]) {
            for (query, keys) in (0..20).flat_map(|query| [(query, 0..20), (query, 5..13), (query, 7..7)]) {
                let expected: Vec<usize> = keys.clone().filter(|&key| !rule.hidden(row, query, key)).collect();
                let found: Vec<usize> = rule.visible_keys(row, query, keys.clone()).iter().flatten().collect();
                assert_eq!(found, expected, "{rule:?}: row {row}, query {query}, keys {keys:?}");
            }
        }
    }

    #[test]
    fn no_key_that_some_query_sees_is_missing_and_of_one_rule_none_is_too_many() {
        for (rule, row) in rules().into_iter().flat_map(|rule| [(rule.clone(), 0), (rule, 1)]) {
            for (queries, keys) in [(0..20, 0..20), (3..4, 0..20), (6..13, 2..15), (15..20, 0..6), (4..4, 0..20)] {
                let seen = |key: &usize| queries.clone().any(|query| !rule.hidden(row, query, *key));
                let expected: Vec<usize> = keys.clone().filter(seen).collect();
                let found: Vec<usize> =
                    rule.keys_visible_to_any(row, queries.clone(), keys.clone()).iter().flatten().collect();
                assert!(expected.iter().all(|key| found.contains(key)), "{rule:?}: {queries:?} see {expected:?}");
                assert!(matches!(rule, PairRule::And(_)) || found == expected, "{rule:?}: {queries:?}: {found:?}");
            }
        }
    }

    #[test]
    fn tiles_are_empty_or_full_when_all_their_pairs_are() {
        for rule in rules() {
            for (queries, keys) in [(0..4, 0..4), (4..9, 2..3), (10..12, 0..20), (6..8, 9..11), (3..4, 17..20)] {
                let pairs = queries.clone().flat_map(|query| keys.clone().map(move |key| (query, key)));
                let hidden: Vec<bool> = pairs.map(|(query, key)| rule.hidden(0, query, key)).collect();
                let expected = match (hidden.contains(&true), hidden.contains(&false)) {
                    (true, false) => Tile::Empty,
                    (false, true) => Tile::Full,
                    _ => Tile::Partial,
                };
                assert_eq!(rule.tile(0, queries, keys), expected, "{rule:?}");
            }
        }
    }

    #[test]
    fn what_a_rule_says_of_itself_holds_for_every_pair() {
        let pairs = || (0..20).flat_map(|query| (0..20).map(move |key| (query, key)));
        for rule in rules() {
            let seen: Vec<_> = pairs().filter(|&(query, key)| !rule.hidden(0, query, key)).collect();
            assert!(!rule.is_causal() || seen.iter().all(|(query, key)| key <= query), "{rule:?}");
            let far = |span: usize| seen.iter().any(|(query, key)| key.saturating_add(span) < *query);
            assert!(rule.max_lookback().is_none_or(|span| !far(span)), "{rule:?}");
            let differs = pairs().any(|(query, key)| rule.hidden(0, query, key) != rule.hidden(1, query, key));
            assert!(rule.varies_by_row() || !differs, "{rule:?}");
        }
        assert_eq!(PairRule::window(3, 0).or(PairRule::Chunks { size: 9 }).max_lookback(), Some(8));
        assert_eq!(PairRule::window(3, 0).and(PairRule::Causal).max_lookback(), Some(3));
        assert!(
            PairRule::big_bird(1, 1, RandomBlocks { count: 1, size: 2, seed: 1 }).and(PairRule::Causal).is_causal()
        );
    }

    #[test]
    fn grids_by_hand() {
        let grid = |rule: PairRule| rule.grid(0, 4);
        assert_eq!(grid(PairRule::Causal), "#...\n##..\n###.\n####\n");
        assert_eq!(grid(PairRule::window(0, 1)), "##..\n.##.\n..##\n...#\n");
        assert_eq!(grid(PairRule::Chunks { size: 3 }), "###.\n###.\n###.\n...#\n");
        assert_eq!(grid(PairRule::strided(2)), "###.\n####\n####\n.###\n");
        assert_eq!(grid(PairRule::prefix_lm(&[2])), "##..\n##..\n###.\n####\n");
        assert_eq!(PairRule::documents(&names()).grid(0, 5), "####.\n####.\n####.\n####.\n....#\n");
    }
}
