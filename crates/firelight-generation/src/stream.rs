//! The decoding loop: prefill, then sample and step until every row has ended. [`generate`](crate::generate()) and
//! [`generate_text`](crate::generate_text) run it; callers that want to interleave their own work iterate it themselves.

use std::collections::VecDeque;
use std::ops::Range;

use burn::tensor::{Int, Tensor};

use crate::autoregressive::{extend, prefill, step};
use crate::row::Row;
use crate::sampler::choose;
use crate::{
    Autoregressive, DecodeState, Drafter, GenerationError, GenerationOptions, JoinState, Prefix, Sampled, Sampler,
    StopReason, TokenScore, row_indices,
};

/// An iterator over the new tokens of all rows: each item has one entry per row, `None` where the row has ended.
///
/// The iterator ends when all rows have, or after its first error.
pub struct TokenStream<'m, M: Autoregressive> {
    model: &'m M,
    state: M::State,
    next: Option<Next>,
    joining: Vec<Joining<M::State>>,
    drafter: Option<Box<dyn Drafter + 'm>>,
    /// Those that have not ended: the model holds no others.
    rows: Vec<Row>,
    /// Which of all rows each of them is.
    live: Vec<usize>,
    stops: Vec<Option<StopReason>>,
    scores: Vec<Option<TokenScore>>,
    vocab_size: usize,
}

/// Where the next logits come from. A token is only stepped when its successor is wanted, so the last one never is.
enum Next {
    Read(Ahead),
    Step(Tensor<1, Int>),
}

/// Rows that join when the others have their next logits, too.
struct Joining<S> {
    first: usize,
    state: S,
    logits: Tensor<2>,
    rows: Vec<Row>,
    join: fn(&mut S, S),
}

/// Logits that were computed, `[R, V]` each, and the ids that were guessed between them.
#[derive(Default)]
struct Ahead {
    logits: VecDeque<Tensor<2>>,
    guesses: VecDeque<u32>,
}

impl Ahead {
    fn one(logits: Tensor<2>) -> Self {
        Self { logits: VecDeque::from([logits]), guesses: VecDeque::new() }
    }

