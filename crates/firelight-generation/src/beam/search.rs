//! The search of one row: its beams, its finished hypotheses, and whether it goes on.

use super::candidates::{self, Candidate};
use super::hypotheses::{Hypotheses, Hypothesis};
use super::options::{BeamOptions, EarlyStopping};
use crate::StopReason;
use crate::processors::{HIDDEN, History, Processors};

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

/// The searches of one row's groups of beams, which avoid one another's tokens.
///
/// Source: Vijayakumar et al. 2018, Diverse beam search (<https://arxiv.org/abs/1610.02424>), §3, algorithm 1, with the Hamming diversity: a
/// group's candidates lose a fixed number for each beam of the groups before it that has chosen the same token at this step.
#[derive(Clone, Debug)]
pub(super) struct Groups<'o>(Vec<Search<'o>>);

impl<'o> Groups<'o> {
    /// Each group begins with one beam, the bare prompt: more of them would all find the same.
    pub(super) fn new(options: &'o BeamOptions, prompt: &[u32]) -> Self {
        Self((0..options.groups).map(|_| Search::new(options, prompt.to_vec())).collect())
    }

    /// The unfinished hypotheses of all groups, one group behind the other; none when the row has ended.
    pub(super) fn beams(&self) -> impl Iterator<Item = &Beam> {
        self.0.iter().flat_map(|search| &search.beams)
    }

    /// The best hypotheses of all groups, best first.
    pub(super) fn into_best(self, count: usize) -> Vec<Hypothesis> {
        let mut best: Vec<Hypothesis> = self.0.into_iter().flat_map(Search::into_best).collect();
        best.sort_by(|a, b| b.score.total_cmp(&a.score));
        best.truncate(count);
        best
    }

    /// Gives every hypothesis its new token number `length` (1-based) by the `logits` `[beams, V]` of all beams.
    pub(super) fn advance(&mut self, logits: &[f32], length: usize) -> Result<(), Fault> {
        let (beams, mut rest, mut first, mut taken) = (self.beams().count(), logits, 0, Vec::new());
        let vocab_size = logits.len().checked_div(beams).unwrap_or(0);
        for search in &mut self.0 {
            let held = search.beams.len();
            let own = rest.split_off(..held * vocab_size).unwrap_or_default();
            let chosen = search.advance(own, length, &taken)?;
            search.beams.iter_mut().for_each(|beam| beam.parent += first);
            taken.extend(chosen);
            first += held;
        }
        Ok(())
    }
}

/// The search of one group of beams. It has ended when it has no beam left.
#[derive(Clone, Debug)]
struct Search<'o> {
    options: &'o BeamOptions,
    /// Number of ids before the new ones.
    prompt: usize,
    beams: Vec<Beam>,
    hypotheses: Hypotheses,
}

impl<'o> Search<'o> {
    fn new(options: &'o BeamOptions, prompt: Vec<u32>) -> Self {
        let hypotheses = Hypotheses::new(options.group_size());
        let (processors, len) = (options.processors(), prompt.len());
        let begin = Beam { ids: prompt, processors, log_probability: 0.0, parent: 0 };
        let mut search = Self { options, prompt: len, beams: vec![begin], hypotheses };
        if search.beams[0].processors.is_complete() {
            search.beams.clear();
            search.hypotheses.offer(Hypothesis { ids: Vec::new(), score: 0.0, stopped: StopReason::Complete });
        }
        search
    }

    fn into_best(self) -> Vec<Hypothesis> {
        self.hypotheses.into_best(self.options.group_size())
    }

    /// The tokens that other groups have `taken` at this step are less probable. Returns those that hypotheses go on with, or end with at
    /// their full length.
    fn advance(&mut self, logits: &[f32], length: usize, taken: &[u32]) -> Result<Vec<u32>, Fault> {
        if self.beams.is_empty() {
            return Ok(Vec::new());
        }
        let candidates = self.admitted(logits, taken)?;
        let (size, mut next, mut chosen) = (self.options.group_size(), Vec::new(), Vec::new());
        for (rank, candidate) in candidates.into_iter().enumerate() {
            match self.finishes(&candidate, length) {
                Some(stopped) if rank < size => {
                    chosen.extend((!matches!(stopped, StopReason::StopToken(_))).then_some(candidate.token));
                    self.finish(candidate, length, stopped);
                }
                None if next.len() < size => {
                    chosen.push(candidate.token);
                    next.push(self.extended(candidate));
                }
                // Too improbable to be a hypothesis, or a beam.
                _ => {}
            }
        }
        self.beams = if self.goes_on(&next, length) { next } else { Vec::new() };
        if self.beams.is_empty() && self.hypotheses.is_empty() { Err(Fault::NothingLeft) } else { Ok(chosen) }
    }

    /// The best continuations that processors admit.
    fn admitted(&mut self, logits: &[f32], taken: &[u32]) -> Result<Vec<Candidate>, Fault> {
        let before: Vec<f64> = self.beams.iter().map(|beam| beam.log_probability).collect();
        let mut refused = Vec::new();
        loop {
            let candidates = self.candidates(logits, &before, taken, &refused).ok_or(Fault::NotFinite)?;
            let known = refused.len();
            for candidate in &candidates {
                if !self.beams[candidate.beam].processors.admits(candidate.token) {
                    refused.push((candidate.beam, candidate.token));
                }
            }
            if refused.len() == known {
                return Ok(candidates);
            }
        }
    }

