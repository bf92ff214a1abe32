//! Speculative decoding: tokens that a [`Drafter`] guesses are read together with the last token, and the model's choices decide
//! how many of them stand.

use std::collections::VecDeque;

use burn::tensor::{Int, Tensor};

use super::{Next, TokenStream};
use crate::autoregressive::{extend, step};
use crate::{Autoregressive, DecodeState, Drafter, GenerationError, Sampled, row_indices};

/// Logits that are computed but not yet used, `[R, V]` each, with the guessed ids between them.
#[derive(Default)]
pub(super) struct Ahead {
    /// The next ones. Most steps have no others, for which a queue would take memory.
    next: Option<Tensor<2>>,
    others: VecDeque<Tensor<2>>,
    pub(super) guesses: VecDeque<u32>,
}

impl Ahead {
    /// The logits after the last token, without guesses.
    pub(super) fn one(logits: Tensor<2>) -> Self {
        Self { next: Some(logits), ..Self::default() }
    }

    /// The logits `[1, T, V]` of one row after its last token and after each of the `T - 1` guesses.
    fn guessed(logits: &Tensor<3>, guesses: Vec<u32>) -> Self {
        let at = |place| logits.clone().narrow(1, place, 1).squeeze_dim(1);
        Self { next: None, others: (0..=guesses.len()).map(at).collect(), guesses: guesses.into() }
    }

    /// Takes the next logits out.
    pub(super) fn take(&mut self) -> Option<Tensor<2>> {
        self.next.take().or_else(|| self.others.pop_front())
    }
}

impl<'m, M: Autoregressive> TokenStream<'m, M> {
    /// Reads the guesses of a drafter together with each token.
    ///
    /// The text stays the same, up to the rounding of logits that are computed together. Guesses are made while the stream has a
    /// single row, and only as many as the model has [`room`](Autoregressive::room) for.
    pub fn with_drafter(mut self, drafter: impl Drafter + 'm) -> Self {
        self.drafter = Some(Box::new(drafter));
        self
    }

    /// Reads the last tokens `[R]` and the guesses that follow them.
    pub(super) fn read(&mut self, tokens: Tensor<1, Int>) -> Result<Ahead, GenerationError> {
        let tokens = self.without_ended(tokens);
        let guesses = self.guesses()?;
        if guesses.is_empty() {
            return Ok(Ahead::one(step(self.model, tokens, &mut self.state)));
        }
        let guessed = row_indices(&guesses.iter().map(|&id| id as usize).collect::<Vec<_>>(), &tokens.device());
        let tokens = Tensor::cat(vec![tokens, guessed], 0).unsqueeze_dim(0); // [1, T]
        Ok(Ahead::guessed(&extend(self.model, tokens, &mut self.state), guesses))
    }

    /// Guesses the tokens after the last one of the only row. One token fewer than the row has room for: the logits after the
    /// last guess choose one more.
    fn guesses(&mut self) -> Result<Vec<u32>, GenerationError> {
        let (Some(drafter), [sequence], []) = (&mut self.drafter, &self.sequences[..], &self.joining[..]) else {
            return Ok(Vec::new());
        };
        let room = self.model.room(&self.state).min(sequence.room()).saturating_sub(1);
        let mut guesses = drafter.guess(&sequence.history(), room)?;
        let known = guesses.iter().take(room).take_while(|&&id| (id as usize) < self.vocab_size).count();
        guesses.truncate(known);
        Ok(guesses)
    }

    /// Where the logits after a choice come from. If the choice is the next guess, they are there already; if not, the state goes
    /// back to before that guess and the chosen token is read in a step.
    pub(super) fn behind(&mut self, mut ahead: Ahead, sampled: Sampled) -> Next {
        let Some(guess) = ahead.guesses.pop_front() else { return Next::Step(sampled.tokens) };
        if sampled.ids == [guess] {
            return Next::Read(ahead);
        }
        self.state.truncate(self.state.len() - ahead.guesses.len() - 1);
        Next::Step(sampled.tokens)
    }
}
