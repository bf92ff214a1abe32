//! Ranks that are threads of one process: for tests, and for machines with many cores.

use std::any::Any;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Collective, Communicator, CommunicatorError};

/// The rank that computes a batch: the random numbers of a device are one stream of the whole process, whichever ranks share it.
static COMPUTES: Mutex<Option<usize>> = Mutex::new(None);

/// Told when it has computed one.
static COMPUTED: Condvar = Condvar::new();

/// The turn of a rank.
struct Turn;

impl Drop for Turn {
    fn drop(&mut self) {
        *COMPUTES.lock().unwrap_or_else(PoisonError::into_inner) = None;
        COMPUTED.notify_one();
    }
}

/// How [`Threads`] work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadsOptions {
    /// How long a rank waits for the others. Default: 10 minutes.
    pub timeout: Duration,
    /// Whether ranks compute their batches at the same time rather than in turn. Right for models that draw no random numbers in training,
    /// as without dropout: the random numbers of a backend are one stream of the process, on several GPUs, too. A GPU goes on with a batch
    /// when the turn of its rank has ended. Default: in turn.
    pub at_once: bool,
}

impl Default for ThreadsOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(600), at_once: false }
    }
}

/// A rank that is a thread of the process. Each rank builds its own model and calls [`fit`](crate::fit()) on its own thread, none of them of
/// rayon's pool, whose threads may not wait. A rank that is dropped has ended, and nobody waits for it any longer.
///
/// ```
/// use firelight_training::{Communicator, Threads, ThreadsOptions};
///
/// let ranks = Threads::ranks(2, ThreadsOptions::default());
/// ranks[1].fail("the disk is full");
/// let error = ranks[0].barrier().unwrap_err();
/// assert_eq!(error.to_string(), "rank 1 has failed: the disk is full");
/// ```
pub struct Threads {
    rank: usize,
    shared: Arc<Shared>,
    collective: Option<Arc<dyn Collective>>,
}

struct Shared {
    world: usize,
    options: ThreadsOptions,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Operations that all ranks have done.
    done: usize,
    /// What ranks hand over to the operation that is next.
    given: Vec<Option<Given>>,
    /// What all ranks handed over to the newest operation that is done.
    newest: Option<Arc<[Vec<u8>]>>,
    ended: Vec<bool>,
    failure: Option<CommunicatorError>,
}

