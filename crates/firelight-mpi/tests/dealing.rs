//! Lines that ranks of `mpirun` answer in turn. Each test starts this program again, as ranks that do one of the cases below.

use std::env;
use std::error::Error;
use std::process::{Command, Output, exit};
use std::thread::sleep;
use std::time::Duration;

use firelight_mpi::{Member, MpiOptions, join};
use firelight_training::{CommunicatorError, TrainingError, deal};

/// The variable that names the case.
const CASE: &str = "FIRELIGHT_DEALING_CASE";

/// Lines of the file, and of a block.
const LINES: usize = 23;
const BLOCK: usize = 2;

/// A job that takes longer hangs, in seconds: `mpirun` ends it then.
const LONGEST: &str = "120";

/// How long a slow rank is at work, and how long the others wait for one that is not heard: much longer than a rank is silent, on a machine
/// that is busy, too.
const SLOW: Duration = Duration::from_secs(6);
const SILENT: Duration = Duration::from_secs(5);

/// How long `mpirun` has for what a rank has said before that rank ends all: it may drop what it has not forwarded.
const FORWARDING: Duration = Duration::from_millis(500);

/// What `world` ranks do in a case.
fn mpirun(world: usize, case: &str) -> Output {
    let mut command = Command::new("mpirun");
    command.args(["-q", "--oversubscribe", "--allow-run-as-root", "--timeout", LONGEST, "-n", &world.to_string()]);
    command.arg(env::current_exe().unwrap()).args(["--exact", "a_rank", "--nocapture", "--test-threads=1"]);
    command.env(CASE, case).output().expect("mpirun is installed")
}

/// Not a test of its own: what a rank does.
#[test]
fn a_rank() {
    let Ok(case) = env::var(CASE) else { return };
    let timeout = if case == "slow" { SILENT } else { Duration::from_secs(60) };
    let member = join(MpiOptions { timeout }).unwrap();
    match work(&member, &case) {
        Ok(()) => {
            member.leave().unwrap();
            exit(0)
        }
        Err(error) if member.rank() == 0 => {
            eprintln!("error: {error}");
            sleep(FORWARDING);
            member.abort(7);
        }
        Err(_) => sleep(Duration::from_secs(60)), // until the first rank ends all
    }
}

fn work(member: &Member, case: &str) -> Result<(), Box<dyn Error>> {
    let mut place = 0;
    let other = case == "other file" && member.rank() == 1;
    let next = || {
        let block: Vec<String> = (place..LINES.min(place + BLOCK)).map(|line| text(line, other)).collect();
        let before = place;
        place += BLOCK;
        Ok((!block.is_empty()).then_some((before, block)))
    };
    let answer = |before: usize, lines: &[String]| {
        if case == "slow" && member.rank() == 1 && before == BLOCK {
            sleep(SLOW);
        }
        match case == "bad line" && before == 4 * BLOCK {
            true => {
                let reason = format!("line {} is bad", before + 1);
                Err(TrainingError::from(CommunicatorError::Failed { rank: member.rank(), reason }).into())
            }
            false => Ok(lines.iter().map(|line| format!("<{line}>\n")).collect::<String>()),
        }
    };
    let show = |answer: String| {
        print!("{answer}");
        Ok(())
    };
    deal(&*member.communicator(), next, answer, show)
}

/// A line of the file, or of one that differs in a line.
fn text(line: usize, other: bool) -> String {
    format!("line {}", if other && line == 5 { 99 } else { line })
}

/// The answers that were shown.
fn shown(output: &Output) -> Vec<String> {
    let stdout = String::from_utf8_lossy(&output.stdout);
    stdout.lines().filter_map(|line| Some(line[line.find('<')?..].to_string())).collect()
}

fn expected(lines: usize) -> Vec<String> {
    (0..lines).map(|line| format!("<{}>", text(line, false))).collect()
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

#[test]
fn the_first_rank_shows_all_answers_in_order() {
    for (world, case) in [(2, "all"), (3, "all"), (5, "all"), (2, "slow")] {
        let output = mpirun(world, case);
        assert!(output.status.success(), "{world} ranks, {case}: {}", said(&output));
        assert_eq!(shown(&output), expected(LINES), "{world} ranks, {case}");
    }
}

#[test]
fn a_bad_line_ends_all_after_the_answers_before_it() {
    let output = mpirun(3, "bad line");
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    assert_eq!(said(&output).matches("has failed: line 9 is bad").count(), 1);
    assert_eq!(shown(&output), expected(4 * BLOCK));
}

#[test]
fn a_rank_with_another_file_is_told() {
    let output = mpirun(2, "other file");
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    assert_eq!(said(&output).matches("rank 1 does not read what rank 0 does, from line 5 on").count(), 1);
    assert_eq!(shown(&output), expected(2 * BLOCK));
}
