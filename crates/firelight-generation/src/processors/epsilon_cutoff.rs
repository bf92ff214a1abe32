//! Epsilon sampling: tokens that are improbable by themselves take no part. Source: Hewitt, Manning and Liang 2022, Truncation sampling as
//! language model desmoothing, the definition of ε-sampling (<https://arxiv.org/abs/2210.15191>). A token of exactly that probability stays, as
//! in `EpsilonLogitsWarper` of transformers.

use super::{History, LogitsProcessor, hide_rare};
use crate::distribution::softmax;

/// Keeps the tokens of the logits `[V]` whose probability is at least this number, above 0 and below 1. The most probable tokens stay even if
/// they are less probable.
///
/// ```
/// use firelight_generation::processors::{EpsilonCutoff, HIDDEN, History, LogitsProcessor};
///
/// let mut logits = [0.5f64, 0.375, 0.125].map(f64::ln);
/// EpsilonCutoff(0.25).process(&History::default(), &mut logits);
/// assert!(logits[..2].iter().all(|logit| logit.is_finite()) && logits[2] == HIDDEN);
/// ```
#[doc(alias = "epsilon sampling")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpsilonCutoff(pub f64);

impl LogitsProcessor for EpsilonCutoff {
    fn process(&mut self, _: &History<'_>, logits: &mut [f64]) {
        let probabilities = softmax(logits);
        hide_rare(logits, &probabilities, self.0);
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
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::tests::kept;
    use super::*;

    #[test]
    fn probable_tokens_stay_and_so_do_the_best() {
        let probabilities = [0.1, 0.5, 0.05, 0.35];
        assert_eq!(kept(EpsilonCutoff(0.04), &probabilities), [0, 1, 2, 3]);
        assert_eq!(kept(EpsilonCutoff(0.2), &probabilities), [1, 3]);
        assert_eq!(kept(EpsilonCutoff(0.9), &probabilities), [1]);
        assert_eq!(kept(EpsilonCutoff(0.9), &[0.4, 0.2, 0.4]), [0, 2], "both are the best");
    }

    proptest! {
        #[test]
        fn a_token_stays_if_it_is_probable_or_the_best(logits in vec(-6.0f64..6.0, 1..40), epsilon in 0.001f64..0.999) {
            let (mut found, probabilities) = (logits.clone(), softmax(&logits));
            EpsilonCutoff(epsilon).process(&History::default(), &mut found);
            let best = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let stays = |id: usize| probabilities[id] >= epsilon || logits[id] == best;
            prop_assert!((0..logits.len()).all(|id| found[id].is_finite() == stays(id)));
        }
    }
}
