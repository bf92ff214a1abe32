//! What the ranks of one training say to each other. [`fit`](crate::fit()) trains over any [`Communicator`]: [`Alone`] is one process
//! by itself, [`Threads`] are ranks within one process. An engine such as MPI implements the trait outside of this crate.

mod collective;
mod exchange;
mod order;
mod threads;

use std::any::Any;
use std::iter;
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

pub use collective::{Collective, DeviceCollective};
pub use exchange::{Exchange, from_bf16_bytes, to_bf16_bytes};
pub use order::OrderedSum;
pub(crate) use order::{share_of, sums_kept};
pub use threads::{Threads, ThreadsOptions};

use crate::words::lasting;

/// One of several ranks that train together, and its ways to the others.
///
/// All ranks call the same operations in the same order. Every wait has an end: an operation whose ranks do not all come returns an error
/// and never hangs. [`gather`](Self::gather) and [`fail`](Self::fail) are enough to implement; the others follow from `gather`, and an engine
/// that has better ones overrides them. A sum must be that of [`OrderedSum`] over the ranks, the same bytes on every rank.
///
/// ```
/// use firelight_training::{Communicator, Threads, ThreadsOptions};
///
/// let ranks = Threads::ranks(2, ThreadsOptions::default());
/// std::thread::scope(|scope| {
///     for rank in ranks {
///         scope.spawn(move || {
///             let mut values = [1.0, rank.rank() as f32];
///             rank.sum_f32(&mut values).unwrap();
///             assert_eq!(values, [2.0, 1.0]);
///         });
///     }
/// });
/// ```
pub trait Communicator: Send + Sync {
    /// Which of the ranks this is, from 0.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn world(&self) -> usize;

    /// How many of the ranks have to make do with the memory of this machine, each of them with all that a training needs. Default: 1.
    fn local_world(&self) -> usize {
        1
    }

    /// The bytes that each rank hands over, in the order of ranks, on every rank. `operation` is what it is for, in error messages.
    ///
    /// # Errors
    /// If a rank has failed, has ended, calls another operation, or does not come in time.
    fn gather(&self, operation: &'static str, bytes: Vec<u8>) -> Result<Arc<[Vec<u8>]>, CommunicatorError>;

    /// Tells the other ranks that this one has failed; what they wait for, and all that they begin after it, fails with `reason`.
    fn fail(&self, reason: &str);

    /// Replaces `values` by their sums over all ranks.
    ///
    /// # Errors
    /// As [`gather`](Self::gather), and if ranks hand over other numbers of values.
    fn sum_f32(&self, values: &mut [f32]) -> Result<(), CommunicatorError> {
        sum(self, values, f32::to_le_bytes, f32::from_le_bytes)
    }

    /// Replaces `values` by their sums over all ranks.
    ///
    /// # Errors
    /// As [`sum_f32`](Self::sum_f32).
    fn sum_f64(&self, values: &mut [f64]) -> Result<(), CommunicatorError> {
        sum(self, values, f64::to_le_bytes, f64::from_le_bytes)
    }

    /// Replaces `values` by their sums over all ranks, in half the bytes: each value is rounded to `bf16` ([`to_bf16_bytes`]), they are added
    /// up in single precision, and the sum is rounded again. One rank rounds nothing.
    ///
    /// # Errors
    /// As [`sum_f32`](Self::sum_f32).
    fn sum_bf16(&self, values: &mut [f32]) -> Result<(), CommunicatorError> {
        if self.world() > 1 {
            sum(self, values, to_bf16_bytes, from_bf16_bytes)?;
            values.iter_mut().for_each(|value| *value = from_bf16_bytes(to_bf16_bytes(*value)));
        }
        Ok(())
    }

    /// The bytes of the rank `root`, on every rank; those of the others are not looked at.
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
    ///
    /// # Panics
    /// If there is no such rank.
    fn broadcast(&self, root: usize, bytes: Vec<u8>) -> Result<Vec<u8>, CommunicatorError> {
        assert!(root < self.world(), "there is no rank {root} of {}", self.world());
        let own = if self.rank() == root { bytes } else { Vec::new() };
        Ok(self.gather("broadcast", own)?[root].clone())
    }

    /// Waits until all ranks are here.
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
    fn barrier(&self) -> Result<(), CommunicatorError> {
        self.gather("barrier", Vec::new()).map(drop)
    }

    /// Waits for this rank's turn to compute a batch, where ranks share a device and with it one stream of random numbers. The turn ends
    /// when the value is dropped. Default: none, for ranks that are processes, each with a stream of its own.
    ///
    /// # Errors
    /// If the turn does not come in time.
    fn turn(&self) -> Result<Option<Box<dyn Any>>, CommunicatorError> {
        Ok(None)
    }

    /// What sums gradients on the devices of the ranks, so that they do not pass over the host; either all ranks have it, or none. Default: none.
    fn collective(&self) -> Option<&dyn Collective> {
        None
    }
}

/// Sums through a gather: every rank adds up what all handed over.
fn sum<C: Communicator + ?Sized, T: Copy + Add<Output = T>, const N: usize>(
    ranks: &C,
    values: &mut [T],
    bytes: fn(T) -> [u8; N],
    number: fn([u8; N]) -> T,
) -> Result<(), CommunicatorError> {
    if ranks.world() == 1 {
        return Ok(());
    }
    let all = ranks.gather("sum", values.iter().flat_map(|value| bytes(*value)).collect())?;
    let expected = N * values.len();
    if let Some(rank) = all.iter().position(|bytes| bytes.len() != expected) {
        let problem = format!("it hands over {} bytes, and rank {} {expected}", all[rank].len(), ranks.rank());
        return Err(CommunicatorError::Mismatch { rank, operation: "sum", problem });
    }
    let mut sums = OrderedSum::of(all.len());
    for bytes in all.iter() {
        sums.add(bytes.as_chunks().0.iter().map(|bytes| number(*bytes)).collect::<Vec<T>>(), plus);
    }
    let sum = sums.finish(plus).unwrap_or_default();
    iter::zip(values, sum).for_each(|(value, sum)| *value = sum);
    Ok(())
}

fn plus<T: Copy + Add<Output = T>>(mut one: Vec<T>, other: Vec<T>) -> Vec<T> {
    iter::zip(&mut one, other).for_each(|(one, other)| *one = *one + other);
    one
}

/// One process by itself, whose operations cost nothing.
///
/// ```
/// use firelight_training::{Alone, Communicator};
///
/// let mut values = [1.5];
/// Alone.sum_f64(&mut values).unwrap();
/// assert_eq!((Alone.world(), values), (1, [1.5]));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alone;

impl Communicator for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn world(&self) -> usize {
        1
    }

