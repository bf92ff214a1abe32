//! Top-H: the most probable tokens take part as long as what they add to the entropy is a bounded share of it. Source: Baghaei Potraghloo et al.
//! 2025, Top-H decoding: adapting the creativity and coherence with bounded entropy in text generation, the greedy algorithm
//! (<https://arxiv.org/abs/2509.02510>). As in `TopHLogitsWarper` of transformers, and unlike the paper, the terms of the entropy are summed without
//! normalising the tokens that are kept, and the hundred most probable tokens alone are looked at.

use super::{HIDDEN, History, LogitsProcessor};
use crate::distribution::{by_rank, information, softmax};

/// How many of the most probable tokens are looked at.
const MOST: usize = 100;

/// Keeps the most probable tokens of the logits `[V]` whose terms `-p ln p` sum to at most this share, above 0 and at most 1, of the entropy of the
/// hundred most probable ones; among equals the lower ids come first. At least one token stays, and at most a hundred do.
///
/// ```
/// use firelight_generation::processors::{HIDDEN, History, LogitsProcessor, TopH};
///
/// // Each of the four tokens holds a quarter of the entropy.
/// let mut logits = [0.25f64.ln(); 4];
/// TopH(0.6).process(&History::default(), &mut logits);
/// assert_eq!(logits.map(|logit| logit == HIDDEN), [false, false, true, true]);
/// ```
#[doc(alias = "top-H decoding")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopH(pub f64);

impl LogitsProcessor for TopH {
    fn process(&mut self, _: &History<'_>, logits: &mut [f64]) {
        let ids = most_probable(logits);
        let kept: Vec<(usize, f64)> = ids.into_iter().map(|id| (id, logits[id])).collect();
        let count = self.count(&kept.iter().map(|(_, logit)| *logit).collect::<Vec<_>>());
        logits.fill(HIDDEN);
        kept.into_iter().take(count).for_each(|(id, logit)| logits[id] = logit);
    }

    fn ignores_ids(&self) -> bool {
        true
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(*self)
    }
}

impl TopH {
    /// How many of these falling logits stay.
    fn count(&self, falling: &[f64]) -> usize {
        let terms: Vec<f64> = softmax(falling).into_iter().map(information).collect();
        let most = self.0 * terms.iter().sum::<f64>();
        let mut total = 0.0;
        let fits = |term: &&f64| {
            total += **term;
            total <= most
        };
        terms.iter().take_while(fits).count().max(1)
    }
}

/// The most probable tokens that are not hidden, the best first.
fn most_probable(logits: &[f64]) -> Vec<usize> {
    let mut ids: Vec<usize> = (0..logits.len()).filter(|&id| logits[id] > HIDDEN).collect();
    if ids.len() > MOST {
        ids.select_nth_unstable_by(MOST, by_rank(logits));
        ids.truncate(MOST);
    }
    ids.sort_unstable_by(by_rank(logits));
    ids
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::tests::kept;
    use super::*;

    #[test]
    fn terms_of_the_entropy_by_hand() {
        // In bits the terms are 0.375, 0.5, 0.375 and 0.5, in the order of the probabilities 0.5, 1.0, 1.375 and 1.75.
        let probabilities = [0.125, 0.5, 0.125, 0.25];
        assert_eq!(kept(TopH(0.2), &probabilities), [1], "more than the share, but the best");
        assert_eq!(kept(TopH(0.5), &probabilities), [1]);
        assert_eq!(kept(TopH(0.6), &probabilities), [1, 3]);
        assert_eq!(kept(TopH(0.8), &probabilities), [0, 1, 3]);
        assert_eq!(kept(TopH(1.0), &probabilities), [0, 1, 2, 3]);
        assert_eq!(kept(TopH(0.5), &[0.0, 1.0]), [1], "without entropy");
    }

    #[test]
    fn a_hundred_tokens_are_looked_at() {
        assert_eq!(kept(TopH(1.0), &[1.0 / 120.0; 120]), (0..MOST).collect::<Vec<_>>());
        // A half of the entropy of a hundred, not of all.
        assert_eq!(kept(TopH(0.505), &[1.0 / 120.0; 120]).len(), 50);
    }

    proptest! {
        #[test]
        fn a_greater_share_keeps_more(logits in vec(-6.0f64..6.0, 1..130), h in 0.01f64..=1.0, part in 0.01f64..=1.0) {
            let of = |h| {
                let mut logits = logits.clone();
                TopH(h).process(&History::default(), &mut logits);
                (0..logits.len()).filter(|&id| logits[id].is_finite()).collect::<Vec<_>>()
            };
            let (few, many) = (of(h * part), of(h));
            prop_assert!(!few.is_empty() && few.iter().all(|id| many.contains(id)));
        }
    }
}
