//! The command as a user meets it: what each command prints where, and one clear line with the right exit code for every
//! mistake there is.

mod adapting;
mod answering;
mod attention;
mod average;
mod bench;
mod browser;
mod captioning;
mod chat;
mod classification;
mod crash;
mod devices;
mod evaluate;
mod experiments;
mod explain;
mod generate;
mod heads;
mod inspect;
#[cfg(unix)]
mod interruption;
mod loading;
mod manual;
mod published;
mod quantize;
mod ranks;
mod recipe;
mod report;
mod resume;
mod scoring;
mod support;
mod tagging;
mod train;
mod translation;
mod vision;
mod visualize;

use support::firelight;

/// The exit code of a mistake that the user can mend.
const USER: i32 = 2;
/// The exit code of everything else that goes wrong.
const MACHINE: i32 = 1;

#[test]
fn misspelt_and_missing_arguments_are_one_line_too() {
    firelight(["train", "--stepz", "3"]).fails(USER, &["'--stepz'", "'--steps'", "`firelight train --help`"]);
    firelight(["train", "--resume"]).fails(USER, &["--out <DIR>"]);
    for number in ["many", "-1"] {
        let texts = [&format!("'{number}'"), "--steps", "expected a whole number of at least 0"];
        firelight(["train", "--steps", number]).fails(USER, &texts);
    }
    firelight(["visualize"]).fails(USER, &["requires a subcommand", "schedule", "`firelight visualize --help`"]);
    firelight(["generate", "run", "--greedy", "--top-k", "5"]).fails(USER, &["'--greedy'", "'--top-k <N>'"]);
}
