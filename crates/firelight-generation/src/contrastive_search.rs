//! Contrastive search: each step weighs the probability of a token against the likeness of its hidden state to those of the text so far.

use burn::tensor::{Int, Tensor};
use serde::{Deserialize, Serialize};

use crate::distribution::{by_rank, softmax};
use crate::processors::{History, Left, LogitsProcessor, Processors};
use crate::sampler::host;
use crate::{
    Autoregressive, DecodeState, Generated, GeneratedText, GenerationError, Processing, StopReason, WithVocabulary,
    range, row_indices,
};

/// A model that also returns its last hidden states, the vectors `[D]` that its logits are computed from.
pub trait HiddenStates: Autoregressive {
    /// As [`prefill`](Autoregressive::prefill) for a prompt of one row, with the hidden states of all its tokens, `[1, T, D]`.
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
        let token = row_indices(&[first as usize], &logits.device());
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
    /// Penalties, bans and forced tokens. Default none.
    pub processing: Processing,
}

impl Default for ContrastiveOptions {
    fn default() -> Self {
        Self::new(200)
    }
}

impl ContrastiveOptions {
    /// Adds at most `max_new_tokens` tokens, everything else at its default.
    pub fn new(max_new_tokens: usize) -> Self {
        let (stop_tokens, processing) = (Vec::new(), Processing::default());
        Self { max_new_tokens, top_k: 4, penalty_alpha: 0.6, stop_tokens, processing }
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
        self.processing.validate(self.max_new_tokens, problems)
    }
}

/// Continues a prompt of one row. Each step reads the `k` most probable tokens `v` together and takes the one with the highest
/// `(1 − α) p(v) − α max_j cos(h_v, h_j)`, where `h` are the last hidden states and `j` the tokens so far.
///
/// # Source
/// Su et al. 2022, A contrastive framework for neural text generation (<https://arxiv.org/abs/2202.06417>), eq. 5.
///
/// # Errors
/// Options out of range, a prompt that the model refuses, logits that are no distribution, or processors that leave nothing.
///
/// # Panics
/// If the prompt has several rows.
pub fn contrastive_search<M: HiddenStates>(
    model: &M,
    prompt: M::Prompt,
    options: &ContrastiveOptions,
) -> Result<Generated, GenerationError> {
    options.validate()?;
    let prompt_ids = model.history(&prompt).pop().unwrap_or_default();
    let (logits, hidden, state) = model.prefill_hidden(prompt)?;
    assert_eq!(logits.dims()[0], 1, "contrastive search continues one row");
    let search = Contrast {
        model,
        state,
        logits: host(logits)?,
        text: unit(hidden.squeeze_dim(0)),
        prompt: prompt_ids.len(),
        ids: prompt_ids,
        processors: options.processing.processors(options.max_new_tokens, &options.stop_tokens),
        left: Left::default(),
    };
    search.write(options)
}

/// A contrastive search after some tokens.
struct Contrast<'m, M: Autoregressive> {
    model: &'m M,
    state: M::State,
    /// The logits after the last token, `[V]`.
    logits: Vec<f32>,
    /// The hidden states of the tokens so far, scaled to length 1: `[T, D]`.
    text: Tensor<2>,
    ids: Vec<u32>,
    prompt: usize,
    processors: Processors,
    /// What the processors leave of the logits.
    left: Left<Vec<f64>>,
}

