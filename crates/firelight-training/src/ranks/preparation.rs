//! What the first rank does alone before the training, such as to tokenize the data, may take longer than ranks wait for each other. So the
//! others hear from it while it is at work.

use std::fmt::Display;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::Ranks;
use crate::{Communicator, CommunicatorError};

const OPERATION: &str = "preparation";

/// How long a rank at work is silent; much less than ranks wait.
const SILENCE: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 1000 });

/// What the first rank shows where there is nothing but the end of its work.
const DONE: [u8; 1] = [1];

/// Does `work` on the first rank while the others wait for its end, however long it takes: what writes for all of them, such as a download.
/// Returns what came of it on the first rank, and nothing on the others. Every rank calls it.
///
/// ```
/// use std::sync::Arc;
/// use firelight_training::{CommunicatorError, Threads, ThreadsOptions, lead};
///
/// std::thread::scope(|scope| {
///     for (number, rank) in Threads::ranks(2, ThreadsOptions::default()).into_iter().enumerate() {
///         scope.spawn(move || {
///             let made = lead(Arc::new(rank), || Ok::<_, CommunicatorError>("a file")).unwrap();
///             assert_eq!(made, (number == 0).then_some("a file"));
///         });
///     }
/// });
/// ```
///
/// # Errors
/// That of `work`, of which the others are told; and if another rank has failed or has ended.
pub fn lead<R, E>(communicator: Arc<dyn Communicator>, work: impl FnOnce() -> Result<R, E>) -> Result<Option<R>, E>
where
    E: Display + From<CommunicatorError>,
{
    let ranks = Ranks::new(communicator);
    if !ranks.is_first() {
        ranks.shown()?;
        return Ok(None);
    }
    let (done, others) = ranks.lead(work);
    let done = ranks.tell(done)?;
    others?;
    ranks.show(DONE.to_vec())?;
    Ok(Some(done))
}

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
    fn an_error_of_the_first_rank_is_told_to_the_others() {
        let failed = |rank: Threads| {
            let disk = CommunicatorError::Ended { rank: 7, operation: "download" };
            lead(Arc::new(rank), || Err::<(), _>(disk)).unwrap_err()
        };
        thread::scope(|scope| {
            let ranks = Threads::ranks(2, ThreadsOptions::default()).into_iter();
            let ranks: Vec<_> = ranks.map(|rank| scope.spawn(move || failed(rank))).collect();
            let errors: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
            assert!(matches!(errors[0], CommunicatorError::Ended { rank: 7, .. }), "{errors:?}");
            assert!(matches!(errors[1], CommunicatorError::Failed { rank: 0, .. }), "{errors:?}");
        });
    }

    #[test]
    fn a_rank_that_has_failed_is_no_longer_waited_for() {
        assert!(seen(0, true).iter().all(|rank| matches!(rank, Err(CommunicatorError::Failed { rank: 1, .. }))));
    }
}
