//! Guesses of a smaller model.

use std::fmt::{Debug, Formatter};

use burn::tensor::Tensor;

use super::Drafter;
use crate::autoregressive::step;
use crate::distribution::softmax;
use crate::prefix::Reader;
use crate::processors::{History, Processors};
use crate::sampler::{Choice, host};
use crate::{Autoregressive, GenerationError, GenerationOptions, Processing, WithVocabulary, row_indices};

/// A [`Drafter`] that guesses what a draft model, a smaller one with the same vocabulary, would write. It uses the random numbers of the text
/// itself, so where the two models agree the guess is right.
pub struct ModelDrafter<'m, D: Autoregressive> {
    model: WithVocabulary<'m, D>,
    reader: Reader<D::State>,
    processors: Processors,
    choice: Choice,
    tokens: usize,
    confidence: f64,
}

impl<'m, D: Autoregressive<Prompt = Vec<Vec<u32>>>> ModelDrafter<'m, D> {
    /// A drafter for texts with these options, which may guess every id of the model. [`DraftModel::drafter`](super::DraftModel::drafter)
    /// makes one that may not.
    ///
    /// # Errors
    /// Options out of range.
    pub fn new(model: &'m D, options: &GenerationOptions) -> Result<Self, GenerationError> {
        Self::of(WithVocabulary::new(model, usize::MAX), options)
    }

    /// A drafter that guesses no other ids than the model has.
    pub(super) fn of(model: WithVocabulary<'m, D>, options: &GenerationOptions) -> Result<Self, GenerationError> {
        options.validate()?;
        // A constraint follows the text by `accept`, which is not called for guesses.
        let processing = Processing { constraint: None, ..options.processing.clone() };
        let options = options.clone().with_processing(processing);
        let (processors, choice) = (options.processors(), Choice::new(&options.sampling));
        Ok(Self { model, reader: Reader::default(), processors, choice, tokens: 8, confidence: 0.4 })
    }

    /// Sets the most tokens of one guess. Default 8.
    pub fn with_tokens(mut self, tokens: usize) -> Self {
        self.tokens = tokens;
        self
    }

    /// Stops guessing at the first token that has a lower probability than this, from 0 to 1. Default 0.4.
    pub fn with_confidence(mut self, confidence: f64) -> Self {
        self.confidence = confidence;
        self
    }

    /// The token that the draft would choose next, and its probability.
    fn next(&self, logits: Tensor<2>, history: &History<'_>) -> Result<(u32, f64), GenerationError> {
        let mut logits: Vec<f64> = host(logits)?.into_iter().map(f64::from).collect();
        let mut processors = self.processors.clone();
        processors.process(history, &mut logits);
        processors.sound()?;
        let probabilities = softmax(&logits);
        let id = self.choice.of(&logits, history.draw());
        Ok((id, probabilities.get(id as usize).copied().unwrap_or(0.0)))
    }
}

impl<D: Autoregressive<Prompt = Vec<Vec<u32>>>> Drafter for ModelDrafter<'_, D> {
    fn guess(&mut self, history: &History<'_>, most: usize) -> Result<Vec<u32>, GenerationError> {
        let most = most.min(self.tokens);
        if most == 0 {
            return Ok(Vec::new());
        }
        let mut ids = history.ids().to_vec();
        let given = ids.len();
        let (mut logits, mut state) = self.reader.read(&self.model, &ids)?;
        loop {
            let (id, probability) = self.next(logits, &history.after(&ids))?;
            // NaN is below no number, but ends the guesses, too.
            if probability.is_nan() || probability < self.confidence {
                break;
            }
            ids.push(id);
            if ids.len() - given == most {
                break;
            }
            logits = step(&self.model, row_indices(&[id as usize], &self.model.device()), &mut state);
        }
        self.reader.keep(&ids, state);
        Ok(ids.split_off(given))
    }
}

impl<D: Autoregressive> Debug for ModelDrafter<'_, D> {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ModelDrafter")
            .field("tokens", &self.tokens)
            .field("confidence", &self.confidence)
            .finish_non_exhaustive()
    }
}
