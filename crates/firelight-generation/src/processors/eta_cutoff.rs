//! Eta sampling: tokens that are improbable both by themselves and for the entropy of the distribution take no part. Source: Hewitt, Manning and
//! Liang 2022, Truncation sampling as language model desmoothing, the definition of η-sampling (<https://arxiv.org/abs/2210.15191>), with
//! `α = √ε` as there. A token of exactly that probability stays, as in `EtaLogitsWarper` of transformers.

use super::{History, LogitsProcessor, hide_rare};
use crate::distribution::{entropy, softmax};

/// Keeps the tokens of the logits `[V]` whose probability is at least `η = min(ε, √ε · exp(-h))`, where `h` is the entropy of the distribution in
/// nats and `ε` this number, above 0 and below 1. The most probable tokens stay even if they are less probable.
///
/// ```
/// use firelight_generation::processors::{EtaCutoff, HIDDEN, History, LogitsProcessor};
///
/// // The entropy is ln 4, so η is the lesser of 0.25 and 0.5 / 4.
/// let mut logits = [0.25f64.ln(); 4];
/// EtaCutoff(0.25).process(&History::default(), &mut logits);
/// assert!(logits.iter().all(|logit| *logit != HIDDEN));
/// ```
#[doc(alias = "eta sampling")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EtaCutoff(pub f64);

impl LogitsProcessor for EtaCutoff {
    fn process(&mut self, _: &History<'_>, logits: &mut [f64]) {
        let probabilities = softmax(logits);
        let by_entropy = self.0.sqrt() * (-entropy(&probabilities)).exp();
        hide_rare(logits, &probabilities, by_entropy.min(self.0));
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

    use super::super::EpsilonCutoff;
    use super::super::tests::kept;
    use super::*;

    #[test]
    fn the_threshold_falls_with_the_entropy() {
        // The entropy is 1.75 ln 2 = 1.213 nats, and exp(-1.213) is 0.297. Of 0.36, √ε is 0.6 and η = 0.178; of 0.04, 0.2 and 0.0595, so that
        // ε itself decides.
        let probabilities = [0.125, 0.5, 0.125, 0.25];
        assert_eq!(kept(EtaCutoff(0.36), &probabilities), [1, 3]);
        assert_eq!(kept(EtaCutoff(0.04), &probabilities), [0, 1, 2, 3]);
        // Of 0.81 √ε is 0.9 and η = 0.268.
        assert_eq!(kept(EtaCutoff(0.81), &probabilities), [1]);
        // The entropy is 0.098 nats, so ε decides: η = min(0.03, 0.157).
        assert_eq!(kept(EtaCutoff(0.03), &[0.98, 0.02]), [0]);
        assert_eq!(kept(EtaCutoff(0.01), &[0.98, 0.02]), [0, 1]);
    }

    proptest! {
        #[test]
        fn what_epsilon_keeps_stays(logits in vec(-6.0f64..6.0, 1..40), epsilon in 0.001f64..0.999) {
            let (mut strict, mut found) = (logits.clone(), logits);
            EpsilonCutoff(epsilon).process(&History::default(), &mut strict);
            EtaCutoff(epsilon).process(&History::default(), &mut found);
            for (strict, found) in strict.into_iter().zip(found) {
                prop_assert!(found.is_finite() || !strict.is_finite());
            }
        }
    }
}
