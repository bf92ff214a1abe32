//! The search of one row: its beams, its finished hypotheses, and whether it goes on.

use super::candidates::{self, Candidate};
use super::hypotheses::{Hypotheses, Hypothesis};
use super::options::{BeamOptions, EarlyStopping};
use crate::StopReason;
use crate::processors::{History, Processors};

/// An unfinished hypothesis.
#[derive(Clone, Debug)]
pub(super) struct Beam {
    /// Those of the prompt, and the new ones.
    ids: Vec<u32>,
    processors: Processors,
    log_probability: f64,
    parent: usize,
}

impl Beam {
    /// Which of the row's beams before the last step it continues.
    pub(super) fn parent(&self) -> usize {
        self.parent
    }

    /// The token that the model has not read yet.
    pub(super) fn last(&self) -> Option<u32> {
        self.ids.last().copied()
    }
}

/// Why a search cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Logits are no distribution.
    NotFinite,
    /// Processors have hidden every token of every beam, and nothing is finished.
    NothingLeft,
}

/// The search of one row. It has ended when it has no beam left.
#[derive(Clone, Debug)]
pub(super) struct Search<'o> {
    options: &'o BeamOptions,
    /// Number of ids before the new ones.
    prompt: usize,
    beams: Vec<Beam>,
    hypotheses: Hypotheses,
}

impl<'o> Search<'o> {
    /// Begins with one beam, the bare prompt: more of them would all find the same.
    pub(super) fn new(options: &'o BeamOptions, prompt: Vec<u32>) -> Self {
        let hypotheses = Hypotheses::new(options.beams);
        let (processors, len) = (options.processors(), prompt.len());
        let begin = Beam { ids: prompt, processors, log_probability: 0.0, parent: 0 };
        Self { options, prompt: len, beams: vec![begin], hypotheses }
    }

    /// The unfinished hypotheses, best first; none when the row has ended.
    pub(super) fn beams(&self) -> &[Beam] {
        &self.beams
    }

    /// The best hypotheses, best first.
    pub(super) fn into_best(self) -> Vec<Hypothesis> {
        self.hypotheses.into_best(self.options.n_best)
    }

    /// Gives every hypothesis its new token number `length` (1-based) by the `logits` `[beams, V]` of all beams.
    pub(super) fn advance(&mut self, logits: &[f32], length: usize) -> Result<(), Fault> {
        if self.beams.is_empty() {
            return Ok(());
        }
        let before: Vec<f64> = self.beams.iter().map(|beam| beam.log_probability).collect();
        let candidates = self.candidates(logits, &before).ok_or(Fault::NotFinite)?;
        if candidates.is_empty() && self.hypotheses.is_empty() {
            return Err(Fault::NothingLeft);
        }
        let mut next = Vec::new();
        for (rank, candidate) in candidates.into_iter().enumerate() {
            match self.options.finishes(candidate.token, length) {
                Some(stopped) if rank < self.options.beams => self.finish(candidate, length, stopped),
                None if next.len() < self.options.beams => next.push(self.extended(candidate)),
                // Too improbable to be a hypothesis, or a beam.
                _ => {}
            }
        }
        self.beams = if self.goes_on(&next, length) { next } else { Vec::new() };
        Ok(())
    }

    /// The best continuations of all beams.
    fn candidates(&mut self, logits: &[f32], before: &[f64]) -> Option<Vec<Candidate>> {
        let (count, prompt) = (self.options.candidates(), self.prompt);
        if self.beams[0].processors.is_empty() {
            return candidates::best(logits, before, count);
        }
        candidates::best_processed(logits, before, count, |beam, logits| {
            let Beam { ids, processors, .. } = &mut self.beams[beam];
            processors.process(&History::new(ids, prompt), logits);
        })
    }

    fn extended(&self, candidate: Candidate) -> Beam {
        let Beam { mut ids, mut processors, .. } = self.beams[candidate.beam].clone();
        ids.push(candidate.token);
        processors.accept(candidate.token);
        Beam { ids, processors, log_probability: candidate.log_probability, parent: candidate.beam }
    }

    fn finish(&mut self, candidate: Candidate, length: usize, stopped: StopReason) {
        let mut ids = self.extended(candidate).ids.split_off(self.prompt);
        if matches!(stopped, StopReason::StopToken(_)) {
            ids.pop();
        }
        let score = self.options.score(candidate.log_probability, length);
        self.hypotheses.offer(Hypothesis { ids, score, stopped });
    }

