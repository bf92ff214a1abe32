//! What the first rank does alone before the training, such as to tokenize the data, may take longer than ranks wait for each other. So the
//! others hear from it while it is at work.

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::Ranks;
use crate::CommunicatorError;

const OPERATION: &str = "preparation";

/// How long a rank at work is silent; much less than ranks wait.
const SILENCE: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 1000 });

impl Ranks {
    /// Does `work` on the first rank while the others wait for what it [shows](Self::show). Returns what came of it, and whether all others
    /// still wait.
    pub(crate) fn lead<R>(&self, work: impl FnOnce() -> R) -> (R, Result<(), CommunicatorError>) {
        let (done, at_work) = channel::<()>();
        thread::scope(|scope| {
            let alive = scope.spawn(move || -> Result<(), CommunicatorError> {
                while let Err(RecvTimeoutError::Timeout) = at_work.recv_timeout(SILENCE) {
                    self.0.gather(OPERATION, Vec::new())?;
                }
                Ok(())
            });
            let result = work();
            drop(done);
            (result, alive.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })
    }

    /// Shows the others what the first rank has made, which is not empty.
    pub(crate) fn show(&self, made: Vec<u8>) -> Result<(), CommunicatorError> {
        self.0.gather(OPERATION, made).map(drop)
    }

    /// Waits for what the first rank shows.
    pub(crate) fn shown(&self) -> Result<Vec<u8>, CommunicatorError> {
        loop {
            let first = self.0.gather(OPERATION, Vec::new())?[0].clone();
            if !first.is_empty() {
                return Ok(first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Threads, ThreadsOptions};
    use std::sync::Arc;

    /// What the ranks get to see of what the first one makes in so many milliseconds, if the second one fails or not.
    fn seen(milliseconds: u64, fails: bool) -> Vec<Result<Vec<u8>, CommunicatorError>> {
        thread::scope(|scope| {
            let rank = |rank: Threads| {
                let ranks = Ranks::new(Arc::new(rank));
                scope.spawn(move || {
                    if !ranks.is_first() {
                        ranks.tell(if fails { Err("it has failed") } else { Ok(()) }).ok();
                        return ranks.shown();
                    }
                    let (made, alive) = ranks.lead(|| {
                        thread::sleep(Duration::from_millis(milliseconds));
                        vec![1, 2, 3]
                    });
                    alive.and_then(|()| ranks.show(made.clone())).map(|()| made)
                })
            };
            let ranks: Vec<_> = Threads::ranks(2, ThreadsOptions::default()).into_iter().map(rank).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    #[test]
    fn the_others_wait_as_long_as_the_first_rank_is_at_work() {
        for milliseconds in [0, 100] {
            assert_eq!(seen(milliseconds, false), [Ok(vec![1, 2, 3]), Ok(vec![1, 2, 3])]);
        }
    }

    #[test]
    fn a_rank_that_has_failed_is_no_longer_waited_for() {
        assert!(seen(0, true).iter().all(|rank| matches!(rank, Err(CommunicatorError::Failed { rank: 1, .. }))));
    }
}
