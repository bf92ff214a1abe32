//! The decoding loop: prefill, then sample and step until every row has ended. [`generate`](crate::generate()) and
//! [`generate_text`](crate::generate_text) run it; callers that want to interleave their own work iterate it themselves.

use std::ops::Range;

use burn::tensor::{Int, Tensor};

use crate::autoregressive::{prefill, step};
use crate::sampler::Row;
use crate::{
    Autoregressive, DecodeState, GenerationError, GenerationOptions, Sampler, StopCriteria, StopReason, row_indices,
};

/// An iterator over the new tokens of all rows: each item has one entry per row, `None` where the row has ended.
///
/// The iterator ends when all rows have, or after its first error.
pub struct TokenStream<'m, M: Autoregressive> {
    model: &'m M,
    state: M::State,
    next: Option<Next>,
    sampler: Sampler,
    /// Those that have not ended: the model holds no others.
    rows: Vec<Row>,
    /// Which of all rows each of them is.
    live: Vec<usize>,
    criteria: StopCriteria,
    stops: Vec<Option<StopReason>>,
    len: usize,
}

/// Where the next logits come from. A token is only stepped when its successor is wanted, so the last one never is.
enum Next {
    Logits(Tensor<2>),
    Step(Tensor<1, Int>),
}

impl<'m, M: Autoregressive> TokenStream<'m, M> {
    /// Reads the prompt; the first token comes with the first [`next`](Iterator::next).
    ///
    /// # Errors
    /// Options out of range, or a prompt that the model refuses.
    pub fn new(model: &'m M, prompt: M::Prompt, options: &GenerationOptions) -> Result<Self, GenerationError> {
        Self::of_samples(model, prompt, options, 0..1)
    }

    /// The same for several samples of the prompt, which is read once: all rows of the first sample, then all of the next. A
    /// sample draws by its number, whichever others are decoded beside it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_samples(
        model: &'m M,
        prompt: M::Prompt,
        options: &GenerationOptions,
        samples: Range<usize>,
    ) -> Result<Self, GenerationError> {
        let sampler = Sampler::new(options)?;
        let mut histories = model.history(&prompt);
        let (mut logits, mut state) = prefill(model, prompt)?;
        let [rows, _] = logits.dims();
        histories.resize(rows, Vec::new());
        if samples.len() != 1 {
            state.select_rows(&samples.clone().flat_map(|_| 0..rows).collect::<Vec<_>>());
            logits = logits.repeat(&[samples.len(), 1]);
        }
        let numbers = rows * samples.start..rows * samples.end;
        let count = numbers.len();
        Ok(Self {
            model,
            state,
            next: Some(Next::Logits(logits)),
            rows: numbers.map(|number| sampler.row(histories[number % rows].clone(), number)).collect(),
            live: (0..count).collect(),
            sampler,
            criteria: StopCriteria::new(options),
            stops: vec![None; count],
            len: 0,
        })
    }

    /// Number of rows, `B`, those of all samples.
    pub fn batch_size(&self) -> usize {
        self.stops.len()
    }

    /// Why each row ended, `None` for the rows that have not.
    pub fn stops(&self) -> &[Option<StopReason>] {
        &self.stops
    }

    /// Ends a row for a reason of the caller's: no more tokens come of it.
    pub fn end_row(&mut self, row: usize, reason: StopReason) {
        self.stops[row].get_or_insert(reason);
    }

    /// The next token of every row that has not ended, with no regard to whether any is left.
    fn advance(&mut self, next: Next) -> Result<Vec<Option<u32>>, GenerationError> {
        let logits = match next {
            Next::Logits(logits) => logits,
            Next::Step(tokens) => {
                let tokens = self.without_ended(tokens);
                step(self.model, tokens, &mut self.state)
            }
        };
        let sampled = self.sampler.choose(logits, &mut self.rows, self.len);
        let sampled = sampled.map_err(|error| error.of_row(|place| self.rows[place].number()))?;
        self.len += 1;
        let mut tokens = vec![None; self.stops.len()];
        for (place, &id) in sampled.ids.iter().enumerate() {
            tokens[self.live[place]] = self.admit(place, id);
        }
        self.next = Some(Next::Step(sampled.tokens));
        Ok(tokens)
    }

    /// The id if its row goes on with it.
    fn admit(&mut self, place: usize, id: u32) -> Option<u32> {
        let stop = &mut self.stops[self.live[place]];
        *stop = stop.or(self.criteria.ends_with(id));
        stop.is_none().then(|| self.rows[place].accept(id))?;
        Some(id)
    }

    /// The tokens of the rows that go on. The others leave the model's state, which is copied for it.
    fn without_ended(&mut self, tokens: Tensor<1, Int>) -> Tensor<1, Int> {
        let goes_on = |place: &usize| self.stops[self.live[*place]].is_none();
        let kept: Vec<usize> = (0..self.live.len()).filter(goes_on).collect();
        if kept.len() == self.live.len() {
            return tokens;
        }
        self.state.select_rows(&kept);
        let mut rows = std::mem::take(&mut self.rows).into_iter().map(Some).collect::<Vec<_>>();
        self.rows = kept.iter().filter_map(|&place| rows[place].take()).collect();
        self.live = kept.iter().map(|&place| self.live[place]).collect();
        let kept = row_indices(&kept, &tokens.device());
        tokens.select(0, kept)
    }

    fn end(&mut self, reason: StopReason) {
        for stop in &mut self.stops {
            stop.get_or_insert(reason);
        }
    }
}

