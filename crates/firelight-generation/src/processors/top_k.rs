//! Top-k: only the most probable tokens take part in the draw. Source: Fan, Lewis, Dauphin 2018, Hierarchical Neural
//! Story Generation, §5.4 (<https://arxiv.org/abs/1805.04833>).

use std::cmp::Ordering;

use super::{HIDDEN, History, LogitsProcessor};

/// Keeps this many tokens (at least 1), those with the highest logits; among equal logits the lower ids stay, so never
/// more than `k` remain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopK(pub usize);

impl LogitsProcessor for TopK {
    fn process(&mut self, _: &History<'_>, logits: &mut [f64]) {
        if self.0 >= logits.len() {
            return;
        }
        let highest = highest(logits, self.0);
        let last = highest[self.0 - 1];
        // Of those equal to the last one the lowest ids are kept.
        let mut equal = self.0 - highest.iter().filter(|logit| **logit > last).count();
        for logit in logits.iter_mut().filter(|logit| **logit <= last) {
            match *logit == last && equal > 0 {
                true => equal -= 1,
                false => *logit = HIDDEN,
            }
        }
    }

    fn ignores_ids(&self) -> bool {
        true
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(*self)
    }
}

/// The `k` highest of at least `k` logits, with `k` at least 1; the lowest of them stands last. Twice as many are held at most: a copy of a whole
/// vocabulary would cost more than the comparison with the lowest.
fn highest(logits: &[f64], k: usize) -> Vec<f64> {
    let mut held = Vec::with_capacity(logits.len().min(2 * k));
    let mut least = HIDDEN;
    for &logit in logits {
        if held.len() < k || logit > least {
            held.push(logit);
        }
        if held.len() == 2 * k {
            least = keep_highest(&mut held, k);
        }
    }
    keep_highest(&mut held, k);
    held
}

/// Keeps `k` of the logits and returns the lowest of them, which stands last then.
fn keep_highest(logits: &mut Vec<f64>, k: usize) -> f64 {
    let falling = |a: &f64, b: &f64| b.partial_cmp(a).unwrap_or(Ordering::Equal);
    let (_, &mut least, _) = logits.select_nth_unstable_by(k - 1, falling);
    logits.truncate(k);
    least
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::HIDDEN;
    use super::*;

    proptest! {
        #[test]
        fn the_highest_are_the_beginning_of_a_sorted_list(
            logits in proptest::collection::vec(prop_oneof![4 => -3i32..3, 1 => Just(-9)], 1..80), share in 0.0f64..1.0,
        ) {
            let logits: Vec<f64> = logits.into_iter().map(|n| if n == -9 { HIDDEN } else { f64::from(n) }).collect();
            let k = 1 + (share * logits.len() as f64) as usize;
            let mut sorted = logits.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            let mut found = highest(&logits, k);
            prop_assert_eq!(found[k - 1], sorted[k - 1]);
            found.sort_by(|a, b| b.total_cmp(a));
            prop_assert_eq!(&found[..], &sorted[..k]);
        }
    }

    fn kept(k: usize, logits: &[f64]) -> Vec<usize> {
        let mut logits = logits.to_vec();
        TopK(k).process(&History::default(), &mut logits);
        (0..logits.len()).filter(|&id| logits[id] != HIDDEN).collect()
    }

    #[test]
    fn the_highest_logits_stay_as_they_are() {
        let mut logits = [0.5, 2.0, -1.0, 1.0];
        TopK(2).process(&History::default(), &mut logits);
        assert_eq!(logits, [HIDDEN, 2.0, HIDDEN, 1.0]);
    }

    #[test]
    fn among_equals_the_lower_ids_stay() {
        assert_eq!(kept(3, &[1.0, 7.0, 1.0, 1.0, 1.0]), [0, 1, 2]);
        assert_eq!(kept(1, &[4.0; 6]), [0]);
    }

    #[test]
    fn more_than_the_vocabulary_keeps_everything() {
        assert_eq!(kept(4, &[1.0, 2.0]), [0, 1]);
    }
}
