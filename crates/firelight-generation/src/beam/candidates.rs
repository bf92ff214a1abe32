//! The best continuations of the beams of one row, chosen on the host in f64: equal logits give equal choices on every
//! backend, and among equals the earlier beam comes first, then the lower id.

use std::cmp::Ordering;

/// A beam with one token more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    /// Which of the row's beams.
    pub(super) beam: usize,
    /// The id that it goes on with.
    pub(super) token: u32,
    /// The logarithm of the probability of all its new tokens.
    pub(super) log_probability: f64,
}

/// The `count` best continuations of beams with the given log-probabilities, best first; `logits` `[beams, V]` follow one
/// another. Tokens of probability 0 continue nothing, so there may be fewer. `None` if a row of logits is no distribution.
pub(super) fn best(logits: &[f32], log_probabilities: &[f64], count: usize) -> Option<Vec<Candidate>> {
    let vocab_size = logits.len() / log_probabilities.len();
    let mut shortlist = Shortlist::new(count);
    for (beam, (row, &before)) in logits.chunks_exact(vocab_size).zip(log_probabilities).enumerate() {
        let offset = before - log_sum_exp(row).filter(|total| total.is_finite())?;
        for (id, &logit) in row.iter().enumerate() {
            shortlist.offer(Candidate { beam, token: id as u32, log_probability: f64::from(logit) + offset });
        }
    }
    Some(shortlist.candidates)
}

/// The same, of log-probabilities that `process` changes, beam by beam. What it leaves need be no distribution: as in transformers, the
/// numbers are added up as they are.
pub(super) fn best_processed(
    logits: &[f32],
    log_probabilities: &[f64],
    count: usize,
    mut process: impl FnMut(usize, &mut [f64]),
) -> Option<Vec<Candidate>> {
    let vocab_size = logits.len() / log_probabilities.len();
    let mut shortlist = Shortlist::new(count);
    for (beam, (row, &before)) in logits.chunks_exact(vocab_size).zip(log_probabilities).enumerate() {
        let total = log_sum_exp(row).filter(|total| total.is_finite())?;
        let mut row: Vec<f64> = row.iter().map(|&logit| f64::from(logit) - total).collect();
        process(beam, &mut row);
        for (id, log_probability) in row.into_iter().enumerate() {
            shortlist.offer(Candidate { beam, token: id as u32, log_probability: log_probability + before });
        }
    }
    Some(shortlist.candidates)
}

/// `ln sum exp(l_i)`; not finite if the logits are no distribution: NaN, plus infinity, or minus infinity alone.
fn log_sum_exp(logits: &[f32]) -> Option<f64> {
    let max = f64::from(logits.iter().copied().reduce(f32::max)?);
    let total: f64 = logits.iter().map(|&logit| (f64::from(logit) - max).exp()).sum();
    Some(max + total.ln())
}

/// The best of what it was offered, best first, the earlier first among equals.
struct Shortlist {
    count: usize,
    floor: f64,
    candidates: Vec<Candidate>,
}

impl Shortlist {
    fn new(count: usize) -> Self {
        Self { count, floor: f64::NEG_INFINITY, candidates: Vec::new() }
    }

    /// Nearly all that is offered ends at the first line, so that a row costs one comparison per token.
    fn offer(&mut self, new: Candidate) {
        // A processor's NaN is no candidate.
        if new.log_probability.partial_cmp(&self.floor) != Some(Ordering::Greater) {
            return;
        }
        let place = self.candidates.partition_point(|kept| kept.log_probability >= new.log_probability);
        self.candidates.insert(place, new);
        self.candidates.truncate(self.count);
        if let Some(last) = self.candidates.get(self.count - 1) {
            self.floor = last.log_probability;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranked(logits: &[f32], log_probabilities: &[f64], count: usize) -> Vec<(usize, u32)> {
        let candidates = best(logits, log_probabilities, count).unwrap();
        candidates.iter().map(|candidate| (candidate.beam, candidate.token)).collect()
    }

    #[test]
    fn log_probabilities_add_up() {
        // Beam 0 has 0.5 and goes on with 1/4 and 3/4, beam 1 has 0.3 and goes on with 1/2 each.
        let logits = [1.0f32, 3.0, 5.0, 5.0].map(f32::ln);
        let found = best(&logits, &[0.5f64.ln(), 0.3f64.ln()], 4).unwrap();
        let expected = [(0, 1, 0.375f64), (1, 0, 0.15), (1, 1, 0.15), (0, 0, 0.125)];
        assert_eq!(found.len(), 4);
        for (found, (beam, token, probability)) in found.iter().zip(expected) {
            assert_eq!((found.beam, found.token), (beam, token));
            assert!((found.log_probability - probability.ln()).abs() < 1e-7, "{found:?}");
        }
    }

    #[test]
    fn among_equals_the_earlier_beam_and_the_lower_id_come_first() {
        assert_eq!(ranked(&[2.0; 6], &[-1.0, -1.0], 4), [(0, 0), (0, 1), (0, 2), (1, 0)]);
        assert_eq!(ranked(&[2.0; 6], &[-1.0, -0.5], 4), [(1, 0), (1, 1), (1, 2), (0, 0)]);
    }

    #[test]
    fn hidden_tokens_continue_nothing() {
        assert_eq!(ranked(&[f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY], &[0.0], 3), [(0, 1)]);
    }

    #[test]
    fn a_processor_hides_or_spoils_without_harm() {
        let spoil = |_: usize, row: &mut [f64]| (row[0], row[2]) = (f64::NAN, f64::NEG_INFINITY);
        let found = best_processed(&[1.0, 1.0, 1.0], &[0.0], 3, spoil).unwrap();
        assert_eq!(found.iter().map(|candidate| candidate.token).collect::<Vec<_>>(), [1]);
        assert!((found[0].log_probability + 3f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn rows_that_are_no_distribution_are_refused() {
        for row in [[0.0, f32::NAN], [0.0, f32::INFINITY], [f32::NEG_INFINITY; 2]] {
            assert_eq!(best(&[[0.0, 1.0], row].concat(), &[0.0, 0.0], 2), None, "{row:?}");
        }
    }

    proptest! {
        #[test]
        fn the_shortlist_is_the_start_of_a_stable_sort(
            values in proptest::collection::vec(-4i32..4, 1..60), count in 1usize..20,
        ) {
            let all = values.iter().enumerate().map(|(id, &value)| {
                Candidate { beam: 0, token: id as u32, log_probability: f64::from(value) }
            });
            let mut expected: Vec<Candidate> = all.clone().collect();
            expected.sort_by(|a, b| b.log_probability.total_cmp(&a.log_probability));
            expected.truncate(count);
            let mut shortlist = Shortlist::new(count);
            all.for_each(|candidate| shortlist.offer(candidate));
            prop_assert_eq!(shortlist.candidates, expected);
        }
    }
}
