//! Writes checkpoints beside the training: the weights of a step are shared, not copied, and a thread of its own brings
//! them to the disk while the next steps are taken. The run hands its jobs over here and learns of a failure at its next
//! step.

use std::panic::resume_unwind;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use crate::TrainingError;

/// Something to be written.
type Job = Box<dyn FnOnce() -> Result<(), TrainingError> + Send>;

/// Jobs that may wait while another is being written; each holds the weights of a step in memory.
const WAITING: usize = 1;

/// The priority of the writing thread: beside threads that use every core it gets about a tenth of one.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// A thread that does one job after the other and stops at the first that fails.
pub(crate) struct Writer {
    jobs: SyncSender<Job>,
    thread: JoinHandle<Result<(), TrainingError>>,
}

impl Writer {
    /// Starts the thread.
    pub(crate) fn start() -> Self {
        let (jobs, todo) = sync_channel::<Job>(WAITING);
        let thread = thread::spawn(move || {
            give_way();
            todo.into_iter().try_for_each(|job| job())
        });
        Self { jobs, thread }
    }

    /// Hands a job over, and waits only if another is waiting already. After a failure the job is dropped, because
    /// [`finish`](Self::finish) is going to tell.
    pub(crate) fn write(&self, job: impl FnOnce() -> Result<(), TrainingError> + Send + 'static) {
        let _ = self.jobs.send(Box::new(job));
    }

    /// Whether a job has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// Returns the error of the first job that failed; those after it were not begun.
    pub(crate) fn finish(self) -> Result<(), TrainingError> {
        drop(self.jobs);
        self.thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Lets the threads that train go first. Linux alone keeps a priority for each thread; where it refuses, writing is only ruder.
fn give_way() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, NICENESS);
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_storage::InputError;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    fn note(heard: &Arc<Mutex<Vec<u32>>>, number: u32) -> impl FnOnce() -> Result<(), TrainingError> + use<> {
        let heard = heard.clone();
        move || {
            heard.lock().unwrap().push(number);
            if number == 3 { Err(InputError::new("failed").into()) } else { Ok(()) }
        }
    }

    #[test]
    fn jobs_are_done_in_order_and_all_of_them() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let writer = Writer::start();
        [0, 1, 2, 4].into_iter().for_each(|number| writer.write(note(&heard, number)));
        writer.finish().unwrap();
        assert_eq!(*heard.lock().unwrap(), [0, 1, 2, 4]);
    }

    #[test]
    fn the_training_goes_on_while_a_job_waits() {
        let (heard, (go_on, gate)) = (Arc::new(Mutex::new(Vec::new())), sync_channel::<()>(1));
        let writer = Writer::start();
        let job = note(&heard, 1);
        writer.write(move || {
            let _ = gate.recv_timeout(Duration::from_secs(20)); // as a slow disk
            job()
        });
        assert!(heard.lock().unwrap().is_empty() && !writer.has_failed());
        go_on.send(()).unwrap();
        writer.finish().unwrap();
        assert_eq!(*heard.lock().unwrap(), [1]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_writer_alone_gives_way() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let (own, (sender, receiver)) = (niceness(), sync_channel(1));
        let writer = Writer::start();
        writer.write(move || {
            sender.send(niceness()).unwrap();
            Ok(())
        });
        assert_eq!(receiver.recv().unwrap(), NICENESS.max(own));
        writer.finish().unwrap();
        assert_eq!(niceness(), own);
    }

    #[test]
    fn a_failure_is_reported_and_ends_the_writing() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let writer = Writer::start();
        [1, 3, 5, 6, 7].into_iter().for_each(|number| writer.write(note(&heard, number)));
        while !writer.has_failed() {
            thread::yield_now();
        }
        assert!(matches!(writer.finish(), Err(TrainingError::Input(error)) if error == InputError::new("failed")));
        assert_eq!(*heard.lock().unwrap(), [1, 3]);
    }
}
