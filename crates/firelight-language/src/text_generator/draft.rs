//! Speculative decoding: what guesses the next tokens for the model to check.

use firelight_generation::{
    Autoregressive, DraftModel, GenerationDefaults, GenerationError, GenerationOptions, PromptLookup, TokenStream,
};
use firelight_storage::TaskError;

use super::TextGenerator;
use crate::model::LanguageModel;

/// What guesses the next tokens, so that the model reads several at once.
#[derive(Debug)]
pub(super) enum Guesser {
    Lookup(PromptLookup),
    Draft(DraftModel<LanguageModel>),
}

impl Guesser {
    /// Never guesses what these defaults ban.
    pub(super) fn without_banned(self, defaults: &GenerationDefaults) -> Self {
        match self {
            Self::Draft(draft) => Self::Draft(draft.without_banned(defaults)),
            lookup => lookup,
        }
    }
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
        let guesses = DraftModel::new(draft.model, self.tokenizer.vocab_size(), tokens);
        let defaults = [&self.defaults, &draft.defaults].into_iter().flatten();
        self.guesser = Some(Guesser::Draft(defaults.fold(guesses, DraftModel::without_banned)));
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
            Some(Guesser::Draft(draft)) => tokens.with_drafter(draft.drafter(draft.model(), options)?),
        })
    }
}

#[cfg(test)]
mod tests;
