//! Which tokens see which, in one layer and through several.

use std::ops::Range;
use std::sync::Arc;

use firelight_core::PairRule;
use firelight_storage::InputError;

use crate::figure::{ColourScale, Figure, HeatMap, check_size, numbers};

/// Through how many layers a token must go until it knows of another one: `[N, N]`, by the token that reads and the one that is read; 0 where
/// all of them are too few. The layers see what their `rules` show, and each keeps what its token knew before, by its residual connection.
///
/// It is the receptive field: after `L` layers the boolean product of the layers' own patterns, each with the diagonal.
///
/// ```
/// use firelight_core::PairRule;
/// use firelight_inspect::layers_to_reach;
///
/// let found = layers_to_reach(&[PairRule::window(1, 0), PairRule::window(1, 0)], 4);
/// assert_eq!(found[3], [0, 2, 1, 1]); // Two tokens back after two layers, and no further.
/// ```
pub fn layers_to_reach(rules: &[PairRule], length: usize) -> Vec<Vec<usize>> {
    let same = first_of_each(rules);
    let itself = usize::from(!rules.is_empty()); // A token knows of itself after any layer, whatever that adds.
    let mut first: Vec<Vec<usize>> =
        (0..length).map(|row| (0..length).map(|key| if key == row { itself } else { 0 }).collect()).collect();
    let mut known: Vec<TokenSet> = (0..length).map(|token| TokenSet::of(token, length)).collect();
    let mut since = 0; // The first layer after the last one that has added something.
    for (layer, rule) in rules.iter().enumerate() {
        // The same rule has added nothing to what is still known.
        if same[since..layer].contains(&same[layer]) {
            continue;
        }
        let next: Vec<TokenSet> = (0..length).map(|query| seen_through(rule, query, &known)).collect();
        if next == known {
            continue;
        }
        (known, since) = (next, layer + 1);
        for (row, set) in first.iter_mut().zip(&known) {
            let new = row.iter_mut().enumerate().filter(|(key, number)| **number == 0 && set.has(*key));
            new.for_each(|(_, number)| *number = layer + 1);
        }
    }
    first
}

/// For every layer the first one that has its rule.
fn first_of_each(rules: &[PairRule]) -> Vec<usize> {
    let first = |layer: usize| rules[..layer].iter().position(|other| is_same(&rules[layer], other)).unwrap_or(layer);
    (0..rules.len()).map(first).collect()
}

/// Whether two rules are written alike; those that only hide the same pairs are not.
fn is_same(one: &PairRule, other: &PairRule) -> bool {
    match (one, other) {
        (PairRule::Full, PairRule::Full) | (PairRule::Causal, PairRule::Causal) => true,
        (PairRule::Window { left: a, right: b }, PairRule::Window { left, right }) => (a, b) == (left, right),
        (PairRule::Chunks { size: a }, PairRule::Chunks { size: b })
        | (PairRule::Multiples { stride: a }, PairRule::Multiples { stride: b })
        | (PairRule::Global { tokens: a }, PairRule::Global { tokens: b }) => a == b,
        (PairRule::Prefix { lengths: a }, PairRule::Prefix { lengths: b }) => a == b,
        (PairRule::Random(a), PairRule::Random(b)) => a == b,
        (PairRule::Documents(a), PairRule::Documents(b)) => Arc::ptr_eq(a, b),
        (PairRule::Custom(a), PairRule::Custom(b)) => Arc::ptr_eq(a, b),
        (PairRule::And(a), PairRule::And(b)) | (PairRule::Or(a), PairRule::Or(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| is_same(a, b))
        }
        _ => false,
    }
}

/// What a token knows after a layer: what it knew, and what those knew that it sees.
fn seen_through(rule: &PairRule, query: usize, known: &[TokenSet]) -> TokenSet {
    let mut set = known[query].clone();
    let keys: Range<usize> = 0..known.len();
    rule.visible_keys(0, query, keys).iter().flatten().for_each(|key| set.join(&known[key]));
    set
}

/// Tokens, a bit for each.
#[derive(Clone, PartialEq)]
struct TokenSet(Vec<u64>);

impl TokenSet {
    fn of(token: usize, length: usize) -> Self {
        let mut words = vec![0; length.div_ceil(64)];
        words[token / 64] |= 1 << (token % 64);
        Self(words)
    }

    fn has(&self, token: usize) -> bool {
        (self.0[token / 64] >> (token % 64)) & 1 == 1
    }

    fn join(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }
}

