//! The search of one row: its beams, its finished hypotheses, and whether it goes on.

use super::candidates::{self, Candidate};
use super::hypotheses::{Hypotheses, Hypothesis};
use super::options::{BeamOptions, EarlyStopping};
use crate::processors::{HIDDEN, History, Processors};
use crate::{Generated, GenerationError, StopReason, TokenScore};

/// The log-probability of a token that processors force where they leave nothing: so improbable that any other hypothesis comes first.
const FORCED: f64 = -100.0;

/// An unfinished hypothesis.
#[derive(Clone, Debug)]
pub(super) struct Beam {
    /// The prompt, then the new ids.
    ids: Vec<u32>,
    processors: Processors,
    /// Those of the new ids, if they are asked for.
    scores: Vec<TokenScore>,
    log_probability: f64,
    /// The index of the beam that it continued in the last step, among the beams of its row.
    parent: usize,
}

impl Beam {
    /// The index of the beam that it continued in the last step, among the beams of its row.
    pub(super) fn parent(&self) -> usize {
        self.parent
    }

    /// The token that the model has not read yet.
    pub(super) fn last(&self) -> Option<u32> {
        self.ids.last().copied()
    }
}

/// What processors said of continuations at a step: a beam and a token each.
#[derive(Debug, Default)]
struct Asked {
    refused: Vec<(usize, u32)>,
    /// Those of the last candidates, which are the best.
    admitted: Vec<(usize, u32)>,
}

impl Asked {
    /// Hides the tokens that were refused to a beam; if those are too many, all but its admitted ones.
    fn hide(&self, beam: usize, processors: &Processors, logits: &mut [f64]) {
        let refused: Vec<u32> = self.refused.iter().filter(|(of, _)| *of == beam).map(|(_, token)| *token).collect();
        refused.iter().for_each(|&token| logits[token as usize] = HIDDEN);
        if processors.gives_up(refused.len()) {
            let others = (0..logits.len()).filter(|&id| !self.admitted.contains(&(beam, id as u32)));
            others.for_each(|id| logits[id] = HIDDEN);
        }
    }
}

/// Why a search cannot go on.
#[derive(Debug)]
pub(super) enum Fault {
    /// Logits are no distribution.
    NotFinite,
    /// Processors hide every token of every beam, and no hypothesis is finished.
    NothingLeft,
    /// A processor fails.
    Processor(Box<GenerationError>),
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

    /// The unfinished hypotheses of all groups, group after group; none when the row has ended.
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

    /// What was written before an error: the best finished hypothesis, or else the best unfinished one, completed.
    pub(super) fn into_written(mut self) -> Generated {
        let open = self.0.iter_mut().find_map(Search::best_beam).unwrap_or_default();
        match self.into_best(1).pop() {
            Some(Hypothesis { ids, scores, stop_reason, .. }) => Generated { ids, scores, stop_reason },
            None => Generated { ids: open.0, scores: open.1, stop_reason: StopReason::Failed },
        }
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
    /// Log-probabilities of one beam: memory that every step uses again.
    memory: Vec<f64>,
}

impl<'o> Search<'o> {
    fn new(options: &'o BeamOptions, prompt: Vec<u32>) -> Self {
        let hypotheses = Hypotheses::new(options.group_size());
        let (processors, len) = (options.processors(), prompt.len());
        let begin = Beam { ids: prompt, processors, scores: Vec::new(), log_probability: 0.0, parent: 0 };
        let mut search = Self { options, prompt: len, beams: vec![begin], hypotheses, memory: Vec::new() };
        if search.beams[0].processors.is_complete() {
            search.beams.clear();
            let (ids, scores, stop_reason) = (Vec::new(), Vec::new(), StopReason::Complete);
            search.hypotheses.offer(Hypothesis { ids, score: 0.0, scores, stop_reason });
        }
        search
    }

    /// The new ids of the best unfinished hypothesis, and those that complete it, with the scores of those that were chosen.
    fn best_beam(&mut self) -> Option<(Vec<u32>, Vec<TokenScore>)> {
        let beam = self.beams.first_mut()?;
        let mut ids = beam.ids[self.prompt..].to_vec();
        ids.extend(beam.processors.closing(&ids));
        Some((ids, beam.scores.clone()))
    }

    fn into_best(self) -> Vec<Hypothesis> {
        self.hypotheses.into_best(self.options.group_size())
    }

