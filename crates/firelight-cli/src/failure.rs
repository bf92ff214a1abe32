//! Turns everything that can go wrong into a line on stderr for each problem and an exit code: 2 for the user's mistake, 1
//! for the machine's. `main` runs the commands through [`report`].

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

use anyhow::Error;
use clap::CommandFactory;
use firelight::data::{DataError, ImageError};
use firelight::device::DeviceError;
use firelight::generation::GenerationError;
use firelight::storage::{InputError, StorageError, TaskError};
use firelight::training::{RecipeError, TrainingError};
use firelight_mpi::MpiError;

use crate::fields::with_options;
use crate::{Cli, output, ranks};

const SUCCESS: u8 = 0;
pub(crate) const MACHINE: u8 = 1;
pub(crate) const USER: u8 = 2;

/// A mistake of the user that only the command itself can see.
#[derive(Debug)]
pub(crate) struct Mistake(pub(crate) String);

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Mistake {}

/// Runs a command and reports its end to the user and to the shell.
pub(crate) fn report(command: impl FnOnce() -> Result<(), Error>) -> ExitCode {
    silence_panics();
    let code = match panic::catch_unwind(AssertUnwindSafe(command)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(error)) if is_closed_pipe(&error) => SUCCESS,
        Ok(Err(error)) => {
            ranks::fail(&problems(&error).join("; "));
            tell(&error);
            if is_user_error(&error) { USER } else { MACHINE }
        }
        Err(payload) => {
            let message = one_line(panic_message(&*payload));
            ranks::fail(&format!("internal failure: {message}"));
            output::note(format_args!("error: internal failure: {message} (RUST_BACKTRACE=full shows where)"));
            MACHINE
        }
    };
    ranks::end(code);
    ExitCode::from(code)
}

/// Tells what went wrong, a line for each problem.
pub(crate) fn tell(error: &Error) {
    problems(error).iter().for_each(|problem| output::note(format_args!("error: {problem}")));
}

/// A panic is a bug or a device that broke down; without being asked for, its backtrace helps nobody.
fn silence_panics() {
    if std::env::var("RUST_BACKTRACE").as_deref() != Ok("full") {
        panic::set_hook(Box::new(|_| {}));
    }
}

/// What a panic said.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// The reader of our output has seen enough, as `head` has after ten lines: no error.
pub(crate) fn is_closed_pipe(error: &Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Whether the user can mend it.
pub(crate) fn is_user_error(error: &Error) -> bool {
    let judgements = [
        error.downcast_ref::<clap::Error>().map(|_| true),
        error.downcast_ref::<Mistake>().map(|_| true),
        error.downcast_ref::<MpiError>().map(|_| true),
        error.downcast_ref::<TaskError>().map(TaskError::is_user_error),
        error.downcast_ref::<RecipeError>().map(RecipeError::is_user_error),
        error.downcast_ref::<TrainingError>().map(TrainingError::is_user_error),
        error.downcast_ref::<GenerationError>().map(GenerationError::is_user_error),
        error.downcast_ref::<DataError>().map(DataError::is_user_error),
        error.downcast_ref::<ImageError>().map(ImageError::is_user_error),
        error.downcast_ref::<StorageError>().map(StorageError::is_user_error),
        error.downcast_ref::<InputError>().map(|_| true),
        error.downcast_ref::<DeviceError>().map(DeviceError::is_user_error),
    ];
    judgements.into_iter().flatten().next().unwrap_or(false)
}

/// What went wrong, a line for each problem, with the options of the called command in the place of the library's fields.
pub(crate) fn problems(error: &Error) -> Vec<String> {
    let (command, words) = called(std::env::args_os().map(|word| word.to_string_lossy().into_owned()));
    match error.downcast_ref::<clap::Error>() {
        Some(usage) => vec![usage_message(&usage.to_string(), &words)],
        None => {
            let problems = firelight::problems(error.as_ref());
            problems.iter().map(|problem| with_options(&one_line(problem), &command)).collect()
        }
    }
}

/// What the parsers of Rust's numbers say, and what people read instead.
const NUMBERS: [(&str, &str); 3] = [
    ("invalid digit found in string", "expected a whole number of at least 0"),
    ("number too large to fit in target type", "expected a smaller number"),
    ("invalid float literal", "expected a number"),
];

/// What clap says about the arguments of a `command`, in one line and without its outline of the whole command.
fn usage_message(text: &str, command: &str) -> String {
    let lines = text.trim_start_matches("error: ").lines().map(str::trim);
    let said = lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let said: Vec<&str> = said.filter(|line| !line.is_empty()).collect();
    let said = said.join(" ").replace(" tip: ", "; ");
    let said = NUMBERS.iter().fold(said, |said, (theirs, ours)| said.replace(theirs, ours));
    format!("{said}; `{command} --help` lists the options")
}

/// The command that was called, and how, without what it was given: `firelight visualize schedule`.
fn called(arguments: impl IntoIterator<Item = String>) -> (clap::Command, String) {
    let root = Cli::command();
    let (mut command, mut words) = (&root, root.get_name().to_string());
    for word in arguments.into_iter().skip(1).filter(|word| !word.starts_with('-')) {
        let Some(found) = command.find_subcommand(&word) else { break };
        command = found;
        words = format!("{words} {}", found.get_name());
    }
    (command.clone(), words)
}

/// Messages of foreign libraries may span lines; ours never do.
fn one_line(message: &str) -> String {
    message.lines().map(str::trim).filter(|line| !line.is_empty()).take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_judges_whose_mistake_it_was() {
        let user = Error::new(firelight::device::select(Some("toaster")).unwrap_err());
        assert!(is_user_error(&user) && is_user_error(&Error::new(InputError::new(""))));
        let machine = Error::new(GenerationError::NonFiniteLogits { step: 0, row: 0 });
        assert!(!is_user_error(&machine));
        assert!(!is_user_error(&Error::msg("unknown")));
    }

    #[test]
    fn usage_errors_keep_their_tip_and_lose_the_outline() {
        let text = "error: unexpected argument '--stepz' found\n\n  tip: a similar argument exists: '--steps'\n\n\
                    Usage: firelight\n\nFor more information, try '--help'.\n";
        let expected = "unexpected argument '--stepz' found; a similar argument exists: '--steps'; `firelight train --help` lists the options";
        let words = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
        assert_eq!(usage_message(text, &called(words("firelight train dates inspect --stepz")).1), expected);
        assert_eq!(called(words("fl visualize schedule")).1, "firelight visualize schedule");
        assert_eq!(called(words("fl --stepz")).1, "firelight");
        assert_eq!(called(words("fl --verbose generate run")).1, "firelight generate");
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        assert!(is_closed_pipe(&Error::new(io::Error::from(io::ErrorKind::BrokenPipe))));
        assert!(!is_closed_pipe(&Error::new(io::Error::from(io::ErrorKind::StorageFull))));
    }

    #[test]
    fn panics_and_foreign_messages_become_one_line() {
        let payload = panic::catch_unwind(|| panic!("device {} is lost", 3)).unwrap_err();
        assert_eq!(panic_message(&*payload), "device 3 is lost");
        assert_eq!(one_line("driver failed:\n\n  out of memory\nstack backtrace:"), "driver failed: out of memory");
    }
}
