//! An error of one rank in what all of them do together, of which it tells the others.

use std::fmt::Display;
use std::sync::Arc;

use super::Ranks;
use crate::Communicator;

/// Does `work` as one of several ranks. If it fails, the others are told why: they would wait for a rank that has nothing to go on with.
///
/// ```
/// use std::sync::Arc;
/// use firelight_training::{Communicator, Threads, ThreadsOptions, telling};
///
/// let mut ranks = Threads::ranks(2, ThreadsOptions::default());
/// let second = Arc::new(ranks.remove(1));
/// assert_eq!(telling(second.clone(), |_| Err::<(), _>("there is no such file")), Err("there is no such file"));
/// let found = ranks[0].barrier().unwrap_err();
/// assert_eq!(found.to_string(), "rank 1 has failed: there is no such file");
/// ```
///
/// # Errors
/// That of `work`.
pub fn telling<R, E: Display>(
    communicator: Arc<dyn Communicator>,
    work: impl FnOnce(Arc<dyn Communicator>) -> Result<R, E>,
) -> Result<R, E> {
    let done = work(communicator.clone());
    Ranks::new(communicator).tell(done)
}
