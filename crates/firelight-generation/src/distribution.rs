//! One row of logits as a distribution, on the host: probabilities, the order of the tokens, and whether there is one at all.

use std::cmp::Ordering;

use crate::processors::HIDDEN;

/// The probabilities `[V]` of logits `[V]`: `exp(l_i - max) / sum`, exactly 0 for a hidden token.
///
/// ```
/// use firelight_generation::processors::{HIDDEN, softmax};
///
/// assert_eq!(softmax(&[1.0, HIDDEN, 1.0]), [0.5, 0.0, 0.5]);
/// ```
pub fn softmax(logits: &[f64]) -> Vec<f64> {
    let mut probabilities = Vec::new();
    softmax_into(logits, &mut probabilities);
    probabilities
}

/// [`softmax`] in memory that was used before.
pub(crate) fn softmax_into(logits: &[f64], probabilities: &mut Vec<f64>) {
    let max = largest(logits);
    // Behind a filter most are hidden, and an exponential is what takes time.
    let weight = |&logit: &f64| if logit == HIDDEN { 0.0 } else { (logit - max).exp() };
    probabilities.clear();
    probabilities.extend(logits.iter().map(weight));
    let total: f64 = probabilities.iter().sum();
    probabilities.iter_mut().for_each(|probability| *probability /= total);
}

/// The logarithm of a probability, finite even for 0.
pub(crate) fn ln(probability: f64) -> f64 {
    probability.max(f64::MIN_POSITIVE).ln()
}

/// What a token adds to the entropy, `-p ln p` in nats; 0 for a probability of 0.
pub(crate) fn information(probability: f64) -> f64 {
    -probability * ln(probability)
}

/// The entropy of a distribution, in nats.
pub(crate) fn entropy(probabilities: &[f64]) -> f64 {
    probabilities.iter().copied().map(information).sum()
}

/// `ln sum exp(l_i)` in double precision. Subtracts the largest logit first, so nothing overflows. Not finite if the logits are no
/// [distribution](is_distribution).
pub(crate) fn log_sum_exp<L: Copy + Into<f64>>(logits: &[L]) -> f64 {
    let logits = || logits.iter().map(|&logit| -> f64 { logit.into() });
    let max = logits().fold(HIDDEN, f64::max);
    max + logits().map(|logit| (logit - max).exp()).sum::<f64>().ln()
}

/// The largest logit; minus infinity if there is none.
pub(crate) fn largest(logits: &[f64]) -> f64 {
    let larger = |a: f64, b: f64| if b > a { b } else { a };
    // Eight at a time: one alone would wait for the one before it.
    let (eights, rest) = logits.as_chunks::<8>();
    let mut lanes = [HIDDEN; 8];
    for eight in eights {
        lanes.iter_mut().zip(eight).for_each(|(lane, &logit)| *lane = larger(*lane, logit));
    }
    // 0 has no sign, whatever the order of a 0.0 and a -0.0 was.
    lanes.iter().chain(rest).copied().fold(HIDDEN, larger) + 0.0
}

/// Orders token ids from the most to the least probable, the lower id first among equals.
pub(crate) fn by_rank<L: PartialOrd>(logits: &[L]) -> impl Fn(&usize, &usize) -> Ordering {
    // Not `total_cmp`: it would put 0.0 before -0.0, which are equal logits.
    |a, b| logits[*b].partial_cmp(&logits[*a]).unwrap_or(Ordering::Equal).then(a.cmp(b))
}

/// Whether no logit is NaN or plus infinity, and at least one is finite. Hidden tokens (minus infinity) are fine.
pub(crate) fn is_distribution(logits: &[f64]) -> bool {
    // Counted, so that several logits are looked at at a time.
    let sound = logits.iter().filter(|logit| **logit < f64::INFINITY).count();
    sound == logits.len() && logits.iter().any(|logit| logit.is_finite())
}

#[cfg(test)]
mod tests {
    use firelight_kernels::assert_close;

    use super::*;

    #[test]
    fn softmax_of_the_logarithms_is_the_distribution() {
        let logits = [0.5f64.ln(), 0.25f64.ln(), HIDDEN, 0.25f64.ln()];
        assert_close(&softmax(&logits), &[0.5, 0.25, 0.0, 0.25], 1e-12);
    }

    #[test]
    fn the_entropy_of_equal_parts_is_the_logarithm_of_their_number() {
        assert_close(
            &[entropy(&[0.25; 4]), entropy(&[0.0, 0.5, 0.5]), entropy(&[1.0])],
            &[4f64.ln(), 2f64.ln(), 0.0],
            1e-12,
        );
    }

    #[test]
    fn exponentials_overflow_at_no_offset() {
        for offset in [0.0, 1000.0, -1000.0] {
            let logits = [1f32, 2.0, 1.0].map(|weight| weight.ln() + offset);
            assert_close(&[log_sum_exp(&logits)], &[4f64.ln() + f64::from(offset)], 1e-3);
        }
        assert_close(&[log_sum_exp(&[3f64.ln(), HIDDEN, 0.0])], &[4f64.ln()], 1e-12);
    }

    #[test]
    fn the_largest_logit_is_found_at_every_place() {
        for (length, place) in (1..20).flat_map(|length| (0..length).map(move |place| (length, place))) {
            let mut logits = vec![-5.0; length];
            logits[place] = -1.5;
            assert_eq!(largest(&logits), -1.5, "{place} of {length}");
        }
        assert_eq!((largest(&[]), largest(&[HIDDEN; 9])), (HIDDEN, HIDDEN));
        assert!(largest(&[-0.0, HIDDEN]).is_sign_positive());
    }

    #[test]
    fn rows_that_are_no_distribution_are_told_apart() {
        for row in [[0.0, f64::NAN], [0.0, f64::INFINITY], [HIDDEN; 2]] {
            assert!(!is_distribution(&row) && !log_sum_exp(&row).is_finite(), "{row:?}");
        }
        assert!(!is_distribution(&[]) && !log_sum_exp::<f64>(&[]).is_finite());
        assert!(is_distribution(&[HIDDEN, 3.0]) && log_sum_exp(&[HIDDEN, 3.0]).is_finite());
    }

    #[test]
    fn equal_logits_rank_by_index_and_signs_of_zero_are_equal() {
        let logits = [-0.0, 2.0, 0.0, 2.0];
        let mut ids = vec![0, 1, 2, 3];
        ids.sort_by(by_rank(&logits));
        assert_eq!(ids, [1, 3, 0, 2]);
    }
}
