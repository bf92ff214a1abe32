//! Lines that several ranks answer in turn: block after block goes to rank after rank, and the first one shows all answers in the order of
//! the lines. Every rank reads all lines, so that nothing but answers and checksums is exchanged.

use std::mem;
use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use firelight_storage::{InputError, TaskError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::wire;
use crate::{Communicator, CommunicatorError};

/// What ranks do here, as errors call it.
pub(super) const OPERATION: &str = "exchange of answers";

/// How long a rank at work is silent; much less than ranks wait.
const SILENCE: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 1000 });

/// Lines that are answered together, and how many others stand before them.
type Block = (usize, Vec<String>);

/// Answers blocks of lines on several ranks, which take them in turn: block `i` is that of rank `i % world`.
///
/// `next` reads the next block: how many lines stand before it, and its lines; none at the end. It must find the same on every rank.
/// `answer` is called for the blocks of this rank. `show` is called on the first rank alone, with all answers in the order of the blocks. So
/// what is shown does not depend on the number of ranks, if an answer depends on nothing but its block. No more than one answer of each rank
/// is held at a time. It comes to the first rank as CBOR, in which `Some(None)` is `None`.
///
/// Ranks wait for each other after every round of blocks, however long one of them is at work. Each of them returns the first error in the
/// order of the blocks, when the answers before it are shown. If `show` fails, the first rank returns why, and the others end without an error.
///
/// ```
/// use firelight_storage::TaskError;
/// use firelight_training::{Threads, ThreadsOptions, deal};
///
/// std::thread::scope(|scope| {
///     for rank in Threads::ranks(2, ThreadsOptions::default()) {
///         scope.spawn(move || {
///             let (mut blocks, mut shown) = (["a", "b", "c"].into_iter().enumerate(), String::new());
///             let next = || Ok::<_, TaskError>(blocks.next().map(|(before, line)| (before, vec![line.to_string()])));
///             let answer = |before: usize, lines: &[String]| Ok(format!("{} {};", before + 1, lines[0]));
///             let show = |answer: String| {
///                 shown.push_str(&answer);
///                 Ok::<(), Box<dyn std::error::Error>>(())
///             };
///             deal(&rank, next, answer, show).unwrap();
///             assert!(shown.is_empty() || shown == "1 a;2 b;3 c;"); // the first rank shows all
///         });
///     }
/// });
/// ```
///
/// # Errors
/// If lines cannot be read, answered or shown, ranks do not read the same, or one of them has failed or does not come in time.
pub fn deal<A, E>(
    ranks: &dyn Communicator,
    next: impl FnMut() -> Result<Option<(usize, Vec<String>)>, TaskError>,
    mut answer: impl FnMut(usize, &[String]) -> Result<A, TaskError>,
    show: impl FnMut(A) -> Result<(), E>,
) -> Result<(), E>
where
    A: Serialize + DeserializeOwned,
    E: From<TaskError> + From<CommunicatorError>,
{
    let whole = |before: usize, lines: &[String]| match answer(before, lines) {
        Ok(found) => (Some(found), Ok(())),
        Err(error) => (None, Err(error)),
    };
    deal_partial(ranks, next, whole, show)
}

