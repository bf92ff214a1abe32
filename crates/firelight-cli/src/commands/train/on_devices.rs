//! A training on several devices of this process: a thread for each of them is a rank, and the first one tells the user.

use std::panic::{self, AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, Once};
use std::thread;

use anyhow::{Result, ensure};
use firelight::device::{Backend, NamedDevice};
use firelight::training::{Communicator, DeviceCollective, Run, RunRequest, Threads, ThreadsOptions};

use super::super::place;
use super::super::tasks::Shown;
use super::course::Course;
use crate::failure::{MACHINE, Mistake, panic_message, problems};
use crate::interruption::quit;
use crate::output;

/// Trains on all `devices`, of which there are several; with `nccl` they sum the gradients themselves. A dry run is for the first one alone.
pub(super) fn follow<T: Shown>(
    course: Course,
    request: &RunRequest,
    devices: &[NamedDevice],
    nccl: bool,
) -> Result<()> {
    course.check_screen()?;
    let ranks = ranks(devices, nccl)?;
    if course.dry_run {
        return course.follow::<T>(request, &devices[0]);
    }
    let place = places(devices);
    on_threads(ranks, |communicator| {
        let device = &devices[communicator.rank()];
        let request = RunRequest { device: device.device.clone(), ..request.clone() };
        match communicator.rank() {
            0 => course.take_part::<T>(&request, (device, place.as_str()), communicator, || Ok(())),
            _ => assist::<T>(&request, communicator),
        }
    })
}

/// A rank for each device.
fn ranks(devices: &[NamedDevice], nccl: bool) -> Result<Vec<Threads>> {
    let ranks = Threads::ranks(devices.len(), ThreadsOptions::default());
    if !nccl {
        return Ok(ranks);
    }
    let without = devices.iter().find(|device| !device.backend().is_some_and(Backend::has_collective));
    let name = without.map_or("", |device| device.name.as_str());
    ensure!(without.is_none(), Mistake(format!("--nccl is for NVIDIA GPUs, and `{name}` is none: leave it out")));
    let devices = devices.iter().map(|device| device.device.clone()).collect();
    let collective = Arc::new(DeviceCollective::new(devices, ThreadsOptions::default().timeout, end));
    Ok(ranks.into_iter().map(|rank| rank.with_collective(collective.clone())).collect())
}

/// Ends the program, which waits for devices that do not answer: once, whichever rank notices it first.
fn end(reason: &str) {
    static ENDS: Once = Once::new();
    ENDS.call_once(|| {
        output::note(format_args!("error: {reason}; go on by --resume"));
        quit(MACHINE.into())
    });
}

/// All devices, and the way their operations are computed.
fn places(devices: &[NamedDevice]) -> String {
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    let mut all = devices[0].clone();
    all.name = names.join(", ");
    place(&all)
}

/// Trains as a rank of which another one tells, and which has no checks of its own.
fn assist<T: Shown>(request: &RunRequest, communicator: Arc<dyn Communicator>) -> Result<()> {
    output::mute_thread();
    let run = Run::<T>::prepare_on(request, communicator)?;
    if !run.is_finished() {
        run.fit()?;
    }
    Ok(())
}

/// Does `work` as each of the ranks, on threads of their own: one that waits for others must not be of the pool that computes. An error is
/// that of the first rank, which is told of the others, if it has one.
fn on_threads(ranks: Vec<Threads>, work: impl Fn(Arc<dyn Communicator>) -> Result<()> + Sync) -> Result<()> {
    let ends: Vec<thread::Result<Result<()>>> = thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || run_rank(rank, work))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(Err)).collect()
    });
    ends.into_iter().try_for_each(|end| end.unwrap_or_else(|panic| resume_unwind(panic)))
}

/// Does the work of a rank. Where it fails or panics, the others learn why.
fn run_rank(rank: Threads, work: &impl Fn(Arc<dyn Communicator>) -> Result<()>) -> thread::Result<Result<()>> {
    let communicator: Arc<dyn Communicator> = Arc::new(rank);
    let end = panic::catch_unwind(AssertUnwindSafe(|| work(communicator.clone())));
    match &end {
        Ok(Ok(())) => {}
        Ok(Err(error)) => communicator.fail(&problems(error).join("; ")),
        Err(payload) => communicator.fail(&format!("internal failure: {}", panic_message(&**payload))),
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
    use firelight::device;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The message of two ranks of which the second one does this while the first one waits for it.
    fn told_of(second: impl Fn() -> Result<()> + Sync) -> String {
        let work = |communicator: Arc<dyn Communicator>| -> Result<()> {
            if communicator.rank() == 0 { Ok(communicator.barrier()?) } else { second() }
        };
        on_threads(Threads::ranks(2, ThreadsOptions::default()), work).unwrap_err().to_string()
    }

    #[test]
    fn the_first_rank_tells_of_an_error_or_panic_of_another_one() {
        assert_eq!(told_of(|| bail!("the disk is full")), "rank 1 has failed: the disk is full");
        let lost = told_of(|| panic!("device {} is lost", 3));
        assert_eq!(lost, "rank 1 has failed: internal failure: device 3 is lost");
    }

    #[test]
    fn every_rank_works_on_a_thread_of_its_own() {
        let sum = AtomicUsize::new(0);
        let work = |communicator: Arc<dyn Communicator>| -> Result<()> {
            sum.fetch_add(1 + communicator.rank(), Ordering::SeqCst);
            Ok(communicator.barrier()?)
        };
        on_threads(Threads::ranks(3, ThreadsOptions::default()), work).unwrap();
        assert_eq!(sum.into_inner(), 6);
    }

    #[test]
    fn all_devices_are_named_and_nccl_is_refused_without_a_gpu() {
        let devices = device::choose_several(&["cpu", "cpu"]).unwrap();
        let name = &devices[0].name;
        assert!(places(&devices).starts_with(&format!("{name}, {name}, ")), "{}", places(&devices));
        assert_eq!(ranks(&devices, false).unwrap().len(), 2);
        let error = ranks(&devices, true).map(drop).unwrap_err();
        assert_eq!(error.to_string(), format!("--nccl is for NVIDIA GPUs, and `{name}` is none: leave it out"));
    }
}
