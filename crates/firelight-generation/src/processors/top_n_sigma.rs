//! Top-nσ: only the tokens whose logits lie within some standard deviations of the best take part. Source: Tang et al. 2024, Top-nσ: not all
//! logits are you need, §3.3, algorithm 1 (<https://arxiv.org/abs/2411.07641>).

use super::{HIDDEN, History, LogitsProcessor, hide_below};
use crate::distribution::largest;

/// Keeps the tokens whose logit is at least `max - n σ`, where `σ` is the standard deviation of the logits of this row; `n` is above 0.
/// Hidden tokens do not count towards `σ`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopNSigma(pub f64);

impl LogitsProcessor for TopNSigma {
    fn process(&mut self, _: &History<'_>, logits: &mut [f64]) {
        let known: Vec<f64> = logits.iter().copied().filter(|logit| *logit > HIDDEN).collect();
        let count = known.len() as f64;
        let mean = known.iter().sum::<f64>() / count;
        let sigma = (known.iter().map(|logit| (logit - mean).powi(2)).sum::<f64>() / count).sqrt();
        hide_below(logits, largest(&known) - self.0 * sigma);
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

    #[test]
    fn deviations_by_hand() {
        // Mean 3, deviations -3, -1, 1, 3: σ = √5 = 2.236.
        let of = |n: f64| {
            let mut logits = [0.0, 2.0, HIDDEN, 4.0, 6.0];
            TopNSigma(n).process(&History::default(), &mut logits);
            logits
        };
        assert_eq!(of(0.5), [HIDDEN, HIDDEN, HIDDEN, HIDDEN, 6.0]);
        assert_eq!(of(1.0), [HIDDEN, HIDDEN, HIDDEN, 4.0, 6.0]);
        assert_eq!(of(3.0), [0.0, 2.0, HIDDEN, 4.0, 6.0]);
    }
}
