//! The two channels of the command: results on stdout, remarks on stderr. Neither panics when its reader is gone.

use std::cell::Cell;
use std::fmt::Arguments;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use firelight::training::wrapped;
use indicatif::{ProgressBar, ProgressStyle};
use log::{LevelFilter, Log, Metadata, Record};

/// Terminals of fewer columns are not worth wrapping for, and some say that they have none.
#[cfg(unix)]
const NARROWEST: usize = 20;

/// Whether another rank speaks for this one.
static MUTE: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether another thread speaks for this one.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Says nothing from now on that is said on this thread.
pub(crate) fn mute_thread() {
    QUIET.set(true);
}

/// Says nothing from now on, or says again what there is to say.
pub(crate) fn mute(mute: bool) {
    MUTE.store(mute, Ordering::SeqCst);
}

pub(crate) fn is_mute() -> bool {
    MUTE.load(Ordering::SeqCst) || QUIET.get()
}

/// Writes a result to stdout at once.
///
/// # Errors
/// The pipe is closed or the disk is full.
pub(crate) fn print(text: &str) -> io::Result<()> {
    if is_mute() {
        return Ok(());
    }
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| io::Error::new(error.kind(), format!("cannot write to the standard output: {error}")))
}

/// Writes a remark to stderr, wrapped by words where that is a terminal; nobody may be listening.
pub(crate) fn note(remark: Arguments) {
    if is_mute() {
        return;
    }
    let remark = match width() {
        Some(width) => wrapped(&remark.to_string(), width),
        None => remark.to_string(),
    };
    let _ = writeln!(io::stderr().lock(), "{remark}");
}

/// Whether results on stdout may have colours: where it is a terminal and `NO_COLOR` is not set.
pub(crate) fn has_colours() -> bool {
    io::stdout().is_terminal() && is_colour_welcome()
}

fn is_colour_welcome() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes a remark beside the results to stderr, dim where that is a terminal and `NO_COLOR` is not set.
pub(crate) fn aside(remark: Arguments) {
    let is_dim = io::stderr().is_terminal() && is_colour_welcome();
    let (dim, plain) = if is_dim { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
    let _ = writeln!(io::stderr().lock(), "{dim}{remark}{plain}");
}

/// The columns of the terminal that stderr is; none if it is no terminal.
fn width() -> Option<usize> {
    columns_of(&io::stderr())
}

/// The columns of the terminal that stdout is; none if it is no terminal.
pub(crate) fn columns() -> Option<usize> {
    columns_of(&io::stdout())
}

#[cfg(unix)]
fn columns_of(stream: &impl std::os::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|&columns| columns >= NARROWEST)
}

/// Elsewhere the terminal breaks lines as it likes.
#[cfg(not(unix))]
fn columns_of<S>(_stream: &S) -> Option<usize> {
    None
}

/// A line on stderr that counts the lines that are done; nothing where stderr is no terminal.
pub(crate) fn progress() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {human_pos} lines, {per_sec}");
    ProgressBar::no_length().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

/// Shows the warnings of Firelight's own crates, which never print themselves; all that they say if `verbose`.
pub(crate) fn log(verbose: bool) {
    if log::set_logger(&Remarks).is_ok() {
        log::set_max_level(if verbose { LevelFilter::Debug } else { LevelFilter::Warn });
    }
}

struct Remarks;

impl Log for Remarks {
    fn enabled(&self, metadata: &Metadata) -> bool {
        metadata.target().starts_with("firelight")
    }

    fn log(&self, record: &Record) {
        if self.enabled(record.metadata()) {
            note(format_args!("{}: {}", record.level().as_str().to_lowercase(), record.args()));
        }
    }

    fn flush(&self) {}
}
