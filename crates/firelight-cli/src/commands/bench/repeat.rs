//! One measurement for each of several values of an option, each in a process of its own: memory that an earlier one left behind would
//! hide what the next one takes, and a process has the threads of its start.

use std::env;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::failure::{Mistake, USER};

/// Leaves the headings out, which an earlier process has printed.
const NO_HEADINGS: &str = "--no-headings";

/// Calls this command again with each value of `option` alone.
///
/// # Errors
/// At the first one that fails.
pub(super) fn repeat(option: &str, values: &[u32]) -> Result<()> {
    let given: Vec<String> = env::args().skip(1).collect();
    values.iter().enumerate().try_for_each(|(index, &value)| {
        let arguments = with_one(&given, option, value, index > 0).with_context(|| format!("{option} was given"))?;
        let status = Command::new(env::current_exe()?).args(arguments).status()?;
        let failed = || format!("the measurement with {option} {value} failed");
        ensure!(status.code() != Some(USER.into()), Mistake(failed()));
        ensure!(status.success(), failed());
        Ok(())
    })
}

/// The arguments with one value in the place of all; none where the option is not among them.
fn with_one(given: &[String], option: &str, value: u32, follows_another: bool) -> Option<Vec<String>> {
    // Its alias is longer by a letter.
    let place = given.iter().position(|argument| argument.starts_with(option))?;
    let end = if given[place].contains('=') { place + 1 } else { place + 2 };
    let mut arguments = given.to_vec();
    arguments.splice(place..end.min(given.len()), [format!("{option}={value}")]);
    if follows_another && !given.iter().any(|argument| argument == NO_HEADINGS) {
        arguments.push(NO_HEADINGS.into());
    }
    Some(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(line: &str, option: &str, follows_another: bool) -> Option<String> {
        let given: Vec<String> = line.split(' ').map(str::to_string).collect();
        with_one(&given, option, 4, follows_another).map(|arguments| arguments.join(" "))
    }

    #[test]
    fn one_value_stands_where_all_of_them_stood() {
        let one = Some("bench decode --threads=4 --json".to_string());
        assert_eq!(called("bench decode --threads 1,4 --json", "--threads", false), one);
        assert_eq!(called("bench decode --threads=1,4 --json", "--threads", false), one);
        assert_eq!(
            called("bench attention --lengths 8,4", "--length", false),
            Some("bench attention --length=4".into())
        );
        assert_eq!(called("bench decode", "--threads", false), None);
    }

    #[test]
    fn headings_are_left_out_once() {
        let next = Some("bench decode --threads=4 --no-headings".to_string());
        assert_eq!(called("bench decode --threads 1,4", "--threads", true), next);
        let line = "bench attention --length 4,8 --threads=4 --no-headings";
        assert_eq!(called(line, "--length", true), Some("bench attention --length=4 --threads=4 --no-headings".into()));
    }
}
