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
        let falling = |a: &f64, b: &f64| b.partial_cmp(a).unwrap_or(Ordering::Equal);
        let mut ranked = logits.to_vec();
        let (above, &mut last, _) = ranked.select_nth_unstable_by(self.0 - 1, falling);
        // Of those equal to the last one the lowest ids are kept.
        let mut equal = self.0 - above.iter().filter(|logit| **logit > last).count();
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

#[cfg(test)]
mod tests {
    use super::super::HIDDEN;
    use super::*;

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
