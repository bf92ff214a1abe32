//! The changes that a row of logits goes through before a token is drawn, one file each. The sampler calls them in order
//! on the host, in f64; a token is taken out of the draw by the logit minus infinity.

mod temperature;
mod top_k;
mod top_p;

use std::cmp::Ordering;

pub use temperature::Temperature;
pub use top_k::TopK;
pub use top_p::TopP;

/// The logit of a token that can no longer be drawn.
pub const HIDDEN: f64 = f64::NEG_INFINITY;

/// One change of a row of logits `[V]`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Processor {
    /// Divides the logits by a temperature.
    Temperature(Temperature),
    /// Keeps a number of tokens.
    TopK(TopK),
    /// Keeps a share of the probability.
    TopP(TopP),
}

impl Processor {
    /// Changes the logits `[V]` of one row in place. They hold no NaN, and at least one of them is finite: this is true
    /// before and after.
    pub fn apply(&self, logits: &mut [f64]) {
        match self {
            Self::Temperature(processor) => processor.apply(logits),
            Self::TopK(processor) => processor.apply(logits),
            Self::TopP(processor) => processor.apply(logits),
        }
    }
}

/// The probabilities `[V]` of logits `[V]`: `exp(l_i - max) / sum`, exactly 0 for a hidden token.
pub fn softmax(logits: &[f64]) -> Vec<f64> {
    let max = logits.iter().copied().fold(HIDDEN, f64::max);
    let weights: Vec<f64> = logits.iter().map(|logit| (logit - max).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / total).collect()
}

/// Orders token ids from the most to the least probable, the lower id first among equals.
fn by_rank(logits: &[f64]) -> impl Fn(&usize, &usize) -> Ordering {
    // Not `total_cmp`: it would put 0.0 before -0.0, which are equal logits.
    |a, b| logits[*b].partial_cmp(&logits[*a]).unwrap_or(Ordering::Equal).then(a.cmp(b))
}

/// Takes the given tokens out of the draw.
fn hide(logits: &mut [f64], ids: &[usize]) {
    for &id in ids {
        logits[id] = HIDDEN;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn softmax_of_the_logarithms_is_the_distribution() {
        let logits = [0.5f64.ln(), 0.25f64.ln(), HIDDEN, 0.25f64.ln()];
        let probabilities = softmax(&logits);
        assert_eq!(probabilities.len(), 4);
        for (found, expected) in probabilities.iter().zip([0.5, 0.25, 0.0, 0.25]) {
            assert!((found - expected).abs() < 1e-15, "{found} {expected}");
        }
    }

    #[test]
    fn equal_logits_rank_by_index_and_signs_of_zero_are_equal() {
        let logits = [-0.0, 2.0, 0.0, 2.0];
        let mut ids = vec![0, 1, 2, 3];
        ids.sort_by(by_rank(&logits));
        assert_eq!(ids, [1, 3, 0, 2]);
    }

    proptest! {
        #[test]
        fn a_chain_keeps_the_order_and_the_best_token(
            mut logits in proptest::collection::vec(-20.0f64..20.0, 1..40),
            temperature in 0.1f64..3.0, k in 1usize..50, p in 0.01f64..=1.0,
        ) {
            let before = logits.clone();
            let best = (0..before.len()).min_by(by_rank(&before)).unwrap();
            let chain = [
                Processor::Temperature(Temperature(temperature)),
                Processor::TopK(TopK(k)),
                Processor::TopP(TopP(p)),
            ];
            chain.iter().for_each(|processor| processor.apply(&mut logits));
            prop_assert!(logits[best].is_finite());
            prop_assert!(logits.iter().filter(|logit| logit.is_finite()).count() <= k);
            for (i, j) in (0..before.len()).flat_map(|i| (0..before.len()).map(move |j| (i, j))) {
                if before[i] > before[j] { prop_assert!(logits[i] >= logits[j]); }
            }
        }
    }
}
