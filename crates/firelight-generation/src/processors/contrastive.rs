//! Contrastive decoding: what a large model prefers more than a small one does.

use std::fmt::{Debug, Formatter};
use std::sync::{Arc, Mutex, PoisonError};

use super::{HIDDEN, History, LogitsProcessor};
use crate::distribution::{largest, log_sum_exp};
use crate::prefix::Reader;
use crate::sampler::host;
use crate::{Autoregressive, GenerationError};

/// Among the tokens that the model finds plausible, prefers those that it finds more probable than the amateur, a weaker model with the same
/// vocabulary: `(1 + β) l − β l'` for the log-probabilities `l` of the model and `l'` of the amateur.
///
/// If the amateur fails, every token is hidden, and decoding ends with an error.
///
/// # Source
/// Li et al. 2023, Contrastive decoding (<https://arxiv.org/abs/2210.15097>), §3.3, for the plausible tokens, those with the share `α` of the best
/// one's probability; O'Brien and Lewis 2023 (<https://arxiv.org/abs/2309.09117>), §2, for `β`.
pub struct ContrastiveDecoding<M: Autoregressive> {
    amateur: Arc<M>,
    /// `β`, the weight of the amateur; at least 0.
    strength: f64,
    /// `α`, from 0 to 1.
    plausibility: f64,
    reader: Mutex<Reader<M::State>>,
}

impl<M: Autoregressive> ContrastiveDecoding<M> {
    /// The strength `β` of O'Brien and Lewis.
    pub const STRENGTH: f64 = 0.5;

    /// The plausibility `α` of O'Brien and Lewis.
    pub const PLAUSIBILITY: f64 = 0.1;

    /// Uses [`STRENGTH`](Self::STRENGTH) and [`PLAUSIBILITY`](Self::PLAUSIBILITY).
    pub fn new(amateur: Arc<M>) -> Self {
        let (strength, plausibility) = (Self::STRENGTH, Self::PLAUSIBILITY);
        Self { amateur, strength, plausibility, reader: Mutex::default() }
    }

    /// Sets the strength `β`.
    ///
    /// # Panics
    /// If it is negative or not finite.
    pub fn with_strength(mut self, strength: f64) -> Self {
        assert!(strength.is_finite() && strength >= 0.0, "a strength of {strength}, expected 0 or more");
        self.strength = strength;
        self
    }

    /// Sets the plausibility `α`.
    ///
    /// # Panics
    /// If it is not from 0 to 1.
    pub fn with_plausibility(mut self, plausibility: f64) -> Self {
        assert!((0.0..=1.0).contains(&plausibility), "a plausibility of {plausibility}, expected 0 to 1");
        self.plausibility = plausibility;
        self
    }
}

impl<M> ContrastiveDecoding<M>
where
    M: Autoregressive<Prompt = Vec<Vec<u32>>>,
{
    /// The amateur's log-probabilities `[V]` after a text.
    fn of_amateur(&mut self, ids: &[u32]) -> Result<Vec<f64>, GenerationError> {
        let reader = self.reader.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (logits, state) = reader.read(self.amateur.as_ref(), ids)?;
        reader.keep(ids, state);
        let mut logits: Vec<f64> = host(logits)?.into_iter().map(f64::from).collect();
        normalise(&mut logits);
        Ok(logits)
    }
}

/// Turns logits `[V]` into log-probabilities.
fn normalise(logits: &mut [f64]) {
    let total = log_sum_exp(logits);
    logits.iter_mut().for_each(|logit| *logit -= total);
}

