//! Text that contrasts with what was written before it (contrastive search), or with what a weaker model would write (contrastive decoding).

use std::sync::Arc;

use firelight_generation::processors::ContrastiveDecoding;
use firelight_generation::{ContrastiveOptions, GeneratedText, GenerationError, contrastive_search};
use firelight_storage::TaskError;

use super::{TextGenerator, overflow};
use crate::model::LanguageModel;

/// How much an amateur counts: see [`TextGenerator::with_amateur`].
///
/// ```
/// use firelight_language::AmateurOptions;
///
/// let error = AmateurOptions { strength: -1.0, ..AmateurOptions::default() }.validate().unwrap_err();
/// assert!(error.to_string().ends_with("amateur.strength is -1, expected a finite number of at least 0"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AmateurOptions {
    /// How much its preferences count against tokens, `β`, at least 0. Default 0.5.
    pub strength: f64,
    /// Only tokens with this share of the best one's probability are chosen, `α`, from 0 to 1. Default 0.1.
    pub plausibility: f64,
}

impl Default for AmateurOptions {
    fn default() -> Self {
        type Decoding = ContrastiveDecoding<LanguageModel>;
        Self { strength: Decoding::STRENGTH, plausibility: Decoding::PLAUSIBILITY }
    }
}

impl AmateurOptions {
    /// Checks every field.
    ///
    /// # Errors
    /// [`GenerationError::InvalidOptions`] with one sentence for each field out of range.
    pub fn validate(&self) -> Result<(), GenerationError> {
        let Self { strength, plausibility } = *self;
        let mut problems = Vec::new();
        if !(strength.is_finite() && strength >= 0.0) {
            problems.push(format!("amateur.strength is {strength}, expected a finite number of at least 0"));
        }
        if !(0.0..=1.0).contains(&plausibility) {
            problems.push(format!("amateur.plausibility is {plausibility}, expected a number from 0 to 1"));
        }
        if problems.is_empty() { Ok(()) } else { Err(GenerationError::InvalidOptions { problems }) }
    }
}

/// A weaker model, and how it counts.
#[derive(Debug)]
pub(super) struct Amateur {
    model: Arc<LanguageModel>,
    options: AmateurOptions,
}

impl Amateur {
    pub(super) fn processor(&self) -> ContrastiveDecoding<LanguageModel> {
        let AmateurOptions { strength, plausibility } = self.options;
        ContrastiveDecoding::new(self.model.clone()).with_strength(strength).with_plausibility(plausibility)
    }
}

impl TextGenerator {
    /// Prefers what the model finds more probable than a weaker model does, by [`ContrastiveDecoding`] (Li et al. 2023). It applies to every
    /// way of continuing a prompt. Beside a draft it reads every guess, too, which costs more than guesses save.
    ///
    /// # Errors
    /// If an option is out of its range, or the vocabulary of the amateur is not that of the model.
    pub fn with_amateur(mut self, amateur: Self, options: AmateurOptions) -> Result<Self, TaskError> {
        options.validate()?;
        self.tokenizer.agrees_with("amateur", &amateur.tokenizer)?;
        self.amateur = Some(Amateur { model: Arc::new(amateur.model), options });
        Ok(self)
    }

    /// Continues `prompt` by [`contrastive_search`] (Su et al. 2022): of the most probable tokens the one that is least like the text so far.
    /// It reads with the KV cache always, and nothing is drawn or guessed.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub fn contrast(&self, prompt: &str, options: &ContrastiveOptions) -> Result<GeneratedText, TaskError> {
        let prompt = self.readable(self.encode(prompt)?, 0); // as the text slides
        let (mut options, text) = (options.clone(), self.tokenizer.stream_after(&prompt));
        self.end(&mut options.stop_tokens, &mut options.processing);
        let asked = options.max_new_tokens;
        options.max_new_tokens = self.room(asked, prompt.len());
        let found = contrastive_search(&self.real(&self.model), vec![prompt], &options)
            .map_err(|error| error.with_texts(|ids| text.clone().read(ids)))?;
        let stop_reason = overflow::reason(found.stop_reason, found.ids.len(), asked);
        Ok(GeneratedText { text: text.read(&found.ids), ids: found.ids, scores: found.scores, stop_reason })
    }
}

#[cfg(test)]
mod tests;
