//! How often ranks exchange what they found: after so many batches that neither the message nor what waits for it is large.

use super::{Found, Ranks};
use crate::CommunicatorError;

/// How much all ranks together hand over at a time, in bytes: much beside what it costs to begin an exchange, and little beside the 2 GiB
/// of a message of MPI. Batches that turn out to be larger are handed over in pieces of so many bytes.
pub(crate) const EXCHANGED: usize = 64 << 20;

/// The exchanges of an evaluation. All ranks make the same ones, because all of them see what was exchanged before.
pub(crate) struct Exchanges<'a> {
    ranks: &'a Ranks,
    bound: usize,
    batches: usize,
    /// The largest batch so far, in bytes.
    largest: usize,
}

impl<'a> Exchanges<'a> {
    /// Exchanges of about `bound` bytes. One process has a single one, in which nothing is sent.
    pub(crate) fn new(ranks: &'a Ranks, bound: usize) -> Self {
        Self { ranks, bound, batches: if ranks.are_one() { usize::MAX } else { 1 }, largest: 1 }
    }

    /// How many batches a rank computes before the next exchange; fewer, if there are no more.
    pub(crate) fn batches(&self) -> usize {
        self.batches
    }

    /// What all ranks found since the last exchange, in the order of the batches, and whether these were the last ones.
    ///
    /// A rank has at most one batch more than another. So if one of them has fewer than it was asked for, none has any left.
    pub(crate) fn exchange(&mut self, own: Vec<Found>) -> Result<(Vec<Found>, bool), CommunicatorError> {
        let found = self.ranks.in_turns(own, self.bound)?;
        let world = self.ranks.world();
        let is_last = found.len() < self.batches.saturating_mul(world);
        self.largest = found.iter().map(Found::size).fold(self.largest, usize::max);
        // The first batches may be small ones: twice as many at most tell more of them.
        let fitting = self.bound / self.largest.saturating_mul(world);
        self.batches = fitting.clamp(1, self.batches.saturating_mul(2));
        Ok((found, is_last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Threads, ThreadsOptions};
    use std::sync::Arc;
    use std::thread;

    /// A batch of 8 x (3 + 1 + `numbers`) bytes.
    fn batch(numbers: usize) -> Found {
        Found { sums: [numbers as f64, 1.0], statistics: vec![vec![0.5; numbers]] }
    }

    #[test]
    fn as_many_batches_are_exchanged_as_fit_into_the_bound() {
        // The numbers of the batches of two ranks, and how many come after each exchange, of 640 bytes: four of 80 bytes for each rank, then two
        // of 160 bytes, then one that is larger than the bound.
        let exchanged = [(1, 6, 2), (2, 6, 4), (4, 16, 2), (2, 96, 1), (1, 6, 1)];
        thread::scope(|scope| {
            for rank in Threads::ranks(2, ThreadsOptions::default()) {
                scope.spawn(move || {
                    let ranks = Ranks::new(Arc::new(rank));
                    let mut exchanges = Exchanges::new(&ranks, 640);
                    for (batches, numbers, next) in exchanged {
                        assert_eq!(exchanges.batches(), batches);
                        let (found, is_last) = exchanges.exchange(vec![batch(numbers); batches]).unwrap();
                        assert_eq!((found, is_last), (vec![batch(numbers); 2 * batches], false));
                        assert_eq!(exchanges.batches(), next);
                    }
                    assert_eq!(exchanges.exchange(Vec::new()).unwrap(), (Vec::new(), true));
                });
            }
        });
    }

    #[test]
    fn the_exchange_in_which_a_rank_has_no_batch_is_the_last_one() {
        thread::scope(|scope| {
            for (number, rank) in Threads::ranks(2, ThreadsOptions::default()).into_iter().enumerate() {
                scope.spawn(move || {
                    let ranks = Ranks::new(Arc::new(rank));
                    let own = vec![batch(3); 1 - number];
                    assert_eq!(Exchanges::new(&ranks, 0).exchange(own).unwrap(), (vec![batch(3)], true));
                });
            }
        });
    }

    #[test]
    fn one_process_has_one_exchange() {
        let ranks = Ranks::alone();
        let (mut exchanges, own) = (Exchanges::new(&ranks, 0), vec![batch(2); 9]);
        assert_eq!(exchanges.batches(), usize::MAX);
        assert_eq!(exchanges.exchange(own.clone()).unwrap(), (own, true));
    }
}