    fn gather(&self, _operation: &'static str, bytes: Vec<u8>) -> Result<Arc<[Vec<u8>]>, CommunicatorError> {
        Ok(Arc::from([bytes]))
    }

    fn fail(&self, _reason: &str) {}
}

/// Why ranks cannot go on together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommunicatorError {
    /// Ranks did not come to an operation.
    #[error(
        "rank {rank} has waited {} in the {operation} for {}; is the process alive, and its machine within reach?",
        lasting(*waited),
        listed(missing)
    )]
    Timeout {
        /// The rank that has waited.
        rank: usize,
        /// What it waited in.
        operation: &'static str,
        /// The ranks that did not come.
        missing: Vec<usize>,
        /// How long it has waited.
        waited: Duration,
    },
    /// Another rank has failed.
    #[error("rank {rank} has failed: {reason}")]
    Failed {
        /// The rank that has failed.
        rank: usize,
        /// Its reason.
        reason: String,
    },
    /// A rank has ended while others still need it.
    #[error("rank {rank} ended before the {operation} of all ranks; its own messages say why")]
    Ended {
        /// The rank that has ended.
        rank: usize,
        /// What it is missing in.
        operation: &'static str,
    },
    /// Ranks do not do the same.
    #[error(
        "rank {rank} does not do in the {operation} what the others do: {problem}; start every rank with the same command"
    )]
    Mismatch {
        /// The rank that differs.
        rank: usize,
        /// What it was called in.
        operation: &'static str,
        /// What differs.
        problem: String,
    },
    /// What carries the messages does not work.
    #[error("rank {rank} cannot reach the others in the {operation}: {reason}")]
    Transport {
        /// The rank that noticed.
        rank: usize,
        /// What it was in.
        operation: &'static str,
        /// What the engine says.
        reason: String,
    },
}

/// Ranks in words.
fn listed(ranks: &[usize]) -> String {
    let numbers = ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    if ranks.len() == 1 { format!("rank {numbers}") } else { format!("the ranks {numbers}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_keeps_what_it_has() {
        let mut values = [0.1, -0.0];
        Alone.sum_f32(&mut values).unwrap();
        assert_eq!(values.map(f32::to_bits), [0.1_f32, -0.0].map(f32::to_bits));
        assert_eq!(&*Alone.gather("test", vec![1, 2]).unwrap(), [vec![1, 2]]);
        assert_eq!(Alone.broadcast(0, vec![3]).unwrap(), [3]);
        Alone.barrier().unwrap();
    }

    #[test]
    fn ranks_are_listed_in_words() {
        let timeout = |missing: &[usize]| CommunicatorError::Timeout {
            rank: 1,
            operation: "sum",
            missing: missing.to_vec(),
            waited: Duration::from_secs(600),
        };
        let expected = "rank 1 has waited 10 min 0 s in the sum for rank 3; is the process alive";
        assert!(timeout(&[3]).to_string().starts_with(expected), "{}", timeout(&[3]));
        assert!(timeout(&[0, 2]).to_string().contains("for the ranks 0, 2;"));
    }
}
