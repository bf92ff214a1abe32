//! Prefix reuse: a prompt that begins like an earlier one computes only the rest.

use std::fmt::{Debug, Formatter};

use burn::tensor::Tensor;

use crate::autoregressive::{prefill, prefill_rest};
use crate::{Autoregressive, DecodeState, GenerationError, GenerationOptions, JoinState, TokenStream};

/// The ids that a model has read of one row, and its state after them.
///
/// [`TokenStream::after`](crate::TokenStream::after) starts from one and [`TokenStream::into_prefix`](crate::TokenStream::into_prefix)
/// returns it, so a conversation reads each of its messages once. The default has read nothing.
#[derive(Clone)]
pub struct Prefix<S> {
    ids: Vec<u32>,
    state: Option<S>,
}

impl<S> Default for Prefix<S> {
    fn default() -> Self {
        Self { ids: Vec::new(), state: None }
    }
}

impl<S: DecodeState> Prefix<S> {
    /// Keeps the ids that the state has read; there may be more.
    pub(crate) fn new(mut ids: Vec<u32>, state: S) -> Self {
        ids.truncate(state.len());
        Self { ids, state: Some(state) }
    }

    /// The ids that were read.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The logits `[1, V]` after `ids`, and the state. The beginning that `ids` share with what was read before is not read again, if the
    /// state can go back that far.
    pub(crate) fn read<M>(&mut self, model: &M, ids: &[u32]) -> Result<(Tensor<2>, S), GenerationError>
    where
        M: Autoregressive<Prompt = Vec<Vec<u32>>, State = S>,
    {
        let prompt = vec![ids.to_vec()];
        match self.take(ids) {
            Some(state) => prefill_rest(model, prompt, state),
            None => prefill(model, prompt),
        }
    }

    /// The state after the common tokens. Leaves at least one token to read, because its logits are wanted.
    fn take(&mut self, ids: &[u32]) -> Option<S> {
        let read = std::mem::take(&mut self.ids);
        let common = read.iter().zip(ids).take_while(|(read, id)| read == id).count();
        let common = common.min(ids.len().saturating_sub(1));
        let mut state = self.state.take().filter(|state| common > 0 && state.can_truncate(common))?;
        state.truncate(common);
        (state.len() == common).then_some(state)
    }
}

impl<S> Debug for Prefix<S> {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Prefix").field("ids", &self.ids.len()).finish_non_exhaustive()
    }
}

impl<'m, M> TokenStream<'m, M>
where
    M: Autoregressive<Prompt = Vec<Vec<u32>>>,
    M::State: JoinState + Clone,
{
    /// As [`of_rows`](Self::of_rows), but what all prompts begin with is read once. What each has behind it is then read row by row, so this pays
    /// where the common beginning is long, such as the same instructions before every question.
    ///
    /// # Errors
    /// As [`of_rows`](Self::of_rows).
    ///
    /// # Panics
    /// As [`of_rows`](Self::of_rows), and where [`JoinState::join`] does.
    pub fn of_rows_sharing(
        model: &'m M,
        prompts: Vec<Vec<u32>>,
        options: &[GenerationOptions],
    ) -> Result<Self, GenerationError> {
        assert_eq!(prompts.len(), options.len(), "options for each row of the prompt");
        let shared = shared(&prompts);
        if prompts.len() < 2 || shared == 0 {
            return Self::of_rows(model, prompts, options);
        }
        let begun = prompts[0][..shared].to_vec();
        let (_, state) = Prefix::<M::State>::default().read(model, &begun)?;
        let read = Prefix::new(begun, state);
        let row = |ids: &Vec<u32>, options| Self::after(model, &mut read.clone(), ids.clone(), options);
        let mut rows = row(&prompts[0], &options[0])?;
        for (ids, options) in prompts.iter().zip(options).skip(1) {
            rows.join(row(ids, options)?);
        }
        Ok(rows)
    }
}

/// How many tokens all prompts begin with alike. Each has at least one more, whose logits are wanted.
fn shared(prompts: &[Vec<u32>]) -> usize {
    let Some((first, others)) = prompts.split_first() else { return 0 };
    let common = |other: &Vec<u32>| first.iter().zip(other).take_while(|(first, other)| first == other).count();
    let shortest = prompts.iter().map(Vec::len).min().unwrap_or(0);
    others.iter().map(common).fold(shortest.saturating_sub(1), usize::min)
}

/// Reads a text that grows; once it outgrows the context, only its end.
#[derive(Clone, Debug)]
pub(crate) struct Reader<S> {
    prefix: Prefix<S>,
    /// How many ids at the beginning of the text are no longer read.
    skipped: usize,
}

impl<S> Default for Reader<S> {
    fn default() -> Self {
        Self { prefix: Prefix::default(), skipped: 0 }
    }
}

impl<S: DecodeState> Reader<S> {
    /// The logits `[1, V]` after `ids`, and the state.
    pub(crate) fn read<M>(&mut self, model: &M, ids: &[u32]) -> Result<(Tensor<2>, S), GenerationError>
    where
        M: Autoregressive<Prompt = Vec<Vec<u32>>, State = S>,
    {
        match self.prefix.read(model, &ids[self.skipped.min(ids.len())..]) {
            Err(GenerationError::PromptTooLong { max_seq_len, .. }) => {
                self.skipped = ids.len() - max_seq_len.div_ceil(2);
                self.prefix.read(model, &ids[self.skipped..])
            }
            read => read,
        }
    }

    /// Takes back the state after it has read some or all of `ids`.
    pub(crate) fn keep(&mut self, ids: &[u32], state: S) {
        self.prefix = Prefix::new(ids[self.skipped..].to_vec(), state);
    }
}

#[cfg(test)]
mod tests;
