//! The ranks of a training that `mpirun` or `srun` started: all of them train, and the first one speaks for all. A launcher ends all ranks as
//! soon as one of them ends with an error, so that a rank that fails leaves it to the first one to tell that.

use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use firelight_mpi::{Launch, Member, MpiOptions};

use crate::output;

/// How long a rank gives the first one to say what is wrong for all of them, before they have found each other.
const COURTESY: Duration = Duration::from_secs(1);

static MEMBER: OnceLock<Member> = OnceLock::new();

/// Joins the other ranks, if there are any. Call it once.
///
/// # Errors
/// If there are, and MPI is not built in or cannot be used.
pub(crate) fn join() -> Result<()> {
    output::mute(Launch::of_environment().is_some_and(|launch| launch.rank > 0));
    let member = firelight_mpi::join(MpiOptions::default())?;
    let _ = MEMBER.set(member);
    Ok(())
}

/// This process among the ranks that it has [joined](join); by itself without.
pub(crate) fn member() -> &'static Member {
    MEMBER.get_or_init(Member::alone)
}

/// Does on the first rank what writes for all of them, and then on the others, which find it done.
pub(crate) fn first<R>(mut work: impl FnMut() -> Result<R>) -> Result<R> {
    let Some(member) = MEMBER.get().filter(|member| member.world() > 1) else { return work() };
    let ranks = member.communicator();
    let done = if member.rank() == 0 { Some(work()?) } else { None };
    ranks.barrier()?;
    done.map_or_else(work, Ok)
}

/// Tells the other ranks that this one has failed, and lets the first one tell the user, who ends all. A rank that is not heard speaks for
/// itself.
pub(crate) fn fail(reason: &str) {
    match MEMBER.get().filter(|member| member.world() > 1) {
        Some(member) => {
            member.communicator().fail(reason);
            if member.rank() > 0 {
                sleep(MpiOptions::default().timeout);
                output::mute(false);
            }
        }
        None if output::is_mute() => sleep(COURTESY), // the first one has failed alike
        None => {}
    }
}

/// Ends the other ranks with this one, if it ends with an error.
pub(crate) fn end(code: u8) {
    if let Some(member) = MEMBER.get().filter(|_| code != 0) {
        member.abort(code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_by_itself_works_once_and_waits_for_nobody() {
        let mut calls = 0;
        let work = || {
            calls += 1;
            Ok(calls)
        };
        assert_eq!(first(work).unwrap(), 1);
        fail("nobody hears it");
        end(1);
        assert_eq!((member().rank(), member().world()), (0, 1));
    }
}
