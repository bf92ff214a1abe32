//! What a rule hides costs nothing: the tiles that both passes form, beside the pairs that the rule shows.

use super::*;
use std::collections::BTreeMap;

/// Several tiles of queries, and several of keys.
const LONG: Sizes = Sizes { b: 1, h: 2, g: 1, q: 1000, k: 1000, e: 4, f: 3 };

/// A window, BigBird, strided and a custom rule.
fn sparse_rules() -> [PairRule; 4] {
    let blocks = RandomBlocks { count: 1, size: 32, seed: 1 };
    [PairRule::window(40, 9), PairRule::big_bird(5, 1, blocks), PairRule::strided(200), PairRule::custom(FirstHalf)]
}

/// The share of all pairs that the passes form, forward and backward: no others than [`shown`], `times` each.
fn formed(case: &Case, rule: &PairRule, times: usize) -> [f64; 2] {
    let Sizes { b, h, g, q, k, e, f } = LONG;
    let tensors = [random(case, [b, h, q, e], 0), random(case, [b, g, k, e], 1), random(case, [b, g, k, f], 2)];
    let tensors = tensors.map(|tensor| tensor.require_grad());
    let options = AttentionOptions::default().with_mask(AttentionMask::rule(rule.clone()));
    let settings = extension::Settings::new(&options, &tensors[0]);
    let visits = settings.visits.clone();
    let output = extension::attention(tensors, &options, settings);
    let forward = visits.take();
    drop(output.sum().backward());
    [forward, visits.take()].map(|tiles| share(rule, tiles, times))
}

/// The share of the pairs in some tiles, which must be those of the rule.
fn share(rule: &PairRule, tiles: Vec<[Range<usize>; 2]>, times: usize) -> f64 {
    let mut of_queries = BTreeMap::<[usize; 2], Vec<usize>>::new();
    for [queries, keys] in tiles {
        let counts = of_queries.entry([queries.start, queries.end]).or_insert_with(|| vec![0; LONG.k]);
        counts[keys].iter_mut().for_each(|count| *count += 1);
    }
    let (mut next, mut pairs) = (0, 0);
    for ([start, end], counts) in of_queries {
        assert_eq!(start, next, "{rule:?}: every query is in one tile");
        let shown = shown(rule, start..end);
        let wrong = (0..LONG.k).find(|&key| counts[key] != if shown[key] { times } else { 0 });
        let counted = wrong.map(|key| counts[key]);
        assert_eq!(wrong, None, "{rule:?}: queries {start}..{end} visit a key {counted:?} times");
        (next, pairs) = (end, pairs + (end - start) * shown.iter().filter(|shown| **shown).count());
    }
    assert_eq!(next, LONG.q, "{rule:?}: every query is in one tile");
    pairs as f64 / (LONG.q * LONG.k) as f64
}

/// Whether some of the queries sees a key, by the definition of the rule, or the key lies in a short gap between such.
fn shown(rule: &PairRule, queries: Range<usize>) -> Vec<bool> {
    let is_seen = |key: &usize| queries.clone().any(|query| !rule.hidden(0, query, *key));
    let seen: Vec<usize> = (0..LONG.k).filter(is_seen).collect();
    let mut shown = vec![false; LONG.k];
    seen.iter().for_each(|&key| shown[key] = true);
    for pair in seen.windows(2).filter(|pair| pair[1] - pair[0] <= tiles::GAP + 1) {
        shown[pair[0]..pair[1]].fill(true);
    }
    shown
}

#[test]
fn tiles_form_the_pairs_that_a_rule_shows_forward_and_backward() {
    for rule in sparse_rules() {
        let shares = formed(&case(DType::F32, 1.0), &rule, LONG.h);
        assert!(shares.iter().all(|share| *share < 0.8), "{rule:?}: {shares:?} of all pairs");
    }
}

#[test]
fn blocks_form_the_pairs_that_a_rule_shows_forward_and_backward() {
    for case in block_cases() {
        // A block has more queries than the stride, so that they see every key between them.
        let [window, big_bird, _, custom] = sparse_rules().map(|rule| formed(&case, &rule, 1));
        for shares in [window, big_bird, custom] {
            assert!(shares.iter().all(|share| *share < 0.8), "{shares:?} of all pairs in {case:?}");
        }
    }
}
