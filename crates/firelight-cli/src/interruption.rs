//! Ctrl-C, and the signal with which other programs end this one: the training finishes its step, saves and says how to go
//! on; an answer of a conversation ends, and the conversation goes on. Whoever cannot wait asks twice.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use burn::train::Interrupter;

use crate::output;

/// What a shell expects of a program that was interrupted: 128 and the number of the signal.
pub(crate) const INTERRUPTED: i32 = 130;

/// How long the end of the program may take.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// Lets the next signal stop the training, and the one after it the program.
///
/// # Errors
/// If the system refuses the handler.
pub(crate) fn listen(interrupter: &Interrupter) -> Result<()> {
    let (asked, interrupter) = (AtomicBool::new(false), interrupter.clone());
    let stop = move || {
        if asked.swap(true, Ordering::SeqCst) {
            quit(INTERRUPTED);
        }
        output::note(format_args!("stopping after this step, then saving; press Ctrl-C again to quit now"));
        interrupter.stop(None);
    };
    ctrlc::set_handler(stop).context("cannot listen to Ctrl-C")
}

/// Ends the program at once, even where what libraries do at its end waits for a thread that does not come back, as one of MPI or of
/// a GPU may.
pub(crate) fn quit(code: i32) -> ! {
    thread::spawn(|| {
        thread::sleep(LAST_MOMENT);
        process::abort();
    });
    process::exit(code)
}

/// Nothing is done that a signal could break off.
const IDLE: u8 = 0;
/// A signal breaks off what is done.
const BUSY: u8 = 1;
/// A signal came.
const ASKED: u8 = 2;

/// What a signal breaks off without ending the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breakable(Arc<AtomicU8>);

impl Breakable {
    /// Lets a signal break off what is done between [`begin`](Self::begin) and [`end`](Self::end). A second one ends the program, and so
    /// does one that finds nothing to break off.
    ///
    /// # Errors
    /// If the system refuses the handler.
    pub(crate) fn listen() -> Result<Self> {
        let breakable = Self::default();
        let (state, restore) = (breakable.0.clone(), restore_terminal());
        let stop = move || {
            if state.compare_exchange(BUSY, ASKED, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                restore();
                process::exit(INTERRUPTED);
            }
        };
        ctrlc::set_handler(stop).context("cannot listen to Ctrl-C")?;
        Ok(breakable)
    }

    pub(crate) fn begin(&self) {
        self.0.store(BUSY, Ordering::SeqCst);
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::SeqCst) == ASKED
    }

    pub(crate) fn end(&self) {
        self.0.store(IDLE, Ordering::SeqCst);
    }
}

/// Puts the terminal back as it is now, for a program that ends while a line is edited.
#[cfg(unix)]
fn restore_terminal() -> impl Fn() + Send + 'static {
    use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
    let now = tcgetattr(std::io::stdin()).ok();
    move || {
        let _ = now.as_ref().map(|now| tcsetattr(std::io::stdin(), OptionalActions::Now, now));
    }
}

/// Elsewhere the editor of lines leaves the terminal as it is.
#[cfg(not(unix))]
fn restore_terminal() -> impl Fn() + Send + 'static {
    || ()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_signal_breaks_off_what_is_done() {
        let breakable = Breakable::default();
        breakable.begin();
        assert!(!breakable.is_asked());
        assert!(breakable.0.compare_exchange(BUSY, ASKED, Ordering::SeqCst, Ordering::SeqCst).is_ok());
        assert!(breakable.is_asked());
        breakable.end();
        assert!(!breakable.is_asked());
    }
}
