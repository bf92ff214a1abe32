//! The ranks that `mpirun` or `srun` started: all of them train, or answer, and the first one speaks for all. A launcher ends all ranks as
//! soon as one of them ends with an error, so that a rank that fails leaves it to the first one to tell that.

use std::env;
use std::io::{self, Write};
use std::iter;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, bail};
use firelight::training::{agree, lead};
use firelight_mpi::{Launch, Member, MpiOptions};

use crate::failure::{Mistake, is_closed_pipe};
use crate::output;

/// How long a rank gives the first one to say what is wrong for all of them, before they have found each other.
const COURTESY: Duration = Duration::from_secs(5);

/// How long `mpirun` has to forward what the first rank has said: it may drop what it has not read when that rank ends all.
const FORWARDING: Duration = Duration::from_millis(500);

/// What tells this program from others: all ranks must have it in common.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("FIRELIGHT_COMMIT"), ")");

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

/// Refuses to do on every rank what one process does. Call it in the place of [`join`].
///
/// # Errors
/// If this process was started as one of several.
pub(crate) fn refuse() -> Result<()> {
    let Some(launch) = Launch::of_environment().filter(|launch| launch.world > 1) else { return Ok(()) };
    output::mute(launch.rank > 0);
    let Launch { world, variable, .. } = launch;
    bail!(Mistake(format!(
        "this process is one of {world} ({variable}={world}), and this command is for one: start it by itself; train, translate, classify, \
         embed, fill-mask, score and evaluate are for several"
    )))
}

/// Refuses on several ranks what they cannot share, which is the beginning of the message.
///
/// # Errors
/// If there are several.
pub(crate) fn refuse_unshared(what: &str) -> Result<()> {
    match several() {
        Some(member) => {
            bail!(Mistake(format!("{what}, and cannot be shared by {} ranks: start one process", member.world())))
        }
        None => Ok(()),
    }
}

/// This process among the ranks that it has [joined](join); by itself without.
pub(crate) fn member() -> &'static Member {
    MEMBER.get_or_init(Member::alone)
}

/// This process among the ranks that it has joined, if there are several.
pub(crate) fn several() -> Option<&'static Member> {
    MEMBER.get().filter(|member| member.world() > 1)
}

/// Refuses ranks that were not asked for the same, or whose model has other `files`. Every rank calls it before it loads the model.
///
/// # Errors
/// If one differs, or has failed.
pub(crate) fn agree_on(files: &[PathBuf]) -> Result<()> {
    let Some(member) = several() else { return Ok(()) };
    let command = asked(env::args().skip(1)).join(" ");
    Ok(agree(member.communicator(), vec![("version".into(), VERSION.into()), ("command".into(), command)], files)?)
}

/// The arguments without the device: each rank may have one of its own.
fn asked(arguments: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut arguments = arguments.into_iter();
    let next = || {
        let argument = arguments.next()?;
        if argument == "--device" {
            arguments.next();
        }
        Some(argument)
    };
    iter::from_fn(next).filter(|argument| !argument.starts_with("--device")).collect()
}

/// Parts from the other ranks when the work is done, or nobody reads it any longer.
///
/// # Errors
/// As the work, and if another rank has failed.
pub(crate) fn part<R>(done: Result<R>) -> Result<R> {
    let Some(member) = several() else { return done };
    match &done {
        Ok(_) => member.leave()?,
        Err(error) if is_closed_pipe(error) => drop(member.leave()), // who has seen enough is told of nothing more
        Err(_) => {}
    }
    done
}

/// Does on the first rank what writes for all of them, such as a download, and then on the others, which find it done. They wait for it as
/// long as it takes.
pub(crate) fn first<R>(mut work: impl FnMut() -> Result<R>) -> Result<R> {
    let Some(member) = several() else { return work() };
    lead(member.communicator(), &mut work)?.map_or_else(work, Ok)
}

/// Tells the other ranks that this one has failed, and lets the first one tell the user, who ends all. A rank that is not heard speaks for
/// itself.
pub(crate) fn fail(reason: &str) {
    match several() {
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
    if let Some(member) = MEMBER.get().filter(|member| code != 0 && member.world() > 1) {
        let _ = io::stdout().flush();
        sleep(FORWARDING);
        member.abort(code);
    }
}

/// Which of the processes on this machine this one is, from 0.
pub(crate) fn local() -> usize {
    Launch::of_environment().map_or(0, |launch| launch.local_rank)
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
        agree_on(&["no file".into()]).unwrap();
        refuse().unwrap();
        refuse_unshared("nothing").unwrap();
        assert_eq!(part(Ok(2)).unwrap(), 2);
    }

    #[test]
    fn each_rank_may_have_a_device_of_its_own() {
        let words = |line: &str| asked(line.split(' ').map(str::to_string)).join(" ");
        for device in ["--device cuda:1 ", "--device=cuda:1 ", ""] {
            assert_eq!(words(&format!("embed run {device}--file a")), "embed run --file a");
        }
        assert_eq!(words("embed run --device"), "embed run");
    }
}
