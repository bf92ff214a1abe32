//! What decoding asks of a model: logits for a prompt, then logits for one more token per row. Implemented by the task
//! crates (a language model's prompt is ids, a translator's the source ids), called by [`TokenStream`](crate::TokenStream).

use burn::tensor::{Device, IndexingUpdateOp, Int, Tensor};
use firelight_kernels::awake;

use crate::{GenerationDefaults, GenerationError};

/// A model that continues a sequence token by token.
///
/// The model owns everything between ids and logits; the loop never sees a layer or a cache. `B` is the number of rows
/// decoded together, `V` the vocabulary size.
pub trait Autoregressive: Sync {
    /// What decoding starts from.
    type Prompt: Send;
    /// What the model keeps between two steps, usually its cache.
    type State: DecodeState + Send;

    /// Where the model computes.
    fn device(&self) -> Device;

    /// The ids of each row before the first new token, for processors that look back. For a language model they are the prompt, for a
    /// model with an encoder the beginning of the target. Default: none.
    fn history(&self, prompt: &Self::Prompt) -> Vec<Vec<u32>> {
        let _ = prompt;
        Vec::new()
    }

    /// Reads the whole prompt at once and returns the logits of the next token, `[B, V]`, with the state after it.
    ///
    /// # Errors
    /// A prompt that the model cannot read: empty, too long, or with an id outside the vocabulary.
    fn prefill(&self, prompt: Self::Prompt) -> Result<(Tensor<2>, Self::State), GenerationError>;

    /// As [`prefill`](Self::prefill), with a state that has read the first [`len`](DecodeState::len) tokens of the prompt already.
    /// Default: reads the whole prompt again.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill).
    fn prefill_rest(
        &self,
        prompt: Self::Prompt,
        state: Self::State,
    ) -> Result<(Tensor<2>, Self::State), GenerationError> {
        drop(state);
        self.prefill(prompt)
    }

    /// Reads one token per row, `[B]`, and returns the logits of the next one, `[B, V]`.
    fn step(&self, token: Tensor<1, Int>, state: &mut Self::State) -> Tensor<2>;

    /// Reads several tokens per row, `[B, T]`, and returns the logits after each of them, `[B, T, V]`. Default: one
    /// [`step`](Self::step) for each.
    fn extend(&self, tokens: Tensor<2, Int>, state: &mut Self::State) -> Tensor<3> {
        extend_by_steps(self, tokens, state)
    }

    /// The most tokens that one [`extend`](Self::extend) may read so that [`DecodeState::truncate`] can take them back. A
    /// [`Drafter`](crate::Drafter) guesses no more than that. Default 0: nothing is guessed.
    fn room(&self, state: &Self::State) -> usize {
        let _ = state;
        0
    }
}

/// [`Autoregressive::extend`] by steps: the logits after each of the tokens `[B, T]`, `[B, T, V]`.
pub fn extend_by_steps<M: Autoregressive + ?Sized>(
    model: &M,
    tokens: Tensor<2, Int>,
    state: &mut M::State,
) -> Tensor<3> {
    let [_, length] = tokens.dims();
    let token = |place| tokens.clone().narrow(1, place, 1).squeeze_dim::<1>(1);
    let logits = (0..length).map(|place| model.step(token(place), state).unsqueeze_dim(1));
    Tensor::cat(logits.collect(), 1)
}

/// [`Autoregressive::prefill`], with the threads of the CPU [`awake`].
pub(crate) fn prefill<M: Autoregressive>(
    model: &M,
    prompt: M::Prompt,
) -> Result<(Tensor<2>, M::State), GenerationError> {
    awake(&model.device(), || model.prefill(prompt))
}

/// [`Autoregressive::prefill_rest`], with the threads of the CPU [`awake`].
pub(crate) fn prefill_rest<M: Autoregressive>(
    model: &M,
    prompt: M::Prompt,
    state: M::State,
) -> Result<(Tensor<2>, M::State), GenerationError> {
    awake(&model.device(), || model.prefill_rest(prompt, state))
}

/// [`Autoregressive::step`], with the threads of the CPU [`awake`].
pub(crate) fn step<M: Autoregressive>(model: &M, token: Tensor<1, Int>, state: &mut M::State) -> Tensor<2> {
    awake(&model.device(), || model.step(token, state))
}

/// [`Autoregressive::extend`], with the threads of the CPU [`awake`].
pub(crate) fn extend<M: Autoregressive>(model: &M, tokens: Tensor<2, Int>, state: &mut M::State) -> Tensor<3> {
    awake(&model.device(), || model.extend(tokens, state))
}

/// Restricts a model to the ids of its tokenizer. Ids from `size` on are never chosen, nor are ids that its
/// [`GenerationDefaults`] ban. If they force a first token, every text begins with it.
///
/// An embedding may have more rows than the tokenizer has tokens: rounded up for speed, or reserved for tokens to come.
#[derive(Clone, Debug)]
pub struct WithVocabulary<'m, M> {
    model: &'m M,
    size: usize,
    banned: Vec<u32>,
    first: Option<u32>,
}

