//! What decoding asks of a model: logits for a prompt, then logits for one more token per row. Implemented by the task
//! crates (a language model's prompt is ids, a translator's the source ids), called by [`TokenStream`](crate::TokenStream).

use burn::tensor::{Device, Int, Tensor};

use crate::GenerationError;

/// A model that continues a sequence token by token.
///
/// The model owns everything between ids and logits; the loop never sees a layer or a cache. `B` is the number of rows
/// decoded together, `V` the vocabulary size.
pub trait Autoregressive {
    /// What decoding starts from.
    type Prompt;
    /// What the model keeps between two steps, usually its cache.
    type State: DecodeState;

    /// Reads the whole prompt at once and returns the logits of the next token, `[B, V]`, with the state after it.
    ///
    /// # Errors
    /// A prompt that the model cannot read: empty, too long, or with an id outside the vocabulary.
    fn prefill(&self, prompt: Self::Prompt) -> Result<(Tensor<2>, Self::State), GenerationError>;

    /// Reads one token per row, `[B]`, and returns the logits of the next one, `[B, V]`.
    fn step(&self, token: Tensor<1, Int>, state: &mut Self::State) -> Tensor<2>;
}

/// A model that knows more ids than its tokenizer has: those from a number on are never chosen.
///
/// The surplus of an embedding, rounded up for speed or left over for tokens to come, stands for no text.
#[derive(Clone, Copy, Debug)]
pub struct WithVocabulary<'m, M> {
    model: &'m M,
    size: usize,
}

impl<'m, M> WithVocabulary<'m, M> {
    /// The model with the ids below `size`.
    pub fn new(model: &'m M, size: usize) -> Self {
        Self { model, size }
    }

    fn real(&self, logits: Tensor<2>) -> Tensor<2> {
        let [_, known] = logits.dims();
        if self.size < known { logits.narrow(1, 0, self.size) } else { logits }
    }
}

impl<M: Autoregressive> Autoregressive for WithVocabulary<'_, M> {
    type Prompt = M::Prompt;
    type State = M::State;

    fn prefill(&self, prompt: M::Prompt) -> Result<(Tensor<2>, M::State), GenerationError> {
        let (logits, state) = self.model.prefill(prompt)?;
        Ok((self.real(logits), state))
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut M::State) -> Tensor<2> {
        self.real(self.model.step(token, state))
    }
}

/// The part of a model's state that a decoding strategy may see.
pub trait DecodeState {
    /// Tokens read so far in each row, the prompt included.
    fn len(&self) -> usize;

    /// True before anything was read.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps the given rows in the given order: indices into the `B` rows held now. A row may be taken more than once, which
    /// is how beams branch.
    fn select_rows(&mut self, rows: &[usize]);
}

/// The indices of [`DecodeState::select_rows`] as tensors are selected by them, `[B']`.
pub fn row_indices(rows: &[usize], device: &Device) -> Tensor<1, Int> {
    let rows: Vec<i32> = rows.iter().map(|&row| row as i32).collect();
    Tensor::from_ints(rows.as_slice(), device)
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::mock::Successor;
    use crate::{GenerationOptions, generate};

    #[test]
    fn surplus_ids_are_never_chosen() {
        let ids = |size| {
            let (model, options) = (Successor::new(8), GenerationOptions::new(4).greedy());
            let rows =
                generate(&WithVocabulary::new(&model, size), vec![vec![3]], &options, |_| ControlFlow::Continue(()));
            rows.unwrap().remove(0).ids
        };
        assert_eq!((ids(8), ids(9)), (vec![4, 5, 6, 7], vec![4, 5, 6, 7]));
        assert_eq!(ids(5), [4, 0, 1, 2], "what follows 4 is the nearest id that is real");
    }
}
