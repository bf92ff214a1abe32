//! One sequence of a decoding loop: its ids, its sampling options and its stop criteria.

use crate::distribution::is_distribution;
use crate::processors::{History, Left};
use crate::sampler::{Choice, Few};
use crate::{GenerationError, Sampler, StopCriteria, StopReason, TokenScore};

/// The most new ids that a sequence has room for from its beginning: 4 KiB. A longer one grows.
const RESERVED: usize = 1024;

/// One sequence: its ids, and its sampler with the state of its processors.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    /// The prompt, then the new tokens.
    ids: Vec<u32>,
    /// How many of the ids are the prompt.
    prompt: usize,
    /// The number of its first new token.
    first: usize,
    /// The sample whose random numbers it draws, whatever its row.
    sample: usize,
    sampler: Sampler,
    /// What the processors leave of the logits, and the probabilities of that: memory that every token uses again.
    left: Left<Vec<f64>>,
    probabilities: Vec<f64>,
}

impl Sequence {
    /// A sequence that continues a prompt and draws the random numbers of a sample.
    pub(crate) fn new(sampler: &Sampler, prompt: Vec<u32>, sample: usize) -> Self {
        let (left, probabilities) = (Left::default(), Vec::new());
        let (prompt, mut ids) = (prompt.len(), prompt);
        ids.reserve(sampler.criteria.room(0).min(RESERVED));
        Self { prompt, ids, first: 0, sample, sampler: sampler.clone(), left, probabilities }
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
        History::new(&self.ids, self.prompt).with_draw(self.sampler.seed, self.sample, self.step())
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

    /// How many of the best logits decide about its next token, if others do not count.
    pub(crate) fn few(&self) -> Option<Few> {
        self.sampler.few
    }

    /// Chooses the next token from the model's logits `[V]`; any token if the sequence is complete, or is found to be complete here.
    /// [`accept`](Self::accept) adds it. The caller gives an error its row.
    pub(crate) fn choose(&mut self, logits: &[f32]) -> Result<u32, GenerationError> {
        if self.sampler.processors.is_complete() {
            return Ok(0);
        }
        let step = self.step();
        let history = History::new(&self.ids, self.prompt).with_draw(self.sampler.seed, self.sample, step);
        self.sampler.processors.process_row(&history, logits, &mut self.left, (step, 0))?;
        self.choose_left()
    }

    /// As [`choose`](Self::choose), of the tokens that [decide](Self::few).
    pub(crate) fn choose_from(&mut self, shortlist: &[(u32, f64)]) -> Result<u32, GenerationError> {
        let history = History::new(&self.ids, self.prompt).with_draw(self.sampler.seed, self.sample, self.step());
        self.left.fill_list(shortlist);
        self.sampler.processors.process_left(&history, &mut self.left)?;
        self.choose_left()
    }

    /// Chooses among the tokens that the processors have left.
    fn choose_left(&mut self) -> Result<u32, GenerationError> {
        let (step, draw) = (self.step(), self.history().draw());
        let mut refused = 0;
        let Sampler { choice, processors, .. } = &mut self.sampler;
        while is_distribution(self.left.logits()) && !processors.gives_up(refused) {
            let place = choice.of_in(self.left.logits(), draw, &mut self.probabilities) as usize;
            let id = self.left.id(place);
            if processors.admits(id) {
                return Ok(id);
            }
            self.left.hide(place);
            refused += 1;
        }
        Ok(processors.forced(step, 0)?.unwrap_or(0))
    }

    /// Why it ends before another token is chosen, if it does.
    pub(crate) fn end(&self) -> Option<StopReason> {
        let full = (self.room() == 0).then_some(StopReason::MaxNewTokens);
        self.sampler.processors.is_complete().then_some(StopReason::Complete).or(full)
    }

    /// The tokens that complete its text where it has to end here.
    pub(crate) fn closing(&mut self) -> Vec<u32> {
        self.sampler.processors.closing(&self.ids[self.prompt..])
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processors::tests::Admits;
    use crate::processors::{HIDDEN, LogitsProcessor};
    use crate::{GenerationOptions, Processing};

    /// Odd ids and no others, whatever the other processors leave.
    #[derive(Clone, Debug)]
    struct Odd;

    impl LogitsProcessor for Odd {
        fn process(&mut self, _: &History<'_>, logits: &mut [f64]) {
            logits.iter_mut().step_by(2).for_each(|logit| *logit = HIDDEN);
        }

        fn takes_precedence(&self) -> bool {
            true
        }

        fn boxed(&self) -> Box<dyn LogitsProcessor> {
            Box::new(self.clone())
        }
    }

    #[test]
    fn each_token_uses_the_memory_of_the_one_before() {
        let random = GenerationOptions::new(9).with_temperature(1.0);
        let odd = Processing { banned: vec![vec![1]], ..Processing::default() }.with_processor(Odd);
        let logits: Vec<f32> = (0..64).map(|id| (id * 37 % 64) as f32 / 8.0).collect();
        let shortlist: Vec<(u32, f64)> = (0..3).map(|id| (id, 1.0)).collect();
        for options in [random.clone(), random.with_top_k(3), GenerationOptions::new(9).greedy().with_processing(odd)] {
            let mut row = Sequence::new(&Sampler::new(&options).unwrap(), vec![1], 0);
            let mut next = |id| {
                row.choose(&logits).unwrap();
                if row.few().is_some() {
                    row.choose_from(&shortlist).unwrap();
                }
                row.accept(id);
                (row.left.addresses(), row.probabilities.as_ptr())
            };
            let first = next(3);
            assert!((4..9).all(|id| next(id) == first), "{options:?}");
        }
    }

    /// What is chosen of 1000 tokens, each more probable than the one before it.
    fn chosen(processors: &[&Admits]) -> Result<u32, GenerationError> {
        let own = Processing::default();
        let own = processors.iter().fold(own, |own, processor| own.with_processor(Admits::clone(processor)));
        let sampler = Sampler::new(&GenerationOptions::new(1).greedy().with_processing(own)).unwrap();
        let logits: Vec<f32> = (0..1000).map(|id| id as f32).collect();
        Sequence::new(&sampler, vec![0], 0).choose(&logits)
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