    /// Of one row, the logits `[1, T, V]` behind its last token and the guesses.
    fn guessed(logits: &Tensor<3>, guesses: Vec<u32>) -> Self {
        let at = |place| logits.clone().narrow(1, place, 1).squeeze_dim(1);
        Self { logits: (0..=guesses.len()).map(at).collect(), guesses: guesses.into() }
    }
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
        let histories = model.history(&prompt);
        let (mut logits, mut state) = prefill(model, prompt)?;
        let [rows, _] = logits.dims();
        if samples.len() != 1 {
            state.select_rows(&samples.clone().flat_map(|_| 0..rows).collect::<Vec<_>>());
            logits = logits.repeat(&[samples.len(), 1]);
        }
        let history = |number: usize| histories.get(number % rows).cloned().unwrap_or_default();
        let numbers = rows * samples.start..rows * samples.end;
        let rows = numbers.map(|number| Row::new(&sampler, history(number), number)).collect();
        Ok(Self::begin(model, logits, state, rows))
    }

    /// Rows with options of their own, one for each row of the prompt. Each is written as it would be alone, as with [`join`](Self::join); an
    /// error of one ends all.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// If there are not as many options as rows.
    pub fn of_rows(model: &'m M, prompt: M::Prompt, options: &[GenerationOptions]) -> Result<Self, GenerationError> {
        let samplers = options.iter().map(Sampler::new).collect::<Result<Vec<_>, _>>()?;
        let mut histories = model.history(&prompt);
        let (logits, state) = prefill(model, prompt)?;
        assert_eq!(logits.dims()[0], samplers.len(), "options for each row of the prompt");
        histories.resize(samplers.len(), Vec::new());
        let rows = samplers.iter().zip(histories).map(|(sampler, prompt)| Row::new(sampler, prompt, 0)).collect();
        Ok(Self::begin(model, logits, state, rows))
    }

    /// Continues a text of one row of which the model may have read a part. The prefix is empty afterwards;
    /// [`into_prefix`](Self::into_prefix) gives back a longer one.
    ///
    /// ```no_run
    /// # use firelight_generation::*;
    /// # fn example<M: Autoregressive<Prompt = Vec<Vec<u32>>>>(model: &M, options: &GenerationOptions) -> Result<(), GenerationError> {
    /// let mut prefix = Prefix::default();
    /// for question in [vec![5, 6, 7], vec![5, 6, 8]] {
    ///     let mut tokens = TokenStream::after(model, &mut prefix, question, options)?; // the second time it reads 8 alone
    ///     for token in tokens.by_ref() {
    ///         println!("{:?}", token?);
    ///     }
    ///     prefix = tokens.into_prefix();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn after(
        model: &'m M,
        prefix: &mut Prefix<M::State>,
        ids: Vec<u32>,
        options: &GenerationOptions,
    ) -> Result<Self, GenerationError>
    where
        M: Autoregressive<Prompt = Vec<Vec<u32>>>,
    {
        let sampler = Sampler::new(options)?;
        let (logits, state) = prefix.read(model, &ids)?;
        let history = model.history(&vec![ids]).pop().unwrap_or_default();
        Ok(Self::begin(model, logits, state, vec![Row::new(&sampler, history, 0)]))
    }

    fn begin(model: &'m M, logits: Tensor<2>, state: M::State, rows: Vec<Row>) -> Self {
        let (count, vocab_size) = (rows.len(), logits.dims()[1]);
        let next = Some(Next::Read(Ahead::one(logits)));
        let (stops, scores) = (vec![None; count], vec![None; count]);
        let (joining, live) = (Vec::new(), (0..count).collect());
        Self { model, state, next, joining, drafter: None, rows, live, stops, scores, vocab_size }
    }

    /// Adds the rows of another stream that has not begun, behind its own. Each row is written as it would be in its own stream, as long as
    /// no text outgrows the context, where windows move for all rows at once, or rotary frequencies that depend on the length change. Returns
    /// the numbers of the new rows.
    ///
    /// # Panics
    /// If the other stream has given tokens already.
    pub fn join(&mut self, other: Self) -> Range<usize>
    where
        M::State: JoinState,
    {
        let Some(Next::Read(mut ahead)) = other.next else { panic!("a stream that has begun joins no other") };
        assert!(other.joining.is_empty(), "a stream that others join joins no other");
        let logits = ahead.logits.pop_front().unwrap_or_else(|| unreachable!("logits of the prompt"));
        let new = self.stops.len()..self.stops.len() + other.stops.len();
        self.stops.extend(other.stops);
        self.scores.extend(other.scores);
        self.joining.push(Joining {
            first: new.start,
            state: other.state,
            logits,
            rows: other.rows,
            join: M::State::join,
        });
        new
    }

    /// Reads the guesses of a drafter together with each token. They change no text, up to the rounding of logits that are computed
    /// together; they are made while one row is left, and as far as the model has [`room`](Autoregressive::room).
    pub fn with_drafter(mut self, drafter: impl Drafter + 'm) -> Self {
        self.drafter = Some(Box::new(drafter));
        self
    }

    /// What the model has read of a text of one row, for the next one that begins alike; nothing where there are several.
    pub fn into_prefix(mut self) -> Prefix<M::State> {
        match (self.rows.pop(), self.stops.len()) {
            (Some(row), 1) => Prefix::new(row.into_ids(), self.state),
            _ => Prefix::default(),
        }
    }

    /// Number of rows, `B`, those of all samples.
    pub fn batch_size(&self) -> usize {
        self.stops.len()
    }

    /// What the model gave the tokens of the last step, one entry per row, where [`GenerationOptions::logprobs`] asks for it.
    pub fn scores(&self) -> &[Option<TokenScore>] {
        &self.scores
    }

    /// Texts that end a row that has not ended, where one looks for them.
    pub(crate) fn stop_strings(&self, row: usize) -> &[String] {
        let live = self.live.iter().copied().zip(&self.rows);
        let mut all = live.chain(self.joining.iter().flat_map(|joining| (joining.first..).zip(&joining.rows)));
        all.find(|(number, _)| *number == row).map_or(&[], |(_, row)| row.criteria().stop_strings())
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
        let mut ahead = match next {
            _ if self.live.iter().all(|&row| self.stops[row].is_some()) => self.without_rows(),
            Next::Read(ahead) => ahead,
            Next::Step(tokens) => self.read(tokens)?,
        };
        let mut logits: Vec<Tensor<2>> = ahead.logits.pop_front().into_iter().collect();
        if ahead.guesses.is_empty() {
            logits.extend(self.let_join());
        }
        let logits = if logits.len() == 1 { logits.swap_remove(0) } else { Tensor::cat(logits, 0) };
        let sampled = choose(logits, &mut self.rows);
        let mut sampled = sampled.map_err(|error| error.of_row(|place| self.live[place]))?;
        self.scores.fill(None);
        let mut tokens = vec![None; self.stops.len()];
        for (place, &id) in sampled.ids.iter().enumerate() {
            let row = self.live[place];
            tokens[row] = self.admit(place, id);
            self.scores[row] = sampled.scores[place].take().filter(|_| tokens[row].is_some());
        }
        self.next = Some(self.behind(ahead, sampled));
        Ok(tokens)
    }

    /// All rows have ended; others join.
    fn without_rows(&mut self) -> Ahead {
        self.rows.clear();
        self.live.clear();
        Ahead::default()
    }

    /// Adds the rows that wait; returns their logits.
    fn let_join(&mut self) -> Vec<Tensor<2>> {
        let mut all = Vec::new();
        for Joining { first, state, logits, rows, join } in std::mem::take(&mut self.joining) {
            match self.rows.is_empty() {
                true => self.state = state,
                false => join(&mut self.state, state),
            }
            self.live.extend(first..first + rows.len());
            self.rows.extend(rows);
            all.push(logits);
        }
        all
    }

    /// Reads the last tokens, and what is guessed behind them.
    fn read(&mut self, tokens: Tensor<1, Int>) -> Result<Ahead, GenerationError> {
        let tokens = self.without_ended(tokens);
        let guesses = self.guesses()?;
        if guesses.is_empty() {
            return Ok(Ahead::one(step(self.model, tokens, &mut self.state)));
        }
        let guessed = row_indices(&guesses.iter().map(|&id| id as usize).collect::<Vec<_>>(), &tokens.device());
        let tokens = Tensor::cat(vec![tokens, guessed], 0).unsqueeze_dim(0); // [1, T]
        Ok(Ahead::guessed(&extend(self.model, tokens, &mut self.state), guesses))
    }

    /// What may come behind the last token of the only row. Behind the last guess one more token is chosen.
    fn guesses(&mut self) -> Result<Vec<u32>, GenerationError> {
        let (Some(drafter), [row], []) = (&mut self.drafter, &self.rows[..], &self.joining[..]) else {
            return Ok(Vec::new());
        };
        let room = self.model.room(&self.state).min(row.room()).saturating_sub(1);
        let mut guesses = drafter.guess(&row.history(), room)?;
        let known = guesses.iter().take(room).take_while(|&&id| (id as usize) < self.vocab_size).count();
        guesses.truncate(known);
        Ok(guesses)
    }

    /// What comes after a choice: the logits behind it where it was guessed, else a step, without what was guessed instead.
    fn behind(&mut self, mut ahead: Ahead, sampled: Sampled) -> Next {
        let Some(guess) = ahead.guesses.pop_front() else { return Next::Step(sampled.tokens) };
        if sampled.ids == [guess] {
            return Next::Read(ahead);
        }
        self.state.truncate(self.state.len() - ahead.guesses.len() - 1);
        Next::Step(sampled.tokens)
    }

    /// The id if its row goes on with it.
    fn admit(&mut self, place: usize, id: u32) -> Option<u32> {
        let (stop, row) = (&mut self.stops[self.live[place]], &mut self.rows[place]);
        *stop = stop.or(row.end());
        if stop.is_none() {
            *stop = row.accept(id);
        }
        stop.is_none().then_some(id)
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

    /// Ends the rows that are complete, or as long as they may be.
    fn end_full(&mut self) {
        for (row, &number) in self.rows.iter().zip(&self.live) {
            self.stops[number] = self.stops[number].or(row.end());
        }
    }
}

