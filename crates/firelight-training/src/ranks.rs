//! What a training asks of the ranks that share it, so that it is the training of one process: which batches are this rank's, what all
//! found, and whether all began alike. With one rank every question is answered by what was asked with. What ranks do with a trained model
//! they share by [`deal`], [`deal_partial`] and [`deal_to_all`].

mod agreement;
mod buckets;
mod collective;
mod dealing;
mod examples;
mod exchanges;
mod found;
mod gradients;
mod incoming;
mod preparation;
mod shards;
mod share;
mod sharing;
mod telling;
mod wire;

use std::any::Any;
use std::sync::Arc;

use firelight_storage::InputError;

use crate::communicator::share_of;
use crate::{Alone, Communicator, CommunicatorError};

pub use agreement::agree;
pub(crate) use agreement::{Term, fingerprint, settings, weights};
pub use buckets::BUCKET;
pub use dealing::{deal, deal_partial};
pub(crate) use examples::agree_on;
pub use examples::{ExampleDigest, agree_on_examples};
pub(crate) use exchanges::{EXCHANGED, Exchanges};
pub(crate) use found::Found;
pub use preparation::lead;
pub(crate) use shards::Shards;
pub(crate) use share::Share;
pub use sharing::deal_to_all;
pub use telling::telling;

/// The ranks of a training, seen from one of them.
#[derive(Clone)]
pub(crate) struct Ranks(Arc<dyn Communicator>);

impl Ranks {
    pub(crate) fn new(communicator: Arc<dyn Communicator>) -> Self {
        Self(communicator)
    }

    /// One process by itself.
    pub(crate) fn alone() -> Self {
        Self(Arc::new(Alone))
    }

    pub(crate) fn communicator(&self) -> Arc<dyn Communicator> {
        self.0.clone()
    }

    pub(crate) fn are_one(&self) -> bool {
        self.0.world() == 1
    }

    /// How many of them share the memory of this machine.
    pub(crate) fn sharing(&self) -> usize {
        self.0.local_world().max(1)
    }

    /// Whether this is the rank that writes.
    pub(crate) fn is_first(&self) -> bool {
        self.0.rank() == 0
    }

    /// Refuses a `group` of batches that the ranks cannot share.
    pub(crate) fn check(&self, group: usize) -> Result<(), InputError> {
        let world = self.0.world();
        if share_of(group, world).is_some() {
            return Ok(());
        }
        let problem = format!("training.gradient_accumulation_steps = {group} cannot be shared by {world} ranks");
        Err(InputError::new(problem).advise(match [2, 4, 8].contains(&world) {
            true => format!("set it to a multiple of {world}, such as {}", group.div_ceil(world).max(1) * world),
            false => format!("set it to {world}, or start 2, 4 or 8 ranks"),
        }))
    }

    /// The part of a `group` of batches that is this rank's.
    pub(crate) fn share(&self, group: usize) -> Share {
        let own = share_of(group, self.0.world()).unwrap_or(group);
        Share { before: self.0.rank() * own, own, others: group - own }
    }

    /// Ranks that take every batch in turn: how many a rank leaves out before its first one, and between two of its own.
    pub(crate) fn turns(&self) -> (usize, usize) {
        (self.0.rank(), self.0.world() - 1)
    }

    /// What all ranks found in their turns, in the order of the batches. A message holds at most about `bound` bytes of all ranks.
    pub(crate) fn in_turns(&self, own: Vec<Found>, bound: usize) -> Result<Vec<Found>, CommunicatorError> {
        if self.are_one() {
            return Ok(own);
        }
        let all = self.gather_in_pieces(&Found::to_bytes(&own), bound)?;
        let mut of_ranks: Vec<_> = all.iter().map(|bytes| Found::of_bytes(bytes)).collect();
        let mut found = Vec::new();
        loop {
            let before = found.len();
            found.extend(of_ranks.iter_mut().filter_map(Iterator::next));
            if found.len() == before {
                return Ok(found);
            }
        }
    }

    /// The bytes of each rank. Ranks that still hand over whole pieces have more of them; all ranks see which do, and end together.
    fn gather_in_pieces(&self, own: &[u8], bound: usize) -> Result<Vec<Vec<u8>>, CommunicatorError> {
        let length = (bound / self.world()).max(1);
        let (mut all, mut pieces) = (vec![Vec::new(); self.world()], own.chunks(length));
        loop {
            let given = self.0.gather("evaluation", pieces.next().unwrap_or_default().to_vec())?;
            all.iter_mut().zip(given.iter()).for_each(|(whole, piece)| whole.extend_from_slice(piece));
            if given.iter().all(|piece| piece.len() < length) {
                return Ok(all);
            }
        }
    }