/// The patterns of layers, each once with the layers that have it, and below them what a token reaches through all of the layers. `name`
/// stands in front of the titles; it may be empty.
///
/// # Errors
/// If there is no layer, or `length` is 0 or more than 1,024.
///
/// ```
/// use firelight_core::PairRule;
/// use firelight_inspect::mask_figure;
///
/// let figure = mask_figure("", &[PairRule::Causal, PairRule::Causal], 16)?;
/// assert!(figure.maps[0].title.starts_with("what a token sees in every layer"));
/// assert!(figure.remarks[0].contains("reaches 16 of 16 tokens"));
/// # Ok::<(), firelight_storage::InputError>(())
/// ```
pub fn mask_figure(name: &str, rules: &[PairRule], length: usize) -> Result<Figure, InputError> {
    check_size("--length", length)?;
    check_size("--layers", rules.len())?;
    let name = if name.is_empty() { String::new() } else { format!("{name}: ") };
    let map = |title: String, values: Vec<Vec<f64>>, steps: usize| {
        HeatMap::new(title, numbers(length), numbers(length), values).with_scale(ColourScale::Steps(steps))
    };
    let of_pattern = |(layers, pattern): (Vec<usize>, Vec<Vec<f64>>)| {
        let title =
            format!("{name}what a token sees in {}: a row reads, a column is read", called(&layers, rules.len()));
        map(title, pattern, 1)
    };
    let mut maps: Vec<HeatMap> = patterns(rules, length).into_iter().map(of_pattern).collect();
    let reached = layers_to_reach(rules, length);
    let title = format!("{name}what a token reaches through {}, and after how many", layers(rules.len()));
    let values = reached.iter().map(|row| row.iter().map(|number| *number as f64).collect()).collect();
    maps.push(map(title, values, rules.len()));
    let remark = format!("{name}{}", summary(&reached, rules.len()));
    Ok(Figure::new("Attention pattern", maps).with_remark(remark))
}

/// The patterns that differ, 1 where a key is seen, each with its layers.
fn patterns(rules: &[PairRule], length: usize) -> Vec<(Vec<usize>, Vec<Vec<f64>>)> {
    let same = first_of_each(rules);
    let mut found: Vec<(Vec<usize>, Vec<Vec<f64>>)> = Vec::new();
    for (layer, rule) in rules.iter().enumerate() {
        if let Some((layers, _)) = found.iter_mut().find(|(layers, _)| layers.contains(&same[layer])) {
            layers.push(layer);
            continue;
        }
        let seen = |query: usize| (0..length).map(|key| f64::from(!rule.hidden(0, query, key))).collect();
        let pattern: Vec<Vec<f64>> = (0..length).map(seen).collect();
        match found.iter_mut().find(|(_, known)| *known == pattern) {
            Some((layers, _)) => layers.push(layer),
            None => found.push((vec![layer], pattern)),
        }
    }
    found
}

/// Some of the layers in words.
fn called(layers: &[usize], all: usize) -> String {
    let names: Vec<String> = layers.iter().map(ToString::to_string).collect();
    match layers.len() {
        count if count == all => "every layer".into(),
        1 => format!("layer {}", names[0]),
        _ => format!("layers {}", names.join(", ")),
    }
}

fn layers(count: usize) -> String {
    if count == 1 { "1 layer".into() } else { format!("{count} layers") }
}

