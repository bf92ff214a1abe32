//! Temperature: how sharp the distribution is. Source: Ackley, Hinton, Sejnowski 1985, A Learning Algorithm for
//! Boltzmann Machines.

use super::{History, LogitsProcessor};
use crate::distribution::largest;

/// Divides every logit by the temperature, which must be finite and greater than 0: `p_i ~ exp(l_i / T)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature(pub f64);

impl LogitsProcessor for Temperature {
    fn process(&mut self, _: &History<'_>, logits: &mut [f64]) {
        // From the largest logit, so that no temperature above 0 can push all of them to infinity.
        let max = largest(logits);
        for logit in logits {
            *logit = (*logit - max) / self.0;
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
    use super::*;
    use crate::distribution::softmax;
    use crate::processors::HIDDEN;

    #[test]
    fn half_the_temperature_squares_the_odds() {
        let mut logits = [3f64.ln(), 0.0, HIDDEN]; // odds 3 to 1, then 9 to 1
        Temperature(0.5).process(&History::default(), &mut logits);
        let probabilities = softmax(&logits);
        assert!((probabilities[0] - 0.9).abs() < 1e-15);
        assert!((probabilities[1] - 0.1).abs() < 1e-15);
        assert_eq!(probabilities[2], 0.0);
    }

    #[test]
    fn the_smallest_temperature_is_greedy_and_overflows_nothing() {
        let mut logits = [5.0, 80.0, 79.0];
        Temperature(f64::MIN_POSITIVE).process(&History::default(), &mut logits);
        assert_eq!(softmax(&logits), [0.0, 1.0, 0.0]);
    }
}