impl<M> LogitsProcessor for ContrastiveDecoding<M>
where
    M: Autoregressive<Prompt = Vec<Vec<u32>>> + Send + 'static,
    M::State: Clone + 'static,
{
    fn process(&mut self, history: &History<'_>, logits: &mut [f64]) {
        normalise(logits);
        let least = largest(logits) + self.plausibility.ln();
        let Ok(amateur) = self.of_amateur(history.ids()) else { return logits.fill(HIDDEN) };
        let strength = self.strength;
        for (id, logit) in logits.iter_mut().enumerate() {
            let other = amateur.get(id).copied().filter(|other| other.is_finite());
            // A token that the amateur cannot write gets no bonus.
            *logit = if *logit == HIDDEN || *logit < least {
                HIDDEN
            } else {
                *logit + strength * (*logit - other.unwrap_or(*logit))
            };
        }
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (strength, plausibility) = (self.strength, self.plausibility);
        Box::new(Self { amateur: self.amateur.clone(), strength, plausibility, reader: Mutex::new(reader) })
    }
}

impl<M: Autoregressive> Debug for ContrastiveDecoding<M> {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ContrastiveDecoding")
            .field("strength", &self.strength)
            .field("plausibility", &self.plausibility)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::mock::Pairs;
    use crate::{BeamOptions, GenerationOptions, beam_search, generate};

    /// An amateur that repeats the token before the last.
    fn amateur() -> Arc<Pairs> {
        Arc::new(Pairs::from_probabilities(3, |before, _| {
            std::array::from_fn::<f64, 3, _>(|id| if id as u32 == before { 0.8 } else { 0.1 })
        }))
    }

    #[test]
    fn by_hand() {
        let process = |strength, plausibility| {
            let mut processor =
                ContrastiveDecoding::new(amateur()).with_strength(strength).with_plausibility(plausibility);
            let mut logits = [0.5f64, 0.4, 0.1].map(|p| p.ln() + 7.0);
            processor.process(&History::new(&[2, 0, 1], 3), &mut logits);
            logits
        };
        // The amateur would write 0: ln 0.5 + (ln 0.5 - ln 0.8) / 2 for it, ln 0.4 + (ln 0.4 - ln 0.1) / 2 for 1.
        let expected = [0.5f64.ln() + 0.5 * (0.5f64 / 0.8).ln(), 0.4f64.ln() + 0.5 * 4f64.ln(), 0.1f64.ln()];
        for (found, expected) in process(0.5, 0.1).iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
        assert_eq!(process(0.5, 0.5)[2], HIDDEN, "implausible");
        let mut hidden = [0.0, HIDDEN, 0.0];
        ContrastiveDecoding::new(amateur()).with_plausibility(0.0).process(&History::new(&[2, 0, 1], 3), &mut hidden);
        assert!(hidden[1] == HIDDEN && hidden[2].is_finite());
        assert!(process(0.0, 0.0).iter().zip([0.5f64, 0.4, 0.1]).all(|(found, p)| (found - p.ln()).abs() < 1e-6));
    }

    #[test]
    fn every_way_of_decoding_takes_it_and_the_amateur_reads_each_token_once() {
        let model = Pairs::from_probabilities(3, |before, last| match (before + last) % 3 {
            0 => [0.5, 0.3, 0.2],
            1 => [0.2, 0.45, 0.35],
            _ => [0.3, 0.3, 0.4],
        });
        let amateur = amateur();
        let processor = || ContrastiveDecoding::new(amateur.clone());
        let options = GenerationOptions::new(8).greedy().with_processor(processor());
        let greedy = |options: &GenerationOptions| {
            generate(&model, vec![vec![0, 1]], options, |_| ControlFlow::Continue(())).unwrap().remove(0).ids
        };
        let found = greedy(&options);
        assert_eq!(amateur.rows_read().len(), 8);
        assert_ne!(found, greedy(&GenerationOptions::new(8).greedy()));
        let beam = BeamOptions::new(8).with_beams(1).with_processor(processor());
        assert_eq!(beam_search(&model, vec![vec![0, 1]], &beam).unwrap()[0][0].ids, found);
    }

    #[test]
    fn an_amateur_that_fails_leaves_nothing() {
        let mut logits = [0.5, 0.4, 0.1];
        ContrastiveDecoding::new(amateur()).process(&History::new(&[2], 1), &mut logits); // It reads two tokens at least.
        assert_eq!(logits, [HIDDEN; 3]);
    }
}