impl<M: Autoregressive> Iterator for TokenStream<'_, M> {
    type Item = Result<Vec<Option<u32>>, GenerationError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.end_full();
            if self.stops.iter().all(Option::is_some) {
                return None;
            }
            // After an error nothing is left to continue from.
            let next = self.next.take()?;
            match self.advance(next) {
                // Rows ended, and others wait.
                Ok(tokens) if tokens.iter().all(Option::is_none) => {}
                tokens => return Some(tokens),
            }
        }
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
            let mut row = vec![Row::new(&sampler, prompt.clone(), number)];
            let (mut logits, mut state) = model.prefill(vec![prompt]).unwrap();
            for expected in tokens.iter().map(|tokens| tokens[number]) {
                let sampled = choose(logits, &mut row).unwrap();
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

    /// Distributions that differ from place to place.
    fn pairs() -> Pairs {
        Pairs::from_probabilities(4, |before, last| match (before + 2 * last) % 3 {
            0 => [0.4, 0.2, 0.3, 0.1],
            1 => [0.2, 0.5, 0.2, 0.1],
            _ => [0.2, 0.1, 0.4, 0.3],
        })
    }

    type Written = (Vec<u32>, Option<StopReason>);

    fn written(mut stream: TokenStream<'_, Pairs>) -> Vec<Written> {
        let mut rows = vec![Vec::new(); stream.batch_size()];
        for step in stream.by_ref() {
            rows.iter_mut().zip(step.unwrap()).for_each(|(row, id)| row.extend(id));
        }
        rows.into_iter().zip(stream.stops().to_vec()).collect()
    }

    /// Prompts of several lengths with options of several kinds.
    fn requests() -> Vec<(Vec<u32>, GenerationOptions)> {
        let penalty = crate::Processing { repetition_penalty: 1.3, ..crate::Processing::default() };
        vec![
            (vec![0, 1], GenerationOptions::new(9).with_temperature(1.0).with_seed(4)),
            (vec![3, 1, 2], GenerationOptions::new(3).greedy()),
            (vec![1, 1, 0, 2, 2], GenerationOptions::new(20).with_temperature(0.7).with_stop_tokens([3])),
            (vec![2, 0], GenerationOptions::new(12).with_temperature(1.5).with_seed(8).with_processing(penalty)),
            (vec![2, 2], GenerationOptions::new(0)),
        ]
    }

    fn alone((prompt, options): &(Vec<u32>, GenerationOptions)) -> Written {
        written(TokenStream::new(&pairs(), vec![prompt.clone()], options).unwrap()).remove(0)
    }

    #[test]
    fn rows_with_options_of_their_own_are_written_as_they_are_alone() {
        let (prompts, options): (Vec<_>, Vec<_>) = requests().into_iter().unzip();
        let model = pairs();
        let together = written(TokenStream::of_rows(&model, prompts, &options).unwrap());
        assert_eq!(together, requests().iter().map(alone).collect::<Vec<_>>());
        assert!(together.iter().any(|(_, stop)| *stop == Some(StopReason::StopToken(3))), "{together:?}");
    }

    #[test]
    fn rows_that_join_are_written_as_they_are_alone() {
        let expected: Vec<Written> = requests().iter().map(alone).collect();
        // Row after row joins when so many steps were made; at 30 all others have ended.
        for pause in [0, 1, 2, 30] {
            let model = pairs();
            let mut waiting = requests().into_iter();
            let mut open =
                || waiting.next().map(|(prompt, options)| TokenStream::new(&model, vec![prompt], &options).unwrap());
            let mut stream = open().unwrap();
            let mut rows: Vec<Vec<u32>> = vec![Vec::new()];
            loop {
                for _ in 0..pause {
                    if let Some(step) = stream.next() {
                        rows.iter_mut().zip(step.unwrap()).for_each(|(row, id)| row.extend(id));
                    }
                }
                let Some(other) = open() else { break };
                assert_eq!(stream.join(other), rows.len()..rows.len() + 1);
                rows.push(Vec::new());
            }
            for step in stream.by_ref() {
                rows.iter_mut().zip(step.unwrap()).for_each(|(row, id)| row.extend(id));
            }
            let found: Vec<Written> = rows.into_iter().zip(stream.stops().to_vec()).collect();
            assert_eq!(found, expected, "a pause of {pause}");
        }
    }

    #[test]
    fn rows_join_while_guesses_wait_and_when_all_have_ended() {
        /// Guesses what the text will be.
        struct Knows(Vec<u32>);
        impl Drafter for Knows {
            fn guess(&mut self, history: &crate::History<'_>, most: usize) -> Result<Vec<u32>, GenerationError> {
                Ok(self.0.iter().skip(history.new_ids().len()).copied().take(most.min(4)).collect())
            }
        }
        let all = requests();
        let expected: Vec<Written> = all.iter().map(alone).collect();
        for (first, second) in [(2, 0), (0, 2), (3, 4), (2, 3)] {
            for steps in 0..22 {
                let (model, open) = (pairs(), |row: usize| (vec![all[row].0.clone()], all[row].1.clone()));
                let stream = |(prompt, options)| TokenStream::new(&model, prompt, &options).unwrap();
                let mut joined = stream(open(first)).with_drafter(Knows(expected[first].0.clone()));
                let mut rows = vec![Vec::new(), Vec::new()];
                let mut take = |step: Vec<Option<u32>>| rows.iter_mut().zip(step).for_each(|(row, id)| row.extend(id));
                (0..steps).map_while(|_| joined.next()).for_each(|step| take(step.unwrap()));
                joined.join(stream(open(second)));
                joined.by_ref().for_each(|step| take(step.unwrap()));
                let found: Vec<Written> = rows.into_iter().zip(joined.stops().to_vec()).collect();
                assert_eq!(found, [expected[first].clone(), expected[second].clone()], "after {steps} steps");
            }
        }
    }

    #[test]
    fn of_several_rows_no_prefix_is_left() {
        let (model, options) = (pairs(), GenerationOptions::new(3).greedy());
        let mut stream = TokenStream::new(&model, vec![vec![0, 1, 2], vec![1, 2]], &options).unwrap();
        stream.end_row(0, StopReason::Caller);
        stream.by_ref().for_each(|step| drop(step.unwrap()));
        assert!(stream.into_prefix().ids().is_empty());
    }

    #[test]
    #[should_panic(expected = "a stream that has begun joins no other")]
    fn a_stream_that_has_begun_joins_no_other() {
        let (model, options) = (pairs(), GenerationOptions::new(9));
        let open = || TokenStream::new(&model, vec![vec![0, 1]], &options).unwrap();
        let mut begun = open();
        begun.next();
        open().join(begun);
    }

    #[test]
    fn a_text_that_begins_alike_is_read_from_where_it_differs() {
        let (model, options) = (pairs(), GenerationOptions::new(6).with_temperature(1.0).with_seed(2));
        let mut prefix = Prefix::default();
        let mut after = |prompt: &[u32]| {
            let before = model.rows_read().len();
            let mut stream = TokenStream::after(&model, &mut prefix, prompt.to_vec(), &options).unwrap();
            let ids: Vec<u32> = stream.by_ref().filter_map(|step| step.unwrap()[0]).collect();
            prefix = stream.into_prefix();
            assert_eq!(prefix.ids(), [prompt, &ids[..5]].concat(), "the last token is not read");
            assert_eq!(model.rows_read().len() - before, 6);
            ids
        };
        for prompt in [&[0, 1, 2, 2, 1][..], &[0, 1, 2, 2, 1], &[0, 1, 2, 0], &[0, 3], &[1, 2, 0], &[1, 2, 0, 1, 1, 1]]
        {
            let expected = alone(&(prompt.to_vec(), options.clone())).0;
            assert_eq!(after(prompt), expected, "{prompt:?}");
        }
    }
}
