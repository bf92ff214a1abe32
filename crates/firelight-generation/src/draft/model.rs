//! The draft model: a smaller model, and what it may guess.

use super::ModelDrafter;
use crate::{Autoregressive, GenerationDefaults, GenerationError, GenerationOptions, WithVocabulary};

/// The draft model of speculative decoding: a smaller model `M` that guesses for a larger one with the same tokenizer, and never guesses an
/// id that the larger one cannot write.
///
/// ```
/// use firelight_generation::processors::History;
/// use firelight_generation::{Autoregressive, DraftModel, Drafter, GenerationError, GenerationOptions};
///
/// /// What a draft model guesses after a text.
/// fn guesses<M>(draft: &DraftModel<M>, text: &[u32]) -> Result<Vec<u32>, GenerationError>
/// where
///     M: Autoregressive<Prompt = Vec<Vec<u32>>>,
/// {
///     let mut drafter = draft.drafter(draft.model(), &GenerationOptions::new(32).greedy())?;
///     drafter.guess(&History::new(text, text.len()), 8)
/// }
/// ```
#[doc(alias = "assistant model")]
#[derive(Clone, Debug)]
pub struct DraftModel<M> {
    model: Box<M>,
    vocab_size: usize,
    banned: Vec<u32>,
    tokens: usize,
}

impl<M> DraftModel<M> {
    /// A draft model that guesses up to `tokens` ids at a time, all of them below `vocab_size`: the number of ids that the tokenizer has.
    pub fn new(model: M, vocab_size: usize, tokens: usize) -> Self {
        Self { model: Box::new(model), vocab_size, banned: Vec::new(), tokens }
    }

    /// Never guesses the ids that these defaults ban. A first token that they force is part of the text before it is guessed.
    pub fn without_banned(mut self, defaults: &GenerationDefaults) -> Self {
        self.banned.extend(defaults.banned());
        self
    }

    /// The model.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The most tokens of one guess.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// A `model`, which is [`model`](Self::model) or a view of it for one text, that writes only what may be guessed.
    pub fn restricted<'m, D>(&self, model: &'m D) -> WithVocabulary<'m, D> {
        WithVocabulary::new(model, self.vocab_size).banning(self.banned.iter().copied())
    }

    /// Guesses for texts with these options by a `model`: [`model`](Self::model), or a view of it for one text.
    ///
    /// # Errors
    /// Options out of range.
    pub fn drafter<'m, D>(
        &self,
        model: &'m D,
        options: &GenerationOptions,
    ) -> Result<ModelDrafter<'m, D>, GenerationError>
    where
        D: Autoregressive<Prompt = Vec<Vec<u32>>>,
    {
        Ok(ModelDrafter::of(self.restricted(model), options)?.with_tokens(self.tokens))
    }
}
