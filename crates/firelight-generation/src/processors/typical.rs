//! Locally typical sampling: tokens take part whose information is near to what is expected. Source: Meister et al. 2023,
//! Locally typical sampling, §4, eq. 9 (<https://arxiv.org/abs/2202.00666>).

use super::{HIDDEN, History, LogitsProcessor, hide};
use crate::distribution::{entropy, ln, softmax};

/// Keeps the tokens whose information `-ln p` is nearest to the entropy, as many as hold this share of the probability, above 0 and
/// at most 1; among equally near ones all stay. At least one token stays.
#[doc(alias = "typical_p")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Typical(pub f64);

impl LogitsProcessor for Typical {
    fn process(&mut self, _: &History<'_>, logits: &mut [f64]) {
        if self.0 >= 1.0 {
            return;
        }
        let probabilities = softmax(logits);
        let ids: Vec<usize> = (0..logits.len()).filter(|&id| logits[id] > HIDDEN).collect();
        let entropy = entropy(&probabilities);
        let distance = |id: usize| (-ln(probabilities[id]) - entropy).abs();
        let mut nearest: Vec<(usize, f64)> = ids.into_iter().map(|id| (id, distance(id))).collect();
        nearest.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        let mut total = 0.0;
        let reached = nearest.iter().position(|&(id, _)| {
            total += probabilities[id];
            total >= self.0
        });
        let Some((_, farthest)) = reached.map(|place| nearest[place]) else { return };
        let beyond = nearest.into_iter().filter(|(_, distance)| *distance > farthest);
        hide(logits, &beyond.map(|(id, _)| id).collect::<Vec<_>>());
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
    use super::super::tests::kept;
    use super::*;

    #[test]
    fn the_best_is_not_always_typical() {
        // The tokens hold 0.69, 1.61, 1.61 and 2.30 nats; the entropy is 1.22, so they are 0.53, 0.39, 0.39 and 1.08 away.
        let probabilities = [0.5, 0.2, 0.2, 0.1];
        assert_eq!(kept(Typical(0.15), &probabilities), [1, 2], "as near, though one of them would do");
        assert_eq!(kept(Typical(0.45), &probabilities), [0, 1, 2]);
        assert_eq!(kept(Typical(0.95), &probabilities), [0, 1, 2, 3]);
        assert_eq!(kept(Typical(1.0), &probabilities), [0, 1, 2, 3]);
    }

    #[test]
    fn one_token_stays() {
        assert_eq!(kept(Typical(0.2), &[1.0, 0.0]), [0]);
    }
}