impl<'m, M> WithVocabulary<'m, M> {
    /// The model with the ids below `size`.
    pub fn new(model: &'m M, size: usize) -> Self {
        Self { model, size, banned: Vec::new(), first: None }
    }

    /// Applies the banned ids and the forced first token of a published model.
    pub fn with_defaults(mut self, defaults: &GenerationDefaults) -> Self {
        self = self.banning(defaults.banned());
        self.first = defaults.first(self.size);
        self
    }

    /// Never chooses these ids.
    pub(crate) fn banning(mut self, ids: impl IntoIterator<Item = u32>) -> Self {
        self.banned = ids.into_iter().filter(|&id| (id as usize) < self.size).collect();
        self
    }

    pub(crate) fn model(&self) -> &'m M {
        self.model
    }

    /// The forced first id.
    pub(crate) fn first(&self) -> Option<u32> {
        self.first
    }

    /// Cuts the logits `[B, V]` to the tokenizer's ids and hides the banned ones.
    pub(crate) fn real(&self, logits: Tensor<2>) -> Tensor<2> {
        let [rows, known] = logits.dims();
        let logits = if self.size < known { logits.narrow(1, 0, self.size) } else { logits };
        let banned: Vec<usize> = self.banned.iter().map(|&id| id as usize).filter(|&id| id < known).collect();
        if banned.is_empty() {
            return logits;
        }
        let never = Tensor::full([rows, banned.len()], f32::NEG_INFINITY, &logits.device());
        let banned = row_indices(&banned, &logits.device());
        logits.select_assign(1, banned, never, IndexingUpdateOp::Add)
    }
}

impl<M: Autoregressive> Autoregressive for WithVocabulary<'_, M> {
    type Prompt = M::Prompt;
    type State = M::State;

    fn device(&self) -> Device {
        self.model.device()
    }

    fn history(&self, prompt: &M::Prompt) -> Vec<Vec<u32>> {
        let first = self.first;
        let begun = |mut row: Vec<u32>| {
            row.extend(first);
            row
        };
        self.model.history(prompt).into_iter().map(begun).collect()
    }

    fn prefill(&self, prompt: M::Prompt) -> Result<(Tensor<2>, M::State), GenerationError> {
        let (mut logits, mut state) = self.model.prefill(prompt)?;
        if let Some(first) = self.first {
            let rows = logits.dims()[0];
            logits = self.model.step(row_indices(&vec![first as usize; rows], &logits.device()), &mut state);
        }
        Ok((self.real(logits), state))
    }

    /// A prompt that a forced token follows is read whole: the state has read more than the prompt.
    fn prefill_rest(&self, prompt: M::Prompt, state: M::State) -> Result<(Tensor<2>, M::State), GenerationError> {
        if self.first.is_some() {
            return self.prefill(prompt);
        }
        let (logits, state) = self.model.prefill_rest(prompt, state)?;
        Ok((self.real(logits), state))
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut M::State) -> Tensor<2> {
        self.real(self.model.step(token, state))
    }

    fn extend(&self, tokens: Tensor<2, Int>, state: &mut M::State) -> Tensor<3> {
        let logits = self.model.extend(tokens, state);
        let [rows, length, known] = logits.dims();
        let real = self.real(logits.reshape([rows * length, known]));
        let size = real.dims()[1];
        real.reshape([rows, length, size])
    }

    fn room(&self, state: &M::State) -> usize {
        self.model.room(state)
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

    /// Whether [`truncate`](Self::truncate) can go back to the first `len` tokens. Default: it cannot.
    fn can_truncate(&self, len: usize) -> bool {
        len >= self.len()
    }

    /// Forgets everything after the first `len` tokens, for example after a wrong guess. Does nothing if there are no more than that.
    ///
    /// # Panics
    /// If [`can_truncate`](Self::can_truncate) is false.
    fn truncate(&mut self, len: usize) {
        assert!(self.can_truncate(len), "a state of {} tokens cannot go back to {len}", self.len());
    }
}

/// A state that rows can be added to.
pub trait JoinState: DecodeState {
    /// Appends the rows of another state of the same model. Their texts may have other lengths.
    fn join(&mut self, other: Self);
}

/// The row numbers of [`DecodeState::select_rows`] as a tensor of indices, `[B']`.
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

    #[test]
    fn banned_ids_are_never_chosen_and_a_forced_one_begins() {
        let ids = |defaults: GenerationDefaults| {
            let (model, options) = (Successor::new(8), GenerationOptions::new(3).greedy());
            let model = WithVocabulary::new(&model, 8).with_defaults(&defaults);
            let rows = generate(&model, vec![vec![3]], &options, |_| ControlFlow::Continue(()));
            rows.unwrap().remove(0).ids
        };
        let of = |text: &str| serde_json::from_str::<GenerationDefaults>(text).unwrap();
        assert_eq!(ids(of("{}")), [4, 5, 6]);
        let banned = ids(of(r#"{"bad_words_ids": [[5], [4, 6]], "suppress_tokens": [7, 99]}"#));
        assert!(banned.iter().all(|id| ![5, 7].contains(id)) && banned.contains(&4), "{banned:?}");
        assert_eq!(ids(of(r#"{"forced_bos_token_id": 0}"#)), [1, 2, 3]);
    }
}
