//! Contrastive search: each step weighs the probability of a token against the likeness of its hidden state to those of the text so far.

mod search;

use burn::tensor::{Int, Tensor};
use serde::{Deserialize, Serialize};

use self::search::Contrast;
use crate::options::stop_problems;
use crate::processors::LogitsProcessor;
use crate::{Autoregressive, Generated, GenerationError, Processing, WithVocabulary, range, row_indices};

/// A model that also returns its last hidden states, the vectors `[D]` that its logits are computed from.
pub trait HiddenStates: Autoregressive {
    /// As [`prefill`](Autoregressive::prefill), with the hidden states of all tokens of the prompt, `[B, T, D]`. The rows end together: what
    /// stands before a shorter one ([`history`](Autoregressive::history) tells its length) is never read.
    ///
    /// # Errors
    /// As [`prefill`](Autoregressive::prefill).
    fn prefill_hidden(&self, prompt: Self::Prompt) -> Result<(Tensor<2>, Tensor<3>, Self::State), GenerationError>;

    /// As [`step`](Autoregressive::step), with the hidden states of the tokens: `[B, V]` and `[B, D]`.
    fn step_hidden(&self, token: Tensor<1, Int>, state: &mut Self::State) -> (Tensor<2>, Tensor<2>);
}

impl<M: HiddenStates> HiddenStates for WithVocabulary<'_, M> {
    fn prefill_hidden(&self, prompt: M::Prompt) -> Result<(Tensor<2>, Tensor<3>, M::State), GenerationError> {
        let (logits, hidden, mut state) = self.model().prefill_hidden(prompt)?;
        let Some(first) = self.first() else { return Ok((self.real(logits), hidden, state)) };
        let token = row_indices(&vec![first as usize; logits.dims()[0]], &logits.device());
        let (logits, next) = self.model().step_hidden(token, &mut state);
        Ok((self.real(logits), Tensor::cat(vec![hidden, next.unsqueeze_dim(1)], 1), state))
    }

    fn step_hidden(&self, token: Tensor<1, Int>, state: &mut M::State) -> (Tensor<2>, Tensor<2>) {
        let (logits, hidden) = self.model().step_hidden(token, state);
        (self.real(logits), hidden)
    }
}

/// Options of a contrastive search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ContrastiveOptions {
    /// The most tokens to add to the prompt. Default 200.
    pub max_new_tokens: usize,
    /// How many of the most probable tokens are compared, at least 1: `k`. Default 4.
    pub top_k: usize,
    /// The weight of the likeness against the probability, from 0 to 1: `α`. Default 0.6; 0 is greedy.
    pub penalty_alpha: f64,
    /// Ids that end the text. Default none.
    pub stop_tokens: Vec<u32>,
    /// Strings that end a text, even if they begin within a token. They are not part of the text. Functions that return ids alone do not
    /// look for them, unless their processors have a [`StopStrings`](crate::StopStrings). Default none.
    pub stop_strings: Vec<String>,
    /// Penalties, bans and forced tokens. Default none.
    pub processing: Processing,
    /// Scores each token by the model's own probabilities, and lists this many of the most probable tokens at its place:
    /// [`Generated::scores`]. Default none: tokens are not scored.
    pub logprobs: Option<usize>,
}

impl Default for ContrastiveOptions {
    fn default() -> Self {
        Self::new(200)
    }
}

impl ContrastiveOptions {
    /// Adds at most `max_new_tokens` tokens, everything else at its default.
    pub fn new(max_new_tokens: usize) -> Self {
        Self {
            max_new_tokens,
            top_k: 4,
            penalty_alpha: 0.6,
            stop_tokens: Vec::new(),
            stop_strings: Vec::new(),
            processing: Processing::default(),
            logprobs: None,
        }
    }

    /// Sets how many tokens are compared, and the weight of their likeness.
    pub fn with_contrast(mut self, top_k: usize, penalty_alpha: f64) -> Self {
        (self.top_k, self.penalty_alpha) = (top_k, penalty_alpha);
        self
    }

    /// Sets the ids that end the text.
    pub fn with_stop_tokens(mut self, stop_tokens: impl Into<Vec<u32>>) -> Self {
        self.stop_tokens = stop_tokens.into();
        self
    }

    /// Sets penalties, bans and forced tokens.
    pub fn with_processing(mut self, processing: Processing) -> Self {
        self.processing = processing;
        self
    }

    /// Adds a processor of your own, which runs after penalties and bans.
    pub fn with_processor(mut self, processor: impl LogitsProcessor + 'static) -> Self {
        self.processing.custom.push(processor);
        self
    }

    /// Sets the strings that end a text.
    pub fn with_stop_strings(mut self, stop_strings: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.stop_strings = stop_strings.into_iter().map(Into::into).collect();
        self
    }

    /// Scores each token, and lists the `top` most probable tokens at its place.
    pub fn with_logprobs(mut self, top: usize) -> Self {
        self.logprobs = Some(top);
        self
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`GenerationError::InvalidOptions`] with one sentence for each field out of range.
    pub fn validate(&self) -> Result<(), GenerationError> {
        let mut problems = Vec::new();
        if self.top_k == 0 {
            problems.push("top_k is 0, expected 1 or more".to_string());
        }
        problems.extend(range::share("penalty_alpha", self.penalty_alpha));
        problems.extend(stop_problems(&self.stop_strings, &self.processing));
        self.processing.validate(self.max_new_tokens, problems)
    }
}

/// Continues every row of a prompt; each text is the one that its row would get alone, up to rounding. Each step reads the `k` most probable
/// tokens `v` of a row together and takes the one with the highest `(1 − α) p(v) − α max_j cos(h_v, h_j)`, where `h` are the last hidden states
/// and `j` the tokens so far.
///
/// # Source
/// Su et al. 2022, A contrastive framework for neural text generation (<https://arxiv.org/abs/2202.06417>), eq. 5.
///
/// # Errors
/// Options out of range, a prompt that the model refuses, logits that are no distribution, or processors that leave nothing. An error after
/// the first token is [`GenerationError::Unfinished`], with the ids up to there.
pub fn contrastive_search<M: HiddenStates>(
    model: &M,
    prompt: M::Prompt,
    options: &ContrastiveOptions,
) -> Result<Vec<Generated>, GenerationError> {
    options.validate()?;
    Contrast::new(model, prompt, |_| options)?.write()
}

/// As [`contrastive_search`], with options for each row.
///
/// # Errors
/// As [`contrastive_search`].
///
/// # Panics
/// If there are not as many options as rows.
pub fn contrastive_search_rows<M: HiddenStates>(
    model: &M,
    prompt: M::Prompt,
    options: &[ContrastiveOptions],
) -> Result<Vec<Generated>, GenerationError> {
    options.iter().try_for_each(ContrastiveOptions::validate)?;
    let of_row = |row: usize| {
        options.get(row).unwrap_or_else(|| panic!("there are more rows than the {} options", options.len()))
    };
    let search = Contrast::new(model, prompt, of_row)?;
    assert_eq!(search.rows(), options.len(), "there are options for each row");
    search.write()
}

#[cfg(test)]
mod tests;