/// How far the last token reaches.
fn summary(reached: &[Vec<usize>], count: usize) -> String {
    let row = reached.last().map_or(&[][..], Vec::as_slice);
    let number = row.iter().filter(|layer| **layer > 0).count();
    let farthest = row.iter().position(|layer| *layer > 0).map_or(0, |key| row.len() - 1 - key);
    let layers = layers(count);
    format!("Through {layers} the last token reaches {number} of {} tokens, the farthest {farthest} back.", row.len())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use firelight_core::{MaskRule, RandomBlocks};
    use proptest::prelude::*;

    /// Causal, and counts how often it is asked.
    #[derive(Debug)]
    struct Counted(Arc<AtomicUsize>);

    impl MaskRule for Counted {
        fn hidden(&self, _row: usize, query: usize, key: usize) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            key > query
        }
    }

    #[test]
    fn rules_are_asked_until_a_turn_of_them_adds_nothing() {
        let count = Arc::new(AtomicUsize::new(0));
        let [one, other] = [0, 1].map(|_| PairRule::custom(Counted(count.clone())));
        let rules = [vec![one; 500], vec![other; 500]].concat();
        assert_eq!(layers_to_reach(&rules, 4)[3], [1; 4]);
        // All 16 pairs: in the first layer, in the second one, which adds nothing, and in the first layer of the other rule.
        assert_eq!(count.swap(0, Ordering::Relaxed), 16 * 3);
        assert_eq!(layers_to_reach(&rules[..500], 4)[3], [1; 4]);
        assert_eq!(count.swap(0, Ordering::Relaxed), 16 * 2);
        // A pattern of each rule, and the same again.
        assert_eq!(mask_figure("", &rules, 4).unwrap().maps.len(), 2);
        assert_eq!(count.load(Ordering::Relaxed), 16 * (2 + 3));
    }

    #[test]
    fn a_pattern_that_adds_nothing_now_does_not_hide_what_a_later_one_adds() {
        let [chunks, window] = [PairRule::Chunks { size: 2 }, PairRule::window(1, 0)];
        let rules = [chunks.clone(), chunks.clone(), window.clone(), chunks.clone(), window];
        assert_eq!(layers_to_reach(&rules, 6)[4], [5, 5, 3, 3, 1, 1]);
        assert!(is_same(&chunks, &rules[0]) && !is_same(&chunks, &PairRule::Chunks { size: 3 }));
        assert_eq!(first_of_each(&rules), [0, 0, 2, 0, 2]);
    }

    #[test]
    fn a_window_of_two_reaches_six_tokens_back_through_three_layers() {
        let window = || PairRule::window(2, 0);
        let found = layers_to_reach(&[window(), window(), window()], 9);
        assert_eq!(found[8], [0, 0, 3, 3, 2, 2, 1, 1, 1]);
        assert_eq!(found[1], [1, 1, 0, 0, 0, 0, 0, 0, 0]);
        let figure = mask_figure("", &[window(), window(), window()], 9).unwrap();
        assert_eq!(figure.remarks, ["Through 3 layers the last token reaches 7 of 9 tokens, the farthest 6 back."]);
        assert_eq!(figure.maps.len(), 2);
    }

    #[test]
    fn a_layer_that_sees_all_ends_it_and_chunks_never_meet() {
        let chunks = || PairRule::Chunks { size: 2 };
        assert_eq!(layers_to_reach(&[chunks(), chunks(), chunks()], 4)[0], [1, 1, 0, 0]);
        assert_eq!(layers_to_reach(&[chunks(), PairRule::Full], 4)[0], [1, 1, 2, 2]);
        // More tokens than a word has bits.
        let multiples = PairRule::Multiples { stride: 3 };
        assert_eq!(layers_to_reach(&[multiples], 70)[69][63..], [1, 0, 0, 1, 0, 0, 1]);
        let figure = mask_figure("decoder", &[chunks(), PairRule::Full, chunks()], 4).unwrap();
        let titles: Vec<&str> = figure.maps.iter().map(|map| map.title.as_str()).collect();
        assert!(titles[0].starts_with("decoder: what a token sees in layers 0, 2:"), "{titles:?}");
        assert!(titles[1].contains("in layer 1:") && titles[2].contains("through 3 layers"), "{titles:?}");
        assert!(figure.to_text().contains("##..") && figure.to_text().contains("1122"));
    }

    #[test]
    fn sizes_of_nothing_and_too_much_are_refused() {
        let fails = |rules: &[PairRule], length| mask_figure("", rules, length).unwrap_err().to_string();
        assert!(fails(&[], 4).contains("--layers = 0"));
        assert!(fails(&[PairRule::Full], 5000).contains("--length = 5000"));
    }

    proptest! {
        /// Boolean products of matrices, pair by pair.
        #[test]
        fn it_is_the_boolean_product_of_the_patterns(
            left in 0usize..4, right in 0usize..3, stride in 1usize..4, seed in 0u64..9, length in 1usize..20,
        ) {
            let blocks = RandomBlocks { count: 1, size: 3, seed };
            let rules = [PairRule::window(left, right), PairRule::Multiples { stride }, PairRule::Random(blocks)];
            let mut known: Vec<Vec<bool>> = (0..length).map(|row| (0..length).map(|key| row == key).collect()).collect();
            let found = layers_to_reach(&rules, length);
            for (layer, rule) in rules.iter().enumerate() {
                let sees = |row: usize, key: usize| row == key || !rule.hidden(0, row, key);
                let knows = |row, key: usize| (0..length).any(|between| sees(row, between) && known[between][key]);
                known = (0..length).map(|row| (0..length).map(|key| knows(row, key)).collect()).collect();
                for (row, knows) in known.iter().enumerate() {
                    for (key, knows) in knows.iter().enumerate() {
                        prop_assert_eq!(*knows, (1..=layer + 1).contains(&found[row][key]));
                    }
                }
            }
        }
    }
}
