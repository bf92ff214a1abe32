//! The decoding loop: prefill, then sample and step until every row has ended. [`generate`](crate::generate()) and
//! [`generate_text`](crate::generate_text) run it; callers that want to interleave their own work iterate it themselves.

mod guesses;
mod rows;

use std::ops::Range;

use burn::tensor::{Int, Tensor};

use self::guesses::Ahead;
use self::rows::Joining;
use crate::autoregressive::prefill;
use crate::sampler::choose;
use crate::sequence::Sequence;
use crate::{
    Autoregressive, DecodeState, Drafter, GenerationError, GenerationOptions, Prefix, Sampled, Sampler, StopReason,
    TokenScore,
};

/// An iterator over the new tokens of all rows: each item has one entry per row, `None` where the row has ended.
///
/// The iterator ends when all rows have, or after its first error.
pub struct TokenStream<'m, M: Autoregressive> {
    model: &'m M,
    state: M::State,
    /// `None` after an error.
    next: Option<Next>,
    joining: Vec<Joining<M::State>>,
    drafter: Option<Box<dyn Drafter + 'm>>,
    /// The sequences that the model holds. One that has ended leaves before the next token is read.
    sequences: Vec<Sequence>,
    /// The number of each of them among all rows.
    live: Vec<usize>,
    /// Of all rows.
    stops: Vec<Option<StopReason>>,
    /// Of all rows, for the last step.
    scores: Vec<Option<TokenScore>>,
    /// Of all rows: those of the stop tokens that ended them.
    end_scores: Vec<Option<TokenScore>>,
    vocab_size: usize,
}

/// Where the next logits come from. A token is stepped only when its successor is wanted, so the last one never is.
enum Next {
    Read(Ahead),
    Step(Tensor<1, Int>),
}

impl<'m, M: Autoregressive> TokenStream<'m, M> {
    /// Reads the prompt; the first token comes with the first [`next`](Iterator::next).
    ///
    /// A row gets the tokens that it would get alone, with the exceptions of [`join`](Self::join). Equal rows therefore get equal tokens:
    /// [`of_samples`](Self::of_samples) continues one prompt in several ways, and [`of_rows`](Self::of_rows) gives each row a seed.
    ///
    /// # Errors
    /// Options out of range, or a prompt that the model refuses.
    pub fn new(model: &'m M, prompt: M::Prompt, options: &GenerationOptions) -> Result<Self, GenerationError> {
        Self::of_samples(model, prompt, options, 0..1)
    }