/// Answers blocks of lines like [`deal`], where a block may fail when a part of it is answered: `answer` returns what it has, and whether that is
/// all. What it has is shown before the error is returned.
///
/// ```
/// use firelight_storage::TaskError;
/// use firelight_training::{Threads, ThreadsOptions, deal_partial};
///
/// std::thread::scope(|scope| {
///     for rank in Threads::ranks(2, ThreadsOptions::default()) {
///         scope.spawn(move || {
///             let (mut blocks, mut shown) = (["a", "b", "c"].into_iter().enumerate(), String::new());
///             let next = || Ok::<_, TaskError>(blocks.next().map(|(before, line)| (before, vec![line.to_string()])));
///             let answer = |before: usize, lines: &[String]| {
///                 let done = if before == 1 { Err(TaskError::new(false, "the device is lost")) } else { Ok(()) };
///                 (Some(lines[0].clone()), done)
///             };
///             let show = |answer: String| {
///                 shown.push_str(&answer);
///                 Ok::<(), Box<dyn std::error::Error>>(())
///             };
///             assert_eq!(deal_partial(&rank, next, answer, show).unwrap_err().to_string(), "the device is lost");
///             assert!(shown.is_empty() || shown == "ab"); // the first rank shows all
///         });
///     }
/// });
/// ```
///
/// # Errors
/// As [`deal`].
pub fn deal_partial<A, E>(
    ranks: &dyn Communicator,
    mut next: impl FnMut() -> Result<Option<(usize, Vec<String>)>, TaskError>,
    mut answer: impl FnMut(usize, &[String]) -> (Option<A>, Result<(), TaskError>),
    mut show: impl FnMut(A) -> Result<(), E>,
) -> Result<(), E>
where
    A: Serialize + DeserializeOwned,
    E: From<TaskError> + From<CommunicatorError>,
{
    if ranks.world() == 1 {
        while let Some((before, lines)) = next()? {
            let (found, done) = answer(before, &lines);
            found.map_or(Ok(()), &mut show)?;
            done?;
        }
        return Ok(());
    }
    let (mut waiting, mut shown, mut is_over, mut failed) = (Vec::new(), Ok(()), false, None);
    loop {
        let Round { read, unread, own } = if is_over { Round::default() } else { Round::read(&mut next, ranks) };
        let all: Vec<Handed<A>> = hand_over::<A, E>(ranks, || {
            // Shown while the others hear of this rank: whoever reads the answers may take his time.
            shown = waiting.drain(..).try_for_each(&mut show);
            let ends = shown.is_err();
            let own = own.filter(|_| !ends);
            let (found, done) = own.map_or((None, Ok(())), |(before, lines)| answer(before, &lines));
            let failed = done.err().map(|error| Failure::of(&error));
            Handed { read, unread, answer: Vec::from_iter(found), failed, ends }
        })?;
        if all[0].ends {
            return shown;
        }
        if is_over {
            return failed.map_or(Ok(()), |failure: Failure| Err(failure.into_error().into()));
        }
        let is_last = all[0].read.len() < ranks.world();
        let (found, failure) = in_order(all);
        waiting = if ranks.rank() == 0 { found } else { Vec::new() };
        // What came before a failure is shown in one more round, as the last answers are.
        (is_over, failed) = (is_last || failure.is_some(), failure);
    }
}

/// The answers of a round up to the first failure, if there is one, with what there is of the answer that failed.
fn in_order<A>(all: Vec<Handed<A>>) -> (Vec<A>, Option<Failure>) {
    if let Some(failure) = differing(&all) {
        return (Vec::new(), Some(failure));
    }
    let (unread, mut found) = (all[0].unread.clone(), Vec::new());
    for Handed { answer, failed, .. } in all {
        found.extend(answer);
        if failed.is_some() {
            return (found, failed);
        }
    }
    (found, unread)
}

/// The blocks of a round, one for each rank or fewer at the end, as a rank reads them.
#[derive(Default)]
struct Round {
    read: Vec<Read>,
    unread: Option<Failure>,
    own: Option<Block>,
}

/// What tells a block from others: the lines before it, and its checksum.
type Read = (usize, u32);

/// What a rank hands over in a round.
#[derive(Serialize, Deserialize)]
struct Handed<A> {
    /// The blocks of all ranks.
    read: Vec<Read>,
    /// Why there are no more of them.
    unread: Option<Failure>,
    /// What it answers to its own block, if anything: no `Option`, since an answer may be one.
    answer: Vec<A>,
    /// Why that is not all.
    failed: Option<Failure>,
    /// Whether nobody looks at the answers any longer.
    ends: bool,
}

