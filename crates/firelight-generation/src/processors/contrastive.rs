//! Contrastive decoding: what a large model prefers more than a small one does.

use std::fmt::{Debug, Formatter};
use std::sync::{Arc, Mutex, PoisonError};

use super::{HIDDEN, History, LogitsProcessor};
use crate::distribution::{is_distribution, largest, log_sum_exp};
use crate::prefix::Reader;
use crate::sampler::host;
use crate::{Autoregressive, GenerationError};

/// Among the tokens that the model finds plausible, prefers those that it finds more probable than the amateur, a weaker model with the same
/// vocabulary: `(1 + β) l − β l'` for the log-probabilities `l` of the model and `l'` of the amateur.
///
/// If the amateur fails, or its logits are no distribution, every token is hidden, and decoding ends with [`GenerationError::Amateur`].
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
    /// Why the amateur could not be asked at the last token.
    failure: Option<GenerationError>,
}

impl<M: Autoregressive> ContrastiveDecoding<M> {
    /// The strength `β` of O'Brien and Lewis.
    pub const STRENGTH: f64 = 0.5;

    /// The plausibility `α` of O'Brien and Lewis.
    pub const PLAUSIBILITY: f64 = 0.1;

    /// Uses [`STRENGTH`](Self::STRENGTH) and [`PLAUSIBILITY`](Self::PLAUSIBILITY).
    pub fn new(amateur: Arc<M>) -> Self {
        let (strength, plausibility) = (Self::STRENGTH, Self::PLAUSIBILITY);
        Self { amateur, strength, plausibility, reader: Mutex::default(), failure: None }
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
    fn of_amateur(&mut self, history: &History<'_>) -> Result<Vec<f64>, GenerationError> {
        let ids = history.ids();
        let reader = self.reader.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (logits, state) = reader.read(self.amateur.as_ref(), ids)?;
        reader.keep(ids, state);
        let mut logits: Vec<f64> = host(logits)?.into_iter().map(f64::from).collect();
        if !is_distribution(&logits) {
            return Err(GenerationError::NonFiniteLogits { step: history.new_ids().len(), row: 0 });
        }
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
        self.failure = None;
        normalise(logits);
        let least = largest(logits) + self.plausibility.ln();
        let amateur = match self.of_amateur(history) {
            Ok(amateur) => amateur,
            Err(error) => {
                self.failure = Some(GenerationError::Amateur { cause: Box::new(error) });
                return logits.fill(HIDDEN);
            }
        };
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

    fn failure(&mut self) -> Option<GenerationError> {
        self.failure.take()
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (strength, plausibility) = (self.strength, self.plausibility);
        let (amateur, reader) = (self.amateur.clone(), Mutex::new(reader));
        Box::new(Self { amateur, strength, plausibility, reader, failure: None })
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
    use crate::mock::{Pairs, Successor};
    use crate::{BeamOptions, GenerationOptions, Processing, beam_search, generate};

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
    fn an_amateur_that_fails_leaves_nothing_and_says_why_once() {
        let (mut logits, mut processor) = ([0.5, 0.4, 0.1], ContrastiveDecoding::new(amateur()));
        processor.process(&History::new(&[2], 1), &mut logits); // It reads two tokens at least.
        assert_eq!(logits, [HIDDEN; 3]);
        let error = processor.failure().unwrap().to_string();
        assert!(error.starts_with("the weaker model of contrastive decoding failed: the prompt is empty"), "{error}");
        assert!(processor.failure().is_none());
    }

    #[test]
    fn numbers_of_the_amateur_that_are_no_distribution_are_an_error() {
        let broken = Arc::new(Pairs::new(2, vec![0.0, f32::NAN, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]));
        let mut processor = ContrastiveDecoding::new(broken);
        processor.process(&History::new(&[0, 1, 0], 1), &mut [0.5, 0.4]);
        assert!(processor.failure().is_none(), "the logits after 1 and 0 are sound");
        processor.process(&History::new(&[1, 0, 0], 1), &mut [0.5, 0.4]);
        let error = processor.failure().unwrap().of_row(|_| 7);
        assert!(error.to_string().contains("logits for new token 2 are not finite (row 7)"), "{error}");
        assert!(!error.is_user_error());
    }

    /// Token 2 and no other, whatever the other processors leave.
    #[derive(Clone, Debug)]
    struct OnlyTwo;

    impl LogitsProcessor for OnlyTwo {
        fn process(&mut self, _: &History<'_>, logits: &mut [f64]) {
            logits[..2].fill(HIDDEN);
        }

        fn takes_precedence(&self) -> bool {
            true
        }

        fn boxed(&self) -> Box<dyn LogitsProcessor> {
            Box::new(self.clone())
        }
    }

    #[test]
    fn an_amateur_that_fails_ends_every_way_of_decoding_also_beside_a_rule_with_precedence() {
        let (model, prompt) = (Successor::new(3), || vec![vec![0]]);
        let failed = |error: GenerationError| assert!(matches!(error, GenerationError::Amateur { .. }), "{error}");
        let amateurs = Processing::default().with_processor(ContrastiveDecoding::new(amateur()));
        let beside = Processing::default().with_processor(OnlyTwo).with_processor(ContrastiveDecoding::new(amateur()));
        for processing in [amateurs, beside] {
            let options = GenerationOptions::new(3).with_processing(processing.clone());
            for options in [options.clone(), options.greedy()] {
                failed(generate(&model, prompt(), &options, |_| ControlFlow::Continue(())).unwrap_err());
            }
            let beams = BeamOptions::new(3).with_beams(2).with_processing(processing);
            failed(beam_search(&model, prompt(), &beams).unwrap_err());
        }
    }
}
