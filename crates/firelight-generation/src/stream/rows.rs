//! Which rows the model holds: rows that join a running stream, and rows that leave it when they end.

use std::ops::Range;

use burn::tensor::{Int, Tensor};

use super::guesses::Ahead;
use super::{Next, TokenStream};
use crate::sequence::Sequence;
use crate::{Autoregressive, DecodeState, JoinState, row_indices};

/// Rows that wait until the rows of the stream have their next logits, too.
pub(super) struct Joining<S> {
    /// The number of the first of them in the stream.
    first: usize,
    state: S,
    /// The logits after their prompts, `[R, V]`.
    logits: Tensor<2>,
    sequences: Vec<Sequence>,
    /// [`JoinState::join`], kept as a function: only [`TokenStream::join`] asks for the trait.
    join: fn(&mut S, S),
}

impl<M: Autoregressive> TokenStream<'_, M> {
    /// Appends the rows of another stream that has not started, and returns their row numbers (continuous batching).
    ///
    /// Each row gets the tokens that it would get in its own stream. Two cases are exceptions, because they affect all rows at
    /// once: a text outgrows the context, so that the window moves; or the model has rotary frequencies that depend on the
    /// length.
    ///
    /// # Panics
    /// If the other stream has already returned tokens, or if other rows wait to join it. The states join before the next tokens, which
    /// panics where [`JoinState::join`] does, such as for texts of other lengths whose past is compressed.
    pub fn join(&mut self, other: Self) -> Range<usize>
    where
        M::State: JoinState,
    {
        let Some(Next::Read(mut ahead)) = other.next else { panic!("a stream that has begun joins no other") };
        assert!(other.joining.is_empty(), "a stream that others join joins no other");
        let logits = ahead.take().unwrap_or_else(|| unreachable!("logits of the prompt"));
        let new = self.stops.len()..self.stops.len() + other.stops.len();
        self.stops.extend(other.stops);
        self.scores.extend(other.scores);
        self.end_scores.extend(other.end_scores);
        let (state, sequences, join) = (other.state, other.sequences, M::State::join);
        self.joining.push(Joining { first: new.start, state, logits, sequences, join });
        new
    }

    /// The tokens that complete the text of a row that has to end here, such as those behind a half object of JSON under a
    /// [`Constraint`](crate::Constraint). None if it may end here, was not begun or has left. The stream does not add them:
    /// [`generate`](crate::generate()) and [`decode_texts`](crate::decode_texts) do where the caller or an error stops a row.
    pub fn closing(&mut self, row: usize) -> Vec<u32> {
        let place = self.live.iter().position(|&number| number == row);
        place.map_or_else(Vec::new, |place| self.sequences[place].closing())
    }

    /// The stop strings of a row that the model holds or that waits to join; none for a row that has left.
    pub(crate) fn stop_strings(&self, row: usize) -> &[String] {
        let live = self.live.iter().copied().zip(&self.sequences);
        let mut all = live.chain(self.joining.iter().flat_map(|joining| (joining.first..).zip(&joining.sequences)));
        all.find(|(number, _)| *number == row).map_or(&[], |(_, sequence)| sequence.criteria().stop_strings())
    }

    /// Drops all rows: they have ended, and only rows that wait to join are left.
    pub(super) fn without_rows(&mut self) -> Ahead {
        self.sequences.clear();
        self.live.clear();
        Ahead::default()
    }

    /// Adds the rows that wait to join. Returns their logits, one tensor `[R, V]` for each stream that joined.
    pub(super) fn let_join(&mut self) -> Vec<Tensor<2>> {
        let mut all = Vec::new();
        for Joining { first, state, logits, sequences, join } in std::mem::take(&mut self.joining) {
            match self.sequences.is_empty() {
                true => self.state = state,
                false => join(&mut self.state, state),
            }
            self.live.extend(first..first + sequences.len());
            self.sequences.extend(sequences);
            all.push(logits);
        }
        all
    }

    /// Records the token that was chosen for the row at `place`. Returns it unless the row ends with it.
    pub(super) fn admit(&mut self, place: usize, id: u32) -> Option<u32> {
        let (stop, sequence) = (&mut self.stops[self.live[place]], &mut self.sequences[place]);
        *stop = stop.or(sequence.end());
        if stop.is_none() {
            *stop = sequence.accept(id);
        }
        stop.is_none().then_some(id)
    }

    /// Ends the rows that are complete or have all their tokens.
    pub(super) fn end_full(&mut self) {
        for (sequence, &number) in self.sequences.iter().zip(&self.live) {
            self.stops[number] = self.stops[number].or(sequence.end());
        }
    }

    /// Removes the rows that have ended from the model's state. Returns the tokens `[R]` of the others. When no row has ended,
    /// the state is not copied.
    pub(super) fn without_ended(&mut self, tokens: Tensor<1, Int>) -> Tensor<1, Int> {
        let goes_on = |place: &usize| self.stops[self.live[*place]].is_none();
        if (0..self.live.len()).all(|place| goes_on(&place)) {
            return tokens;
        }
        let kept: Vec<usize> = (0..self.live.len()).filter(goes_on).collect();
        self.state.select_rows(&kept);
        let mut sequences = std::mem::take(&mut self.sequences).into_iter().map(Some).collect::<Vec<_>>();
        self.sequences = kept.iter().filter_map(|&place| sequences[place].take()).collect();
        self.live = kept.iter().map(|&place| self.live[place]).collect();
        let kept = row_indices(&kept, &tokens.device());
        tokens.select(0, kept)
    }
}

#[cfg(test)]
mod tests;