    /// Continues the prompt several times and reads it once. The rows of the first sample come first, then those of the next.
    ///
    /// `samples` are sample numbers. What is drawn for a sample depends on the seed and on its number alone, not on the row. So any range of
    /// samples can be decoded by itself, and the samples of a row are those that it gets without the others.
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
        let history = |row: usize| histories.get(row).cloned().unwrap_or_default();
        let of_sample = |sample| (0..rows).map(move |row| (sample, row));
        let sequences = samples.flat_map(of_sample).map(|(sample, row)| Sequence::new(&sampler, history(row), sample));
        let sequences = sequences.collect();
        Ok(Self::begin(model, logits, state, sequences))
    }

    /// Decodes each row of the prompt with options of its own. A row gets the tokens that it would get alone, with the exceptions
    /// of [`join`](Self::join). An error in one row ends the stream.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// If the number of options is not the number of rows.
    pub fn of_rows(model: &'m M, prompt: M::Prompt, options: &[GenerationOptions]) -> Result<Self, GenerationError> {
        let samplers = options.iter().map(Sampler::new).collect::<Result<Vec<_>, _>>()?;
        let mut histories = model.history(&prompt);
        let (logits, state) = prefill(model, prompt)?;
        assert_eq!(logits.dims()[0], samplers.len(), "options for each row of the prompt");
        histories.resize(samplers.len(), Vec::new());
        let sequences =
            samplers.iter().zip(histories).map(|(sampler, prompt)| Sequence::new(sampler, prompt, 0)).collect();
        Ok(Self::begin(model, logits, state, sequences))
    }

    /// Continues a text of one row, of which the model may have read the beginning. Takes what it has read out of `prefix`;
    /// [`into_prefix`](Self::into_prefix) returns it, with the new tokens, for the next call.
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
        Ok(Self::begin(model, logits, state, vec![Sequence::new(&sampler, history, 0)]))
    }

    fn begin(model: &'m M, logits: Tensor<2>, state: M::State, sequences: Vec<Sequence>) -> Self {
        let (count, vocab_size) = (sequences.len(), logits.dims()[1]);
        let next = Some(Next::Read(Ahead::one(logits)));
        let (stops, scores, end_scores) = (vec![None; count], vec![None; count], vec![None; count]);
        let (joining, live) = (Vec::new(), (0..count).collect());
        Self { model, state, next, joining, drafter: None, sequences, live, stops, scores, end_scores, vocab_size }
    }

    /// The prefix that the model has read of a stream of one row, to be reused by the next text that begins alike. Empty for a stream of
    /// several rows.
    pub fn into_prefix(mut self) -> Prefix<M::State> {
        match (self.sequences.pop(), self.stops.len()) {
            (Some(sequence), 1) => Prefix::new(sequence.into_ids(), self.state),
            _ => Prefix::default(),
        }
    }

    /// Number of rows, `B`, those of all samples.
    pub fn batch_size(&self) -> usize {
        self.stops.len()
    }

    /// The scores of the tokens of the last step, one entry per row, where [`GenerationOptions::logprobs`] asks for them.
    pub fn scores(&self) -> &[Option<TokenScore>] {
        &self.scores
    }

    /// The scores of the stop tokens that ended rows, which are no tokens of the text: one entry per row, where
    /// [`GenerationOptions::logprobs`] asks for them.
    pub fn end_scores(&self) -> &[Option<TokenScore>] {
        &self.end_scores
    }

    /// Why each row ended, `None` for the rows that have not.
    pub fn stops(&self) -> &[Option<StopReason>] {
        &self.stops
    }

    /// Ends a row for the caller's reason: it gets no more tokens. A row that has ended keeps its reason.
    pub fn end_row(&mut self, row: usize, reason: StopReason) {
        self.stops[row].get_or_insert(reason);
    }

    /// The next token of every row that has not ended, even if none is left.
    fn advance(&mut self, next: Next) -> Result<Vec<Option<u32>>, GenerationError> {
        let mut ahead = match next {
            _ if self.live.iter().all(|&row| self.stops[row].is_some()) => self.without_rows(),
            Next::Read(ahead) => ahead,
            Next::Step(tokens) => self.read(tokens)?,
        };
        let logits = self.logits(&mut ahead);
        let sampled = choose(logits, &mut self.sequences);
        let mut sampled = sampled.map_err(|error| error.of_row(|place| self.live[place]))?;
        let tokens = self.admit_all(&mut sampled);
        self.next = Some(self.behind(ahead, sampled));
        Ok(tokens)
    }

    /// The next logits of all rows, `[R, V]`. Waiting rows join unless guesses are still open, which are of one row.
    fn logits(&mut self, ahead: &mut Ahead) -> Tensor<2> {
        match ahead.take() {
            Some(logits) if self.joining.is_empty() || !ahead.guesses.is_empty() => logits,
            next => {
                let mut logits: Vec<Tensor<2>> = next.into_iter().collect();
                logits.extend(self.let_join());
                if logits.len() == 1 { logits.swap_remove(0) } else { Tensor::cat(logits, 0) }
            }
        }
    }

    /// Records the chosen tokens, and their scores where the row goes on. One entry for each of all rows.
    fn admit_all(&mut self, sampled: &mut Sampled) -> Vec<Option<u32>> {
        self.scores.fill(None);
        let mut tokens = vec![None; self.stops.len()];
        for (place, &id) in sampled.ids.iter().enumerate() {
            let row = self.live[place];
            tokens[row] = self.admit(place, id);
            let score = sampled.scores[place].take();
            match self.stops[row] {
                None => self.scores[row] = score,
                Some(StopReason::StopToken(end)) if end == id => self.end_scores[row] = score,
                Some(_) => {}
            }
        }
        tokens
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
            let next = self.next.take()?;
            match self.advance(next) {
                // All rows of this step ended, but others wait to join.
                Ok(tokens) if tokens.iter().all(Option::is_none) => {}
                tokens => return Some(tokens),
            }
        }
    }
}

#[cfg(test)]
mod tests;
