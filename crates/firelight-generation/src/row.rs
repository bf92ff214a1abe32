//! One row of a decoding loop: its ids, the options that it is written with, and when it ends.

use crate::distribution::is_distribution;
use crate::processors::History;
use crate::sampler::Choice;
use crate::{GenerationError, Sampler, StopCriteria, StopReason, TokenScore};

/// One row: its ids, and its sampler with the state of its processors.
#[derive(Clone, Debug)]
pub(crate) struct Row {
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

impl Row {
    /// A row that continues a prompt; `number` selects its random numbers.
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
    pub(crate) fn takes_the_best(&self) -> bool {
        let Sampler { choice, processors, logprobs, .. } = &self.sampler;
        *choice == Choice::Best && processors.is_empty() && logprobs.is_none()
    }

    /// Chooses the next token from the model's logits `[V]`; any token if the row is complete, or is found to be complete here.
    /// [`accept`](Self::accept) adds it.
    pub(crate) fn choose(&mut self, logits: &[f32]) -> Result<u32, GenerationError> {
        if self.sampler.processors.is_complete() {
            return Ok(0);
        }
        let (step, row) = (self.step(), self.number);
        let history = History::new(&self.ids, self.prompt).with_draw(self.sampler.seed, row, step);
        let mut left = self.sampler.processors.processed(&history, logits, step, row)?;
        let (draw, mut refused) = (history.draw(), 0);
        while is_distribution(left.logits()) && !self.sampler.processors.gives_up(refused) {
            let place = self.sampler.choice.of(left.logits(), draw) as usize;
            let id = left.id(place);
            if self.sampler.processors.admits(id) {
                return Ok(id);
            }
            left.hide(place);
            refused += 1;
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

    /// Adds a chosen token, unless the row ends with it: then returns the reason.
    pub(crate) fn accept(&mut self, id: u32) -> Option<StopReason> {
        let end = self.criteria().ends_with(id);
        if end.is_none() {
            self.ids.push(id);
            self.sampler.processors.accept(id);
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processors::tests::Admits;
    use crate::{GenerationOptions, Processing};

    /// What is chosen of 1000 tokens, each more probable than the one before it.
    fn chosen(processors: &[&Admits]) -> Result<u32, GenerationError> {
        let own = Processing::default();
        let own = processors.iter().fold(own, |own, processor| own.with_processor(Admits::clone(processor)));
        let sampler = Sampler::new(&GenerationOptions::new(1).greedy().with_processing(own)).unwrap();
        let logits: Vec<f32> = (0..1000).map(|id| id as f32).collect();
        Row::new(&sampler, vec![0], 0).choose(&logits)
    }

    #[test]
    fn a_row_of_which_every_token_is_refused_ends_the_search_soon() {
        let nothing = Admits::new(&[], true);
        assert_eq!(chosen(&[&nothing]).unwrap(), 1, "the fallback");
        assert_eq!(nothing.asked(), 256);
        let (refuses, constraint) = (Admits::new(&[], false), Admits::new(&[7], true));
        assert_eq!(chosen(&[&constraint, &refuses]).unwrap(), 1);
        assert_eq!((refuses.asked(), constraint.asked()), (256, 0), "nothing costly was asked");
    }

    #[test]
    fn without_a_fallback_every_token_is_asked_for() {
        let last = Admits::new(&[0], false);
        assert_eq!((chosen(&[&last]).unwrap(), last.asked()), (0, 1000));
    }
}