    /// Whether hypotheses of this length (`beams`, best first) may still become results.
    fn goes_on(&self, beams: &[Beam], length: usize) -> bool {
        let Some(best) = beams.first() else { return false };
        let Some(worst) = self.hypotheses.worst_score() else { return true };
        let reach = match self.options.early_stopping {
            EarlyStopping::Full => return false,
            EarlyStopping::Never if self.options.length_penalty > 0.0 => self.options.max_new_tokens,
            EarlyStopping::Heuristic | EarlyStopping::Never => length,
        };
        self.options.score(best.log_probability, reach) > worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logits of one row for each beam.
    fn logs<const V: usize>(probabilities: &[[f32; V]]) -> Vec<f32> {
        probabilities.concat().into_iter().map(f32::ln).collect()
    }

    fn open(search: &Search) -> Vec<(Vec<u32>, usize)> {
        search.beams.iter().map(|beam| (beam.ids.clone(), beam.parent)).collect()
    }

    fn probability(beam: &Beam) -> f64 {
        beam.log_probability.exp()
    }

    #[test]
    fn two_beams_by_hand() {
        // Id 0 stops. After one token: 0.5 for [1], 0.3 for [0], 0.2 for [2].
        let options = BeamOptions::new(3).with_beams(2).with_n_best(2).with_length_penalty(0.0).with_stop_tokens([0]);
        let mut search = Search::new(&options, Vec::new());
        search.advance(&logs(&[[0.3, 0.5, 0.2]]), 1).unwrap();
        assert_eq!(open(&search), [(vec![1], 0), (vec![2], 0)]);
        // [1, 2] 0.30, [2, 1] 0.18, [1, 1] 0.15: two stay. [1, 0] 0.05 is a stop too improbable to be a hypothesis.
        search.advance(&logs(&[[0.1, 0.3, 0.6], [0.05, 0.9, 0.05]]), 2).unwrap();
        assert_eq!(open(&search), [(vec![1, 2], 0), (vec![2, 1], 1)]);
        assert!((probability(&search.beams[1]) - 0.18).abs() < 1e-6);
        // [1, 2, 0] 0.15 and [2, 1, 0] 0.162 stop at the full length.
        search.advance(&logs(&[[0.5, 0.25, 0.25], [0.9, 0.05, 0.05]]), 3).unwrap();
        assert!(search.beams().is_empty());
        let found = search.into_best();
        assert_eq!(found[0].ids, [0; 0]);
        assert!((found[0].score - 0.3f64.ln()).abs() < 1e-6);
        assert_eq!(found[1].ids, [2, 1]);
        assert!((found[1].score - 0.162f64.ln()).abs() < 1e-6);
        assert!(found.iter().all(|hypothesis| hypothesis.stopped == StopReason::StopToken(0)));
    }

    /// Whether one beam goes on after a stop of probability 0.6, with 0.4 for the rest, at the first of ten tokens.
    fn goes_on_after_a_stop(early_stopping: EarlyStopping, length_penalty: f64) -> bool {
        let options = BeamOptions::new(10).with_beams(1).with_stop_tokens([0]);
        let options = options.with_length_penalty(length_penalty).with_early_stopping(early_stopping);
        let mut search = Search::new(&options, Vec::new());
        search.advance(&logs(&[[0.6, 0.4]]), 1).unwrap();
        !search.beams().is_empty()
    }

    #[test]
    fn a_full_row_goes_on_as_long_as_it_may_improve() {
        // ln 0.4 / 10 is above ln 0.6, ln 0.4 is not.
        assert!(goes_on_after_a_stop(EarlyStopping::Never, 1.0));
        assert!(!goes_on_after_a_stop(EarlyStopping::Never, 0.0));
        assert!(!goes_on_after_a_stop(EarlyStopping::Never, -1.0));
        assert!(!goes_on_after_a_stop(EarlyStopping::Heuristic, 1.0));
        assert!(!goes_on_after_a_stop(EarlyStopping::Full, 1.0));
    }

    #[test]
    fn a_full_row_with_a_better_beam_ends_only_if_asked_to() {
        // The stop has 0.4 and is in the first two, so is the beam that is better than it.
        let ends = |early_stopping| {
            let options =
                BeamOptions::new(10).with_beams(2).with_stop_tokens([0, 1]).with_early_stopping(early_stopping);
            let mut search = Search::new(&options, Vec::new());
            search.advance(&logs(&[[0.2, 0.2, 0.6]]), 1).unwrap();
            assert_eq!(search.beams().len(), 1);
            search.advance(&logs(&[[0.01, 0.01, 0.98]]), 2).unwrap();
            search.beams().is_empty()
        };
        assert!(!ends(EarlyStopping::Heuristic));
        assert!(ends(EarlyStopping::Full));
    }

    #[test]
    fn a_row_without_beams_has_ended() {
        let options =
            BeamOptions::new(9).with_beams(1).with_stop_tokens([0, 1]).with_early_stopping(EarlyStopping::Never);
        let mut search = Search::new(&options, Vec::new());
        search.advance(&logs(&[[0.7, 0.3]]), 1).unwrap();
        search.advance(&[], 2).unwrap();
        assert_eq!(search.into_best().len(), 1);
    }
}