/// An error on its way to the other ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Failure {
    is_user_error: bool,
    problems: Vec<String>,
}

impl Round {
    fn read(next: &mut impl FnMut() -> Result<Option<Block>, TaskError>, ranks: &dyn Communicator) -> Self {
        let mut round = Self::default();
        while round.read.len() < ranks.world() {
            match next() {
                Ok(Some((before, lines))) => {
                    let place = round.read.len();
                    round.read.push((before, checksum(&lines)));
                    if place == ranks.rank() {
                        round.own = Some((before, lines));
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    round.unread = Some(Failure::of(&error));
                    break;
                }
            }
        }
        round
    }
}

impl Failure {
    fn of(error: &TaskError) -> Self {
        Self { is_user_error: error.is_user_error(), problems: error.problems() }
    }

    fn into_error(self) -> TaskError {
        TaskError::new(self.is_user_error, self.problems.join("; ")).listing(self.problems)
    }
}

fn checksum(lines: &[String]) -> u32 {
    lines.iter().fold(0, |sum, line| crc32c::crc32c_append(crc32c::crc32c_append(sum, line.as_bytes()), b"\n"))
}

/// Why a rank does not read what the first one reads, if one does not.
fn differing<A>(all: &[Handed<A>]) -> Option<Failure> {
    let first = &all[0];
    let (rank, other) =
        all.iter().enumerate().find(|(_, other)| other.read != first.read || other.unread != first.unread)?;
    if let Some(Failure { is_user_error, problems }) = other.unread.clone().filter(|_| other.unread != first.unread) {
        let problems = problems.iter().map(|problem| format!("rank {rank}: {problem}")).collect();
        return Some(Failure { is_user_error, problems });
    }
    let same = first.read.iter().zip(&other.read).take_while(|(one, other)| one == other).count();
    let block = first.read.get(same).or_else(|| other.read.get(same));
    let place = block.map_or(String::new(), |(before, _)| format!(", from line {} on", before + 1));
    let problem = format!("rank {rank} does not read what rank 0 does{place}");
    Some(Failure::of(&InputError::new(problem).advise("give all ranks the same file").into()))
}

/// Does the `work` of a round while the others hear that this rank is alive, and waits for what all hand over.
fn hand_over<A, E>(ranks: &dyn Communicator, work: impl FnOnce() -> Handed<A>) -> Result<Vec<Handed<A>>, E>
where
    A: Serialize + DeserializeOwned,
    E: From<TaskError> + From<CommunicatorError>,
{
    let mut come: Vec<Option<Vec<u8>>> = vec![None; ranks.world()];
    let heard = &mut come;
    let (done, at_work) = channel::<()>();
    let (own, alive) = thread::scope(|scope| {
        let alive = scope.spawn(move || -> Result<(), CommunicatorError> {
            while let Err(RecvTimeoutError::Timeout) = at_work.recv_timeout(SILENCE) {
                exchange(ranks, Vec::new(), heard)?;
            }
            Ok(())
        });
        let own = work();
        drop(done);
        (own, alive.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    alive?;
    let mut own = wire::to_bytes(&own)?;
    while come.iter().any(Option::is_none) {
        exchange(ranks, mem::take(&mut own), &mut come)?;
    }
    let all = come.iter().flatten().map(|bytes| wire::of_bytes(bytes));
    Ok(all.collect::<Result<_, TaskError>>()?)
}

/// Hands over what is `own`, which is empty as long as a rank is at work, and takes up what others have.
fn exchange(ranks: &dyn Communicator, own: Vec<u8>, come: &mut [Option<Vec<u8>>]) -> Result<(), CommunicatorError> {
    let all = ranks.gather(OPERATION, own)?;
    for (come, bytes) in come.iter_mut().zip(all.iter()) {
        if !bytes.is_empty() {
            *come = Some(bytes.clone());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
