//! Speculative decoding: what guesses the next tokens for the model to check.

use firelight_data::Tokenizer;
use firelight_generation::{Autoregressive, DraftModel, GenerationError, GenerationOptions, PromptLookup, TokenStream};
use firelight_storage::{InputError, TaskError};

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
        self.has_vocabulary_of("draft", &draft)?;
        self.guesser = Some(Guesser::Draft { model: Box::new(draft.model), tokens });
        Ok(self)
    }

    /// Makes sure that a model beside this one, `what` it is called, has the same tokens.
    pub(super) fn has_vocabulary_of(&self, what: &str, other: &Self) -> Result<(), InputError> {
        let tokenizers = [self, other].map(|generator| &generator.tokenizer);
        let size = tokenizers.map(Tokenizer::vocab_size).into_iter().max().unwrap_or(0);
        let tokens = |id| tokenizers.map(|tokenizer| tokenizer.token(id));
        let differ = (0..size as u32).map(tokens).find(|[own, others]| own != others);
        differ.map_or(Ok(()), |tokens| Err(other_vocabulary(what, tokens)))
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

/// The tokenizer of `what` has another token where the model's has the first one.
fn other_vocabulary(what: &str, tokens: [Option<String>; 2]) -> InputError {
    let [own, others] = tokens.map(|token| token.map_or("no token".to_string(), |token| format!("`{token}`")));
    InputError::new(format!("the {what} has another vocabulary: it has {others}, where the model has {own}"))
        .advise("take one with the model's own tokenizer")
}

#[cfg(test)]
mod tests;