    /// The ranks that share an evaluation: none with others, if any of them `needs_all` batches.
    pub(crate) fn evaluating(&self, needs_all: bool) -> Result<Self, CommunicatorError> {
        Ok(if self.any(needs_all)? { Self::alone() } else { self.clone() })
    }

    /// Whether any rank says yes.
    pub(crate) fn any(&self, own: bool) -> Result<bool, CommunicatorError> {
        if self.are_one() {
            return Ok(own);
        }
        Ok(self.0.gather("vote", vec![u8::from(own)])?.iter().any(|vote| vote.contains(&1)))
    }

    /// Held while a batch is computed, where ranks share a device.
    pub(crate) fn turn(&self) -> Result<Option<Box<dyn Any>>, CommunicatorError> {
        self.0.turn()
    }

    /// How many there are.
    pub(crate) fn world(&self) -> usize {
        self.0.world()
    }

    /// Waits until all ranks are here.
    pub(crate) fn meet(&self) -> Result<(), CommunicatorError> {
        self.0.barrier()
    }

    /// Tells the others of an error, for they would wait.
    pub(crate) fn tell<T, E: ToString>(&self, result: Result<T, E>) -> Result<T, E> {
        result.inspect_err(|error| self.0.fail(&error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Threads, ThreadsOptions};
    use std::thread;

    /// A rank that refuses messages of which all ranks together hand over more than some bytes, as MPI does beyond 2 GiB.
    struct Bounded(Threads, usize);

    impl Communicator for Bounded {
        fn rank(&self) -> usize {
            self.0.rank()
        }

        fn world(&self) -> usize {
            self.0.world()
        }

        fn gather(&self, operation: &'static str, bytes: Vec<u8>) -> Result<Arc<[Vec<u8>]>, CommunicatorError> {
            let all = self.0.gather(operation, bytes)?;
            let size: usize = all.iter().map(Vec::len).sum();
            assert!(size <= self.1, "a message of {size} bytes");
            Ok(all)
        }

        fn fail(&self, reason: &str) {
            self.0.fail(reason);
        }
    }

    #[test]
    fn what_is_larger_than_a_message_goes_in_pieces() {
        let batch = |rank: usize| Found { sums: [rank as f64, 1.0], statistics: vec![vec![0.5; 30 * rank]; 2] };
        let expected: Vec<Found> = (0..3).map(batch).collect();
        thread::scope(|scope| {
            for rank in Threads::ranks(3, ThreadsOptions::default()) {
                let expected = &expected;
                scope.spawn(move || {
                    let ranks = Ranks::new(Arc::new(Bounded(rank, 64)));
                    let own = vec![batch(ranks.0.rank())];
                    assert_eq!(&ranks.in_turns(own, 64).unwrap(), expected);
                });
            }
        });
    }

    fn ranks(world: usize) -> Vec<Ranks> {
        let ranks = Threads::ranks(world, ThreadsOptions::default()).into_iter();
        ranks.map(|rank| Ranks::new(Arc::new(rank))).collect()
    }

    #[test]
    fn a_group_that_cannot_be_shared_is_refused_with_one_that_can() {
        let error = |group, world| ranks(world)[0].check(group).unwrap_err().to_string();
        let expected = "training.gradient_accumulation_steps = 1 cannot be shared by 4 ranks; \
                        set it to a multiple of 4, such as 4";
        assert_eq!(error(1, 4), expected);
        assert!(error(6, 4).ends_with("such as 8") && error(3, 2).ends_with("such as 4"));
        assert!(error(6, 3).ends_with("set it to 3, or start 2, 4 or 8 ranks"));
        assert!(error(64, 16).ends_with("set it to 16, or start 2, 4 or 8 ranks"));
        ranks(4)[3].check(12).unwrap();
        Ranks::alone().check(7).unwrap();
    }

    #[test]
    fn what_ranks_find_in_turn_comes_in_the_order_of_the_batches() {
        let batches = |rank: &Ranks| {
            let (first, between) = rank.turns();
            let found = |batch: usize| {
                let (sums, rows) = ([batch as f64, 0.1 * batch as f64], batch % 3);
                Found { sums, statistics: (0..rows).map(|row| vec![batch as f64; row]).collect() }
            };
            (first..7).step_by(between + 1).map(found).collect::<Vec<_>>()
        };
        let expected = batches(&Ranks::alone());
        thread::scope(|scope| {
            for rank in ranks(3) {
                let expected = &expected;
                scope.spawn(move || {
                    for bound in [0, 100, 240, 1 << 20] {
                        assert_eq!(&rank.in_turns(batches(&rank), bound).unwrap(), expected, "{bound}");
                    }
                    assert!(rank.any(rank.0.rank() == 2).unwrap() && !rank.any(false).unwrap());
                    rank.meet().unwrap();
                });
            }
        });
    }
}
