//! One sequence of a decoding loop: its ids, its sampling options and its stop criteria.

use crate::distribution::is_distribution;
use crate::processors::History;
use crate::sampler::Choice;
use crate::{GenerationError, Sampler, StopCriteria, StopReason, TokenScore};

/// One sequence: its ids, and its sampler with the state of its processors.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    /// The prompt, then the new tokens.
    ids: Vec<u32>,
    /// How many of the ids are the prompt.
    prompt: usize,
    /// The number of its first new token.
    first: usize,
    /// Selects its stream of random numbers.
    number: usize,
    sampler: Sampler,
}

impl Sequence {
    /// A sequence that continues a prompt; `number` selects its random numbers.
    pub(crate) fn new(sampler: &Sampler, prompt: Vec<u32>, number: usize) -> Self {
        Self { prompt: prompt.len(), ids: prompt, first: 0, number, sampler: sampler.clone() }
    }

    /// Starts at new token number `tokens`, without knowing those before it.
    pub(crate) fn behind(mut self, tokens: usize) -> Self {
        self.first = tokens;
        self
    }

    /// The number of the next token.
    pub(crate) fn step(&self) -> usize {
        self.first + self.ids.len() - self.prompt
    }

    /// What processors are told when its next token is chosen.
    pub(crate) fn history(&self) -> History<'_> {
        History::new(&self.ids, self.prompt).with_draw(self.sampler.seed, self.number, self.step())
    }

    /// All of its ids.
    pub(crate) fn into_ids(self) -> Vec<u32> {
        self.ids
    }

    /// How many tokens may still come.
    pub(crate) fn room(&self) -> usize {
        self.criteria().room(self.step())
    }

    pub(crate) fn criteria(&self) -> &StopCriteria {
        &self.sampler.criteria
    }

    /// Whether its next token is the argmax of the model's logits and nothing else is asked for.
    pub(crate) fn is_greedy(&self) -> bool {
        let Sampler { choice, processors, logprobs, .. } = &self.sampler;
        *choice == Choice::Best && processors.is_empty() && logprobs.is_none()
    }

    /// Chooses the next token from the model's logits `[V]`; any token if the sequence is complete, or becomes complete here.
    /// [`accept`](Self::accept) adds it.
    pub(crate) fn choose(&mut self, logits: &[f32]) -> Result<u32, GenerationError> {
        if self.sampler.processors.is_complete() {
            return Ok(0);
        }
        let (step, row) = (self.step(), self.number);
        let history = History::new(&self.ids, self.prompt).with_draw(self.sampler.seed, row, step);
        let mut left = self.sampler.processors.processed(&history, logits, step, row)?;
        let draw = history.draw();
        while is_distribution(left.logits()) {
            let place = self.sampler.choice.of(left.logits(), draw) as usize;
            let id = left.id(place);
            if self.sampler.processors.admits(id) {
                return Ok(id);
            }
            left.hide(place);
        }
        Ok(self.sampler.processors.forced(step, row)?.unwrap_or(0))
    }

    /// Why it ends before another token is chosen, if it does.
    pub(crate) fn end(&self) -> Option<StopReason> {
        let full = (self.room() == 0).then_some(StopReason::MaxNewTokens);
        self.sampler.processors.is_complete().then_some(StopReason::Complete).or(full)
    }

    /// The score of a chosen token, if the options ask for it.
    pub(crate) fn score(&self, logits: &[f32], id: u32) -> Option<TokenScore> {
        self.sampler.logprobs.map(|top| TokenScore::of(logits, id, top))
    }

    /// Adds a chosen token, unless the sequence ends with it, and returns the reason.
    pub(crate) fn accept(&mut self, id: u32) -> Option<StopReason> {
        let end = self.criteria().ends_with(id);
        if end.is_none() {
            self.ids.push(id);
            self.sampler.processors.accept(id);
        }
        end
    }
}
