//! Top-p, or nucleus sampling: the fewest tokens that hold a share of the probability take part in the draw. Source:
//! Holtzman et al. 2020, The Curious Case of Neural Text Degeneration, §3.1, eq. 2 (<https://arxiv.org/abs/1904.09751>).

use super::{HIDDEN, History, LogitsProcessor, hide};
use crate::distribution::{by_rank, softmax};

/// Keeps the smallest set of the most probable tokens whose probabilities sum to at least this share, above 0 and at
/// most 1; among equals the lower ids come first. At least one token stays.
#[doc(alias = "nucleus sampling")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopP(pub f64);

impl LogitsProcessor for TopP {
    fn process(&mut self, _: &History<'_>, logits: &mut [f64]) {
        if self.0 >= 1.0 {
            return;
        }
        let probabilities = softmax(logits);
        let mut ids: Vec<usize> = (0..logits.len()).filter(|&id| logits[id] > HIDDEN).collect();
        ids.sort_unstable_by(by_rank(logits));
        let nucleus = self.nucleus_len(ids.iter().map(|&id| probabilities[id]));
        hide(logits, &ids[nucleus.min(ids.len())..]);
    }

    fn ignores_ids(&self) -> bool {
        true
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(*self)
    }
}

impl TopP {
    /// How many of the falling probabilities it takes to reach the share.
    fn nucleus_len(&self, falling: impl Iterator<Item = f64>) -> usize {
        let mut total = 0.0;
        let before_each = falling.map(|probability| {
            let before = total;
            total += probability;
            before
        });
        before_each.take_while(|before| *before < self.0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(p: f64, probabilities: &[f64]) -> Vec<usize> {
        let mut logits: Vec<f64> = probabilities.iter().map(|probability| probability.ln()).collect();
        TopP(p).process(&History::default(), &mut logits);
        (0..logits.len()).filter(|&id| logits[id] != HIDDEN).collect()
    }

    #[test]
    fn the_fewest_tokens_that_reach_the_share_stay() {
        let probabilities = [0.1, 0.5, 0.05, 0.35]; // falling: 0.5, 0.85, 0.95, 1.0
        assert_eq!(kept(0.4, &probabilities), [1]);
        assert_eq!(kept(0.6, &probabilities), [1, 3]);
        assert_eq!(kept(0.9, &probabilities), [0, 1, 3]);
        assert_eq!(kept(0.99, &probabilities), [0, 1, 2, 3]);
    }

    #[test]
    fn a_tiny_share_keeps_the_best_and_a_full_one_keeps_all() {
        assert_eq!(kept(1e-9, &[0.25, 0.5, 0.25]), [1]);
        assert_eq!(kept(1.0, &[0.25, 0.5, 0.25]), [0, 1, 2]);
    }

    #[test]
    fn among_equals_the_lower_ids_stay() {
        assert_eq!(kept(0.45, &[0.25; 4]), [0, 1]);
    }
}
