//! The best continuations of the beams of one row, chosen on the host in f64: equal logits give equal choices on every
//! backend, and among equals the earlier beam comes first, then the lower id.

use std::cmp::Ordering;

use crate::distribution::log_sum_exp;

/// A beam and one more token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    /// The index of the beam in its row.
    pub(super) beam: usize,
    /// The token that continues it.
    pub(super) token: u32,
    /// `ln` of the probability of all its new tokens, this one included.
    pub(super) log_probability: f64,
}

/// The `count` best continuations of beams with the given log-probabilities, best first. There are fewer if the others have the
/// probability 0. `None` if a row of logits is no distribution.
///
/// `logits` `[beams, V]` are the rows of the beams, one after the other. `process` may change the log-probabilities `[V]` of each
/// beam. They need not add up to 1 afterwards: as in transformers, the changed numbers are added up as they are. `next` is memory for them.
pub(super) fn best(
    logits: &[f32],
    log_probabilities: &[f64],
    count: usize,
    next: &mut Vec<f64>,
    mut process: impl FnMut(usize, &mut [f64]),
) -> Option<Vec<Candidate>> {
    let vocab_size = logits.len() / log_probabilities.len();
    let mut shortlist = Shortlist::new(count);
    for (beam, (logits, &before)) in logits.chunks_exact(vocab_size).zip(log_probabilities).enumerate() {
        let total = Some(log_sum_exp(logits)).filter(|total| total.is_finite())?;
        next.clear();
        next.extend(logits.iter().map(|&logit| f64::from(logit) - total));
        process(beam, next);
        for (id, log_probability) in next.iter().enumerate() {
            shortlist.offer(Candidate { beam, token: id as u32, log_probability: before + log_probability });
        }
    }
    Some(shortlist.candidates)
}

/// The `count` best candidates so far, best first, the earlier first among equals.
struct Shortlist {
    count: usize,
    /// The log-probability that a new candidate has to exceed.
    floor: f64,
    candidates: Vec<Candidate>,
}

impl Shortlist {
    fn new(count: usize) -> Self {
        Self { count, floor: f64::NEG_INFINITY, candidates: Vec::new() }
    }

    /// Nearly every candidate is refused by the first comparison, so a row costs about one comparison per token.
    fn offer(&mut self, new: Candidate) {
        // Also refuses a processor's NaN.
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

    fn unchanged(_: usize, _: &mut [f64]) {}

    fn best(
        logits: &[f32],
        log_probabilities: &[f64],
        count: usize,
        process: impl FnMut(usize, &mut [f64]),
    ) -> Option<Vec<Candidate>> {
        super::best(logits, log_probabilities, count, &mut Vec::new(), process)
    }

    fn ranked(logits: &[f32], log_probabilities: &[f64], count: usize) -> Vec<(usize, u32)> {
        let candidates = best(logits, log_probabilities, count, unchanged).unwrap();
        candidates.iter().map(|candidate| (candidate.beam, candidate.token)).collect()
    }

    #[test]
    fn log_probabilities_add_up() {
        // Beam 0 has 0.5 and goes on with 1/4 and 3/4, beam 1 has 0.3 and goes on with 1/2 each.
        let logits = [1.0f32, 3.0, 5.0, 5.0].map(f32::ln);
        let found = best(&logits, &[0.5f64.ln(), 0.3f64.ln()], 4, unchanged).unwrap();
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
        let found = best(&[1.0, 1.0, 1.0], &[0.0], 3, spoil).unwrap();
        assert_eq!(found.iter().map(|candidate| candidate.token).collect::<Vec<_>>(), [1]);
        assert!((found[0].log_probability + 3f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn rows_that_are_no_distribution_are_refused() {
        for row in [[0.0, f32::NAN], [0.0, f32::INFINITY], [f32::NEG_INFINITY; 2]] {
            assert_eq!(best(&[[0.0, 1.0], row].concat(), &[0.0, 0.0], 2, unchanged), None, "{row:?}");
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