impl<M: HiddenStates> Contrast<'_, M> {
    fn write(mut self, options: &ContrastiveOptions) -> Result<Generated, GenerationError> {
        let mut stop_reason = StopReason::MaxNewTokens;
        for step in 0..options.max_new_tokens {
            if self.processors.is_complete() {
                break;
            }
            let best = self.next_token(options, step);
            let best = best.map_err(|error| error.after(self.unfinished()))?;
            let Some(id) = best else { break };
            if options.stop_tokens.contains(&id) {
                stop_reason = StopReason::StopToken(id);
                break;
            }
            self.ids.push(id);
            self.processors.accept(id);
        }
        let stop_reason = if self.processors.is_complete() { StopReason::Complete } else { stop_reason };
        Ok(Generated { ids: self.ids.split_off(self.prompt), scores: Vec::new(), stop_reason })
    }

    /// What was written before an error, completed.
    fn unfinished(&mut self) -> Vec<GeneratedText> {
        let (mut ids, scores, stop_reason) = (self.ids.split_off(self.prompt), Vec::new(), StopReason::Failed);
        ids.extend(self.processors.closing(&ids));
        vec![GeneratedText::without_text(Generated { ids, scores, stop_reason })]
    }

    /// The token number `step`; none if the text is complete.
    fn next_token(&mut self, options: &ContrastiveOptions, step: usize) -> Result<Option<u32>, GenerationError> {
        let candidates = self.candidates(options.top_k, step)?;
        if candidates.is_empty() {
            return Ok(None);
        }
        self.best(&candidates, options.penalty_alpha).map(Some)
    }

    /// The `top_k` most probable tokens with their probabilities, best first. None if the text is complete.
    fn candidates(&mut self, top_k: usize, step: usize) -> Result<Vec<(u32, f64)>, GenerationError> {
        let history = History::new(&self.ids, self.prompt);
        self.processors.process_row(&history, &self.logits, &mut self.left, (step, 0))?;
        let Self { left, processors, .. } = self;
        let probabilities = softmax(left.logits());
        let mut places: Vec<usize> = (0..probabilities.len()).filter(|&place| probabilities[place] > 0.0).collect();
        places.sort_unstable_by(by_rank(&probabilities));
        let ranked = places.into_iter().map(|place| (left.id(place), probabilities[place]));
        let found = admitted(processors, ranked, top_k);
        if !found.is_empty() {
            return Ok(found);
        }
        Ok(processors.forced(step, 0)?.map(|id| (id, 1.0)).into_iter().collect())
    }

    /// Reads all candidates in one step and goes on with the best.
    fn best(&mut self, candidates: &[(u32, f64)], alpha: f64) -> Result<u32, GenerationError> {
        let device = self.model.device();
        if candidates.len() > 1 {
            self.state.select_rows(&vec![0; candidates.len()]);
        }
        let tokens = row_indices(&candidates.iter().map(|&(id, _)| id as usize).collect::<Vec<_>>(), &device);
        let (logits, hidden) = self.model.step_hidden(tokens, &mut self.state);
        let hidden = unit(hidden); // [k, D]
        let likeness = host(hidden.clone().matmul(self.text.clone().transpose()).max_dim(1))?; // [k, 1]
        let score = |place: usize| (1.0 - alpha) * candidates[place].1 - alpha * f64::from(likeness[place]);
        let best = (1..candidates.len()).fold(0, |best, place| if score(place) > score(best) { place } else { best });
        if candidates.len() > 1 {
            self.state.select_rows(&[best]);
        }
        self.logits = host(logits.narrow(0, best, 1))?;
        self.text = Tensor::cat(vec![self.text.clone(), hidden.narrow(0, best, 1)], 0);
        Ok(candidates[best].0)
    }
}

/// The first `top_k` of ranked tokens that processors admit; fewer, if so many are refused that the rest is not asked for.
fn admitted(processors: &mut Processors, ranked: impl Iterator<Item = (u32, f64)>, top_k: usize) -> Vec<(u32, f64)> {
    let (mut found, mut refused) = (Vec::new(), 0);
    for (id, probability) in ranked {
        if found.len() == top_k || processors.gives_up(refused) {
            break;
        }
        match processors.admits(id) {
            true => found.push((id, probability)),
            false => refused += 1,
        }
    }
    found
}

/// Scales vectors `[T, D]` to length 1.
fn unit(vectors: Tensor<2>) -> Tensor<2> {
    let length = vectors.clone().powi_scalar(2).sum_dim(1).sqrt();
    vectors / length
}