/// An operation, and what a rank hands over to it.
type Given = (&'static str, Vec<u8>);

impl Threads {
    /// The ranks of one training, in order, each to be moved to its thread.
    ///
    /// # Panics
    /// If `world` is 0.
    pub fn ranks(world: usize, options: ThreadsOptions) -> Vec<Self> {
        assert!(world > 0, "a world of 0 ranks: expected at least 1");
        let state = State { given: vec![None; world], ended: vec![false; world], ..State::default() };
        let shared = Arc::new(Shared { world, options, state: Mutex::new(state), changed: Condvar::new() });
        (0..world).map(|rank| Self { rank, shared: shared.clone(), collective: None }).collect()
    }

    /// The rank, whose gradients `collective` sums on the devices. All ranks of a training need one.
    #[must_use]
    pub fn with_collective(mut self, collective: Arc<dyn Collective>) -> Self {
        self.collective = Some(collective);
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all ranks have done the operation number `number`.
    fn wait(&self, number: usize, operation: &'static str) -> Result<Arc<[Vec<u8>]>, CommunicatorError> {
        let (began, timeout) = (Instant::now(), self.shared.options.timeout);
        let mut state = self.state();
        loop {
            // What is done counts, also if a rank has failed since.
            if let (true, Some(newest)) = (state.done > number, &state.newest) {
                return Ok(newest.clone());
            }
            if let Some(failure) = state.trouble(operation) {
                return Err(failure);
            }
            let left = timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                let failure = CommunicatorError::Timeout {
                    rank: self.rank,
                    operation,
                    missing: state.missing(),
                    waited: timeout,
                };
                state.failure = Some(failure.clone());
                self.shared.changed.notify_all();
                return Err(failure);
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    /// Ends the operation that is next, if all ranks are here for it.
    fn advance(&mut self) {
        if self.given.iter().any(Option::is_none) {
            return;
        }
        let given: Vec<Given> = self.given.iter_mut().filter_map(Option::take).collect();
        let operation = given[0].0;
        if let Some(rank) = given.iter().position(|(name, _)| *name != operation) {
            let problem = format!("it is in the {}", given[rank].0);
            self.failure.get_or_insert(CommunicatorError::Mismatch { rank, operation, problem });
            return;
        }
        self.newest = Some(given.into_iter().map(|(_, bytes)| bytes).collect());
        self.done += 1;
    }

    /// Why the operation that is next cannot be done.
    fn trouble(&self, operation: &'static str) -> Option<CommunicatorError> {
        let ended = self.missing().into_iter().find(|&rank| self.ended[rank]);
        self.failure.clone().or(ended.map(|rank| CommunicatorError::Ended { rank, operation }))
    }

    fn missing(&self) -> Vec<usize> {
        let given = self.given.iter().enumerate();
        given.filter(|(_, given)| given.is_none()).map(|(rank, _)| rank).collect()
    }
}

impl Communicator for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world(&self) -> usize {
        self.shared.world
    }

    /// All of them: threads of one process have one memory. GPUs bring their own, for which nobody asks this.
    fn local_world(&self) -> usize {
        self.shared.world
    }

    fn gather(&self, operation: &'static str, bytes: Vec<u8>) -> Result<Arc<[Vec<u8>]>, CommunicatorError> {
        let mut state = self.state();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let number = state.done;
        state.given[self.rank] = Some((operation, bytes));
        state.advance();
        drop(state);
        self.shared.changed.notify_all();
        self.wait(number, operation)
    }

    fn fail(&self, reason: &str) {
        let failure = CommunicatorError::Failed { rank: self.rank, reason: reason.into() };
        self.state().failure.get_or_insert(failure);
        self.shared.changed.notify_all();
    }

    fn turn(&self) -> Result<Option<Box<dyn Any>>, CommunicatorError> {
        let ThreadsOptions { timeout: waited, at_once } = self.shared.options;
        if at_once {
            return Ok(None);
        }
        let rank = COMPUTES.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut rank, _) =
            COMPUTED.wait_timeout_while(rank, waited, |rank| rank.is_some()).unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = *rank {
            let (operation, missing) = ("turn to compute a batch", vec![other]);
            return Err(CommunicatorError::Timeout { rank: self.rank, operation, missing, waited });
        }
        *rank = Some(self.rank);
        Ok(Some(Box::new(Turn)))
    }

    fn collective(&self) -> Option<&dyn Collective> {
        self.collective.as_deref()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.state().ended[self.rank] = true;
        self.shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::alone;
    use std::sync::Barrier;
    use std::thread;

    /// What each rank of a world returns, in the order of ranks.
    fn on_ranks<R: Send>(world: usize, timeout: Duration, work: impl Fn(&Threads) -> R + Sync) -> Vec<R> {
        let ranks = Threads::ranks(world, ThreadsOptions { timeout, ..ThreadsOptions::default() });
        thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || work(&rank))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    #[should_panic(expected = "a world of 0 ranks: expected at least 1")]
    fn a_world_has_a_rank() {
        Threads::ranks(0, ThreadsOptions::default());
    }

    #[test]
    fn every_rank_gets_the_sum_in_the_order_of_halves() {
        // 2^24 + 1 is no float: from left to right the ones are lost, in halves two of them are not.
        let values = [16_777_216.0, 0.0, 1.0, 1.0];
        let sums = on_ranks(4, LONG, |rank| {
            let mut sum = [values[rank.rank()], -0.0];
            rank.sum_f32(&mut sum).unwrap();
            sum.map(f32::to_bits)
        });
        assert_eq!(sums, [[16_777_218.0_f32, -0.0].map(f32::to_bits); 4]);
        let sums = on_ranks(3, LONG, |rank| {
            let mut sum = [0.1 * (rank.rank() + 1) as f64];
            rank.sum_f64(&mut sum).unwrap();
            sum
        });
        assert_eq!(sums, [[0.1 + 0.2 + 0.1 * 3.0]; 3]);
    }

    #[test]
    fn the_memory_of_a_machine_is_one_for_all_of_its_threads() {
        let found = |world: usize| Threads::ranks(world, ThreadsOptions::default())[0].local_world();
        assert_eq!([1, 3].map(found), [1, 3]);
    }

    #[test]
    fn many_operations_stay_apart() {
        on_ranks(3, LONG, |rank| {
            for number in 0..200_u8 {
                let all = rank.gather("test", vec![number, rank.rank() as u8]).unwrap();
                assert_eq!(&*all, [vec![number, 0], vec![number, 1], vec![number, 2]]);
                let root = usize::from(number) % 3;
                assert_eq!(rank.broadcast(root, vec![rank.rank() as u8]).unwrap(), [root as u8]);
                rank.barrier().unwrap();
            }
        });
    }

    #[test]
    fn a_rank_that_does_not_come_is_named() {
        let others_gave_up = Barrier::new(3);
        let errors = on_ranks(3, Duration::from_millis(20), |rank| {
            if rank.rank() == 1 {
                others_gave_up.wait(); // as a rank that hangs
            }
            let error = rank.gather("sum", Vec::new()).unwrap_err();
            if rank.rank() != 1 {
                others_gave_up.wait();
            }
            error
        });
        let missing = |error: &CommunicatorError| match error {
            CommunicatorError::Timeout { operation: "sum", missing, .. } => missing.contains(&1),
            _ => false,
        };
        assert!(errors.iter().all(missing), "{errors:?}");
    }

    #[test]
    fn a_failure_reaches_all_and_what_was_done_before_it_stays() {
        let results = on_ranks(3, LONG, |rank| {
            let first = rank.barrier();
            if rank.rank() == 2 {
                rank.fail("the disk is full");
            }
            (first, rank.barrier())
        });
        let failed = CommunicatorError::Failed { rank: 2, reason: "the disk is full".into() };
        assert_eq!(results, vec![(Ok(()), Err(failed.clone())); 3]);
        assert_eq!(failed.to_string(), "rank 2 has failed: the disk is full");
    }

    #[test]
    fn one_rank_computes_at_a_time_unless_all_may() {
        let _alone = alone();
        let options = ThreadsOptions { timeout: Duration::from_millis(20), at_once: false };
        let ranks = Threads::ranks(2, options);
        let turn = ranks[0].turn().unwrap();
        let (operation, missing, waited) = ("turn to compute a batch", vec![0], options.timeout);
        let expected = CommunicatorError::Timeout { rank: 1, operation, missing, waited };
        assert_eq!(ranks[1].turn().err(), Some(expected));
        let at_once = Threads::ranks(1, ThreadsOptions { at_once: true, ..options });
        assert!(at_once[0].turn().unwrap().is_none());
        drop(turn);
        assert!(ranks[1].turn().unwrap().is_some());
    }

    #[test]
    fn nobody_waits_for_a_rank_that_has_ended() {
        let results = on_ranks(2, LONG, |rank| if rank.rank() == 0 { rank.barrier() } else { Ok(()) });
        let ended = CommunicatorError::Ended { rank: 1, operation: "barrier" };
        assert_eq!(results, [Err(ended), Ok(())]);
    }

    #[test]
    fn ranks_that_do_not_do_the_same_are_told() {
        let errors = on_ranks(2, LONG, |rank| match rank.rank() {
            0 => rank.sum_f32(&mut [1.0]).unwrap_err(),
            _ => rank.barrier().unwrap_err(),
        });
        let problem = "it is in the barrier".to_string();
        assert_eq!(errors, vec![CommunicatorError::Mismatch { rank: 1, operation: "sum", problem }; 2]);
        let errors = on_ranks(2, LONG, |rank| rank.sum_f32(&mut [1.0, 2.0][rank.rank()..]).unwrap_err());
        assert!(errors[0].to_string().contains("hands over 4 bytes, and rank 0 8"), "{}", errors[0]);
    }
}