    /// Gives every hypothesis of the group its new token number `length`. Tokens that other groups have `taken` at this step are penalised.
    /// Returns the tokens of the hypotheses that go on or reach the full length.
    fn advance(&mut self, logits: &[f32], length: usize, taken: &[u32]) -> Result<Vec<u32>, Fault> {
        if self.beams.is_empty() {
            return Ok(Vec::new());
        }
        let candidates = self.admitted(logits, taken)?;
        self.finish_complete(length);
        let (size, mut next, mut chosen) = (self.options.group_size(), Vec::new(), Vec::new());
        for (rank, candidate) in candidates.into_iter().enumerate() {
            match self.finishes(&candidate, length) {
                Some(stop_reason) if rank < size => {
                    chosen.extend((!matches!(stop_reason, StopReason::StopToken(_))).then_some(candidate.token));
                    self.finish(candidate, logits, length, stop_reason);
                }
                None if next.len() < size => {
                    chosen.push(candidate.token);
                    next.push(self.extended(candidate, logits));
                }
                // Too improbable to be a hypothesis, or a beam.
                _ => {}
            }
        }
        let beams = if self.goes_on(&next, length) { next } else { Vec::new() };
        if beams.is_empty() && self.hypotheses.is_empty() {
            return Err(Fault::NothingLeft); // The beams before this token are what was written.
        }
        self.beams = beams;
        Ok(chosen)
    }

    /// The best continuations that processors admit.
    fn admitted(&mut self, logits: &[f32], taken: &[u32]) -> Result<Vec<Candidate>, Fault> {
        let before: Vec<f64> = self.beams.iter().map(|beam| beam.log_probability).collect();
        let mut asked = Asked::default();
        loop {
            let candidates = self.candidates(logits, &before, taken, &asked)?;
            let known = asked.refused.len();
            asked.admitted.clear();
            for candidate in &candidates {
                let pair = (candidate.beam, candidate.token);
                // A token that was refused comes again only as the fallback.
                if asked.refused.contains(&pair) {
                    continue;
                }
                match self.beams[candidate.beam].processors.admits(candidate.token) {
                    true => asked.admitted.push(pair),
                    false => asked.refused.push(pair),
                }
            }
            if asked.refused.len() == known {
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
        asked: &Asked,
    ) -> Result<Vec<Candidate>, Fault> {
        let (count, prompt) = (self.options.candidates(), self.prompt);
        let (penalty, mut failure) = (self.options.diversity_penalty, None);
        let Self { beams, memory, .. } = self;
        let found = candidates::best(logits, before, count, memory, |beam, logits| {
            let Beam { ids, processors, .. } = &mut beams[beam];
            taken.iter().for_each(|&token| logits[token as usize] -= penalty);
            processors.process(&History::new(ids, prompt), logits);
            if failure.is_none() {
                failure = processors.failure();
            }
            asked.hide(beam, processors, logits);
            let is_anything_left = logits.iter().any(|logit| logit.is_finite());
            let forced = if is_anything_left { None } else { processors.fallback_token() };
            if let Some(token) = forced {
                logits[token as usize] = FORCED;
            }
        });
        match failure {
            Some(error) => Err(Fault::Processor(Box::new(error))),
            None => found.ok_or(Fault::NotFinite),
        }
    }

    /// Finishes the beams that turned out to be complete when their next token was looked for: none continues them.
    fn finish_complete(&mut self, length: usize) {
        for beam in self.beams.iter().filter(|beam| beam.processors.is_complete()) {
            let ids = beam.ids[self.prompt..].to_vec();
            let score = self.options.score(beam.log_probability, ids.len().clamp(1, length));
            let scores = beam.scores.clone();
            self.hypotheses.offer(Hypothesis { ids, score, scores, stop_reason: StopReason::Complete });
        }
    }

    /// Why a candidate finishes its hypothesis, if it does: by its token, by its length, or because nothing may follow.
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

    /// The beam of a candidate, whose token was chosen by the `logits` `[beams, V]`.
    fn extended(&self, candidate: Candidate, logits: &[f32]) -> Beam {
        let Beam { mut ids, mut processors, mut scores, .. } = self.beams[candidate.beam].clone();
        ids.push(candidate.token);
        scores.extend(self.score(&candidate, logits));
        processors.accept(candidate.token);
        Beam { ids, processors, scores, log_probability: candidate.log_probability, parent: candidate.beam }
    }

    /// The score of a candidate's token, if the options ask for it.
    fn score(&self, candidate: &Candidate, logits: &[f32]) -> Option<TokenScore> {
        let vocab_size = logits.len() / self.beams.len();
        let row = &logits[candidate.beam * vocab_size..][..vocab_size];
        self.options.logprobs.map(|top| TokenScore::of(row, candidate.token, top))
    }

    fn finish(&mut self, candidate: Candidate, logits: &[f32], length: usize, stop_reason: StopReason) {
        let Beam { mut ids, mut scores, .. } = self.extended(candidate, logits);
        if matches!(stop_reason, StopReason::StopToken(_)) {
            ids.pop();
            scores.pop();
        }
        let (ids, score) = (ids.split_off(self.prompt), self.options.score(candidate.log_probability, length));
        self.hypotheses.offer(Hypothesis { ids, score, scores, stop_reason });
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
mod tests;
