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
