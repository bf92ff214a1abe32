//! Ctrl-C, and the signal with which other programs end this one: the training finishes its step, saves and says how to go
//! on. Whoever cannot wait asks twice.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use burn::train::Interrupter;

use crate::output;

/// What a shell expects of a program that was interrupted: 128 and the number of the signal.
pub(crate) const INTERRUPTED: i32 = 130;

/// Lets the next signal stop the training, and the one after it the program.
///
/// # Errors
/// If the system refuses the handler.
pub(crate) fn listen(interrupter: &Interrupter) -> Result<()> {
    let (asked, interrupter) = (AtomicBool::new(false), interrupter.clone());
    let stop = move || {
        if asked.swap(true, Ordering::SeqCst) {
            std::process::exit(INTERRUPTED);
        }
        output::note(format_args!("stopping after this step, then saving; press Ctrl-C again to quit now"));
        interrupter.stop(None);
    };
    ctrlc::set_handler(stop).context("cannot listen to Ctrl-C")
}
