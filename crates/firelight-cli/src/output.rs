//! The two channels of the command: results on stdout, remarks on stderr. Neither panics when its reader is gone.

use std::fmt::Arguments;
use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};
use log::{LevelFilter, Log, Metadata, Record};

/// Writes a result to stdout at once.
///
/// # Errors
/// The pipe is closed or the disk is full.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes a remark to stderr; nobody may be listening.
pub(crate) fn note(remark: Arguments) {
    let _ = writeln!(io::stderr().lock(), "{remark}");
}

/// A bar on stderr that counts the lines that are done; nothing where stderr is no terminal.
pub(crate) fn progress(lines: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} lines, {eta} left");
    ProgressBar::new(lines as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
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
