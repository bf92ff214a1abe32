//! Speculative decoding: what guesses the next tokens for the model to check.

use firelight_generation::{Autoregressive, DraftModel, GenerationError, GenerationOptions, PromptLookup, TokenStream};
use firelight_storage::TaskError;

use super::TextGenerator;
use crate::model::LanguageModel;

/// What guesses the next tokens, so that the model reads several at once.
#[derive(Debug)]
pub(super) enum Guesser {
    Lookup(PromptLookup),
    Draft { model: Box<LanguageModel>, tokens: usize },
}

impl TextGenerator {
    /// Guesses that the last tokens go on as they did where they occurred before; the text stays the same.
    pub fn with_lookup(mut self, lookup: PromptLookup) -> Self {
        self.guesser = Some(Guesser::Lookup(lookup));
        self
    }

    /// Guesses up to `tokens` tokens with a smaller model; the text stays the same.
    ///
    /// # Errors
    /// If the vocabulary of the draft is not that of the model.
    pub fn with_draft(mut self, draft: Self, tokens: usize) -> Result<Self, TaskError> {
        self.tokenizer.agrees_with("draft", &draft.tokenizer)?;
        self.guesser = Some(Guesser::Draft { model: Box::new(draft.model), tokens });
        Ok(self)
    }

    /// Adds the guesser to a stream, if there is one.
    pub(super) fn guessing<'g, M: Autoregressive>(
        &'g self,
        tokens: TokenStream<'g, M>,
        options: &GenerationOptions,
    ) -> Result<TokenStream<'g, M>, GenerationError> {
        Ok(match &self.guesser {
            None => tokens,
            Some(Guesser::Lookup(lookup)) => tokens.with_drafter(*lookup),
            Some(Guesser::Draft { model, tokens: guesses }) => {
                tokens.with_drafter(DraftModel::new(model.as_ref(), options)?.with_tokens(*guesses))
            }
        })
    }
}

#[cfg(test)]
mod tests;