    /// The best continuations of all beams.
    fn candidates(
        &mut self,
        logits: &[f32],
        before: &[f64],
        taken: &[u32],
        refused: &[(usize, u32)],
    ) -> Option<Vec<Candidate>> {
        let (count, prompt) = (self.options.candidates(), self.prompt);
        let penalty = self.options.diversity_penalty;
        if self.beams[0].processors.is_empty() && taken.is_empty() {
            return candidates::best(logits, before, count);
        }
        candidates::best_processed(logits, before, count, |beam, logits| {
            let Beam { ids, processors, .. } = &mut self.beams[beam];
            taken.iter().for_each(|&token| logits[token as usize] -= penalty);
            processors.process(&History::new(ids, prompt), logits);
            let refused = refused.iter().filter(|(of, _)| *of == beam);
            refused.for_each(|&(_, token)| logits[token as usize] = HIDDEN);
        })
    }

    /// Whether a hypothesis is finished by its token, or because nothing may follow it.
    fn finishes(&self, candidate: &Candidate, length: usize) -> Option<StopReason> {
        let finished = self.options.finishes(candidate.token, length);
        let before = &self.beams[candidate.beam].processors;
        if finished.is_some() || before.is_empty() {
            return finished;
        }
        let mut processors = before.clone();
        processors.accept(candidate.token);
        processors.is_complete().then_some(StopReason::Complete)
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
        search.advance(&logs(&[[0.3, 0.5, 0.2]]), 1, &[]).unwrap();
        assert_eq!(open(&search), [(vec![1], 0), (vec![2], 0)]);
        // [1, 2] 0.30, [2, 1] 0.18, [1, 1] 0.15: two stay. [1, 0] 0.05 is a stop too improbable to be a hypothesis.
        search.advance(&logs(&[[0.1, 0.3, 0.6], [0.05, 0.9, 0.05]]), 2, &[]).unwrap();
        assert_eq!(open(&search), [(vec![1, 2], 0), (vec![2, 1], 1)]);
        assert!((probability(&search.beams[1]) - 0.18).abs() < 1e-6);
        // [1, 2, 0] 0.15 and [2, 1, 0] 0.162 stop at the full length.
        search.advance(&logs(&[[0.5, 0.25, 0.25], [0.9, 0.05, 0.05]]), 3, &[]).unwrap();
        assert!(search.beams.is_empty());
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
        search.advance(&logs(&[[0.6, 0.4]]), 1, &[]).unwrap();
        !search.beams.is_empty()
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
            search.advance(&logs(&[[0.2, 0.2, 0.6]]), 1, &[]).unwrap();
            assert_eq!(search.beams.len(), 1);
            search.advance(&logs(&[[0.01, 0.01, 0.98]]), 2, &[]).unwrap();
            search.beams.is_empty()
        };
        assert!(!ends(EarlyStopping::Heuristic));
        assert!(ends(EarlyStopping::Full));
    }

    #[test]
    fn a_row_without_beams_has_ended() {
        let options =
            BeamOptions::new(9).with_beams(1).with_stop_tokens([0, 1]).with_early_stopping(EarlyStopping::Never);
        let mut search = Search::new(&options, Vec::new());
        search.advance(&logs(&[[0.7, 0.3]]), 1, &[]).unwrap();
        search.advance(&[], 2, &[]).unwrap();
        assert_eq!(search.into_best().len(), 1);
    }

    #[test]
    fn a_group_avoids_what_those_before_it_have_chosen() {
        let options = BeamOptions::new(2).with_beams(2).with_groups(2, 1.0).with_n_best(2).with_length_penalty(0.0);
        let mut groups = Groups::new(&options, &[]);
        assert_eq!(groups.beams().count(), 2);
        // 0.5 e^-1 is below 0.3, but above 0.15.
        groups.advance(&logs(&[[0.5, 0.3, 0.2]; 2]), 1).unwrap();
        assert_eq!(groups.beams().map(|beam| (beam.ids[0], beam.parent)).collect::<Vec<_>>(), [(0, 0), (1, 1)]);
        groups.advance(&logs(&[[0.5, 0.3, 0.2], [0.7, 0.15, 0.15]]), 2).unwrap();
        assert_eq!(groups.beams().count(), 0);
        let found: Vec<(Vec<u32>, f64)> = groups.into_best(2).into_iter().map(|best| (best.ids, best.score)).collect();
        assert_eq!(found.iter().map(|best| best.0.clone()).collect::<Vec<_>>(), [vec![0, 0], vec![1, 0]]);
        // The penalty is part of the score, as in transformers.
        let expected = [0.25f64.ln(), 0.21f64.ln() - 1.0];
        assert!(found.iter().zip(expected).all(|(found, expected)| (found.1 - expected).abs() < 1e-6), "{found:?}");
    }
}