impl<M: Autoregressive> Iterator for TokenStream<'_, M> {
    type Item = Result<Vec<Option<u32>>, GenerationError>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.criteria.has_room(self.len) {
            self.end(StopReason::MaxNewTokens);
        }
        if self.stops.iter().all(Option::is_some) {
            return None;
        }
        // After an error nothing is left to continue from.
        let next = self.next.take()?;
        let tokens = self.advance(next).map(|tokens| tokens.iter().any(Option::is_some).then_some(tokens));
        tokens.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::{Pairs, Successor};

    fn stream<'m>(model: &'m Successor, rows: &[&[u32]], options: GenerationOptions) -> TokenStream<'m, Successor> {
        TokenStream::new(model, rows.iter().map(|row| row.to_vec()).collect(), &options).unwrap()
    }

    #[test]
    fn rows_end_one_by_one() {
        let model = Successor::new(8);
        let mut stream = stream(&model, &[&[0, 3], &[1]], GenerationOptions::new(9).greedy().with_stop_tokens([6]));
        let tokens: Vec<_> = stream.by_ref().map(Result::unwrap).collect();
        assert_eq!(tokens, [[Some(4), Some(2)], [Some(5), Some(3)], [None, Some(4)], [None, Some(5)]]);
        assert_eq!(stream.stops(), [Some(StopReason::StopToken(6)); 2]);
    }

    #[test]
    fn rows_that_have_ended_cost_nothing_and_the_others_do_not_notice() {
        let model = Pairs::from_probabilities(4, |before, last| match (before + last) % 3 {
            0 => [0.4, 0.2, 0.2, 0.2],
            1 => [0.2, 0.4, 0.2, 0.2],
            _ => [0.1, 0.1, 0.4, 0.4],
        });
        let prompts: Vec<Vec<u32>> = (0..8).map(|row| vec![row % 4, row / 4]).collect();
        let options = GenerationOptions::new(12).with_temperature(1.0).with_seed(2).with_stop_tokens([3]);
        let mut stream = TokenStream::new(&model, prompts.clone(), &options).unwrap();
        let tokens: Vec<Vec<Option<u32>>> = stream.by_ref().map(Result::unwrap).collect();
        let open = |step: usize| (0..8).filter(|&row| tokens[step][row].is_some()).count();
        let read: Vec<usize> = std::iter::once(8).chain((0..tokens.len() - 1).map(open)).collect();
        assert_eq!(model.rows_read()[..read.len()], read, "the model reads the rows that are open");
        assert!(read.windows(2).any(|two| two[1] < two[0] && two[1] > 0), "{read:?}");
        // Row by row: the same draws without the others.
        let sampler = Sampler::new(&options).unwrap();
        for (number, prompt) in prompts.into_iter().enumerate() {
            let mut row = vec![sampler.row(prompt.clone(), number)];
            let (mut logits, mut state) = model.prefill(vec![prompt]).unwrap();
            for (step, expected) in tokens.iter().map(|tokens| tokens[number]).enumerate() {
                let sampled = sampler.choose(logits, &mut row, step).unwrap();
                let Some(expected) = expected else {
                    assert_eq!(sampled.ids, [3]);
                    break;
                };
                assert_eq!(sampled.ids, [expected]);
                row[0].accept(expected);
                logits = model.step(sampled.tokens, &mut state);
            }
        }
    }

    #[test]
    fn a_row_that_the_caller_ends_writes_nothing_more() {
        let model = Successor::new(8);
        let mut stream = stream(&model, &[&[1], &[4]], GenerationOptions::new(3).greedy());
        stream.end_row(0, StopReason::Caller);
        assert_eq!(stream.next().unwrap().unwrap(), [None, Some(5)]);
        stream.end_row(1, StopReason::StopString(3));
        assert!(stream.next().is_none());
        assert_eq!(stream.stops(), [Some(StopReason::Caller), Some(StopReason::StopString(3))]);
    }

    #[test]
    fn an_error_names_its_row_whichever_have_ended() {
        let model = Successor::new(8).broken_after(2);
        let mut stream = stream(&model, &[&[1], &[4]], GenerationOptions::new(9).greedy().with_stop_tokens([2]));
        assert_eq!(stream.next().unwrap().unwrap(), [None, Some(5)]);
        assert_eq!(stream.next().unwrap().unwrap(), [None, Some(6)]);
        assert!(matches!(stream.next(), Some(Err(GenerationError::NonFiniteLogits { step: 2, row: 1 }))));
    }

    #[test]
    fn the_last_token_is_not_stepped() {
        let model = Successor::new(8);
        let mut stream = stream(&model, &[&[0]], GenerationOptions::new(3).greedy());
        assert_eq!(stream.by_ref().count(), 3);
        assert_eq!(model.steps(), 2);
        assert_eq!(stream.stops(), [Some(StopReason::MaxNewTokens)]);
    }

    #[test]
    fn no_tokens_are_wanted_and_none_come() {
        let model = Successor::new(8);
        assert_eq!(stream(&model, &[&[0]], GenerationOptions::new(0)).count(), 0);
    }

    #[test]
    fn a_refused_prompt_and_bad_options_are_errors_before_the_first_token() {
        let model = Successor::new(8);
        let empty = TokenStream::new(&model, vec![vec![]], &GenerationOptions::new(3)).err().unwrap();
        assert!(empty.to_string().starts_with("the prompt is empty"));
        let frozen = GenerationOptions::new(3).with_temperature(0.0);
        let frozen = TokenStream::new(&model, vec![vec![1]], &frozen).err().unwrap();
        assert!(matches!(frozen, GenerationError::InvalidOptions { .. }));
    }

    #[test]
    fn the_stream_ends_after_an_error() {
        let model = Successor::new(8).broken_after(2);
        let mut stream = stream(&model, &[&[0]], GenerationOptions::new(9).greedy());
        let results: Vec<bool> = stream.by_ref().map(|tokens| tokens.is_ok()).collect();
        assert_eq!(results, [true, true, false]);
    }
}
