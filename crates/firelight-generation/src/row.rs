//! One text that is written: what it holds, by which options it goes on, and when it ends.

use crate::processors::{HIDDEN, History};
use crate::sampler::{Choice, is_distribution};
use crate::{GenerationError, Sampler, StopCriteria, StopReason, TokenScore};

/// One row: what was written, and what its processors know of it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    ids: Vec<u32>,
    prompt: usize,
    /// The number of its first new token.
    first: usize,
    /// By which it draws.
    number: usize,
    sampler: Sampler,
}

impl Row {
    /// A row that continues a prompt and draws by a number.
    pub(crate) fn new(sampler: &Sampler, prompt: Vec<u32>, number: usize) -> Self {
        Self { prompt: prompt.len(), ids: prompt, first: 0, number, sampler: sampler.clone() }
    }

    /// The same where so many tokens were written that nothing is known of.
    pub(crate) fn behind(mut self, tokens: usize) -> Self {
        self.first = tokens;
        self
    }

    /// The number of the next token.
    pub(crate) fn step(&self) -> usize {
        self.first + self.ids.len() - self.prompt
    }

    /// What is known of it where its next token is chosen.
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

    /// Whether the best of the model's logits is its next token.
    pub(crate) fn takes_the_best(&self) -> bool {
        let Sampler { choice, processors, logprobs, .. } = &self.sampler;
        *choice == Choice::Best && processors.is_empty() && logprobs.is_none()
    }

    /// The next token by the model's logits `[V]`, or any where it is complete. It is not yet part of the row.
    pub(crate) fn choose(&mut self, logits: &[f32]) -> Result<u32, GenerationError> {
        if self.sampler.processors.is_complete() {
            return Ok(0);
        }
        let (step, row) = (self.step(), self.number);
        let mut logits: Vec<f64> = logits.iter().map(|&logit| f64::from(logit)).collect();
        if !is_distribution(&logits) {
            return Err(GenerationError::NonFiniteLogits { step, row });
        }
        let history = History::new(&self.ids, self.prompt).with_draw(self.sampler.seed, self.number, step);
        self.sampler.processors.process(&history, &mut logits);
        if !is_distribution(&logits) {
            return Err(GenerationError::NothingLeft { step, row });
        }
        let draw = history.draw();
        loop {
            let id = self.sampler.choice.of(&logits, draw);
            if self.sampler.processors.admits(id) {
                return Ok(id);
            }
            logits[id as usize] = HIDDEN;
            if !is_distribution(&logits) {
                return Err(GenerationError::NothingLeft { step, row });
            }
        }
    }

    /// Why it ends before another token is chosen, if it does.
    pub(crate) fn end(&self) -> Option<StopReason> {
        let full = (self.room() == 0).then_some(StopReason::MaxNewTokens);
        self.sampler.processors.is_complete().then_some(StopReason::Complete).or(full)
    }

    /// What the model gave a token that was chosen, where that is asked for.
    pub(crate) fn score(&self, logits: &[f32], id: u32) -> Option<TokenScore> {
        self.sampler.logprobs.map(|top| TokenScore::of(logits, id, top))
    }

    /// Adds a token that was chosen, unless the row ends with it.
    pub(crate) fn accept(&mut self, id: u32) -> Option<StopReason> {
        let end = self.criteria().ends_with(id);
        if end.is_none() {
            self.ids.push(id);
            self.sampler.processors.accept(id);
        }
        end
    }
}
