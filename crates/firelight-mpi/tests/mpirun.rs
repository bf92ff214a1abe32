//! Ranks that `mpirun` starts on this machine. Each test starts this program again, as ranks that do one of the cases below.

use std::env;
use std::process::{Command, Output, exit};
use std::thread::sleep;
use std::time::Duration;

use firelight_mpi::{Member, MpiOptions, join};
use firelight_training::{CommunicatorError, OrderedSum, from_bf16_bytes, to_bf16_bytes};

/// The variable that names the case.
const CASE: &str = "FIRELIGHT_MPI_CASE";

/// The exit code of a rank for which not all is as it should be.
const WRONG: i32 = 99;

/// A job that takes longer hangs, in seconds: `mpirun` ends it then.
const LONGEST: &str = "120";

/// How long ranks wait for one that is silent: more than they need to come on a machine that is busy.
const SILENT: Duration = Duration::from_secs(3);

/// How long `mpirun` has for what a rank has said before that rank ends all: it may drop what it has not forwarded.
const FORWARDING: Duration = Duration::from_millis(500);

/// What `world` ranks do in a case.
fn mpirun(world: usize, case: &str) -> Output {
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "--allow-run-as-root", "--timeout", LONGEST, "-n", &world.to_string()]);
    command.arg(env::current_exe().unwrap()).args(["--exact", "a_rank", "--nocapture", "--test-threads=1"]);
    command.env(CASE, case).output().expect("mpirun is installed")
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// Not a test of its own: what a rank does.
#[test]
fn a_rank() {
    let Ok(case) = env::var(CASE) else { return };
    let timeout = if case == "silent" { SILENT } else { Duration::from_secs(60) };
    let member = join(MpiOptions { timeout }).unwrap();
    match case.as_str() {
        "exchange" => exchange(&member),
        "failure" => failure(&member),
        "other operation" => other_operation(&member),
        "silent" => silent(&member),
        "killed" => killed(&member),
        "left" => left(&member),
        other => panic!("there is no case {other}"),
    }
    exit(0);
}

fn check(holds: bool, what: &str) {
    if !holds {
        eprintln!("wrong: {what}");
        exit(WRONG);
    }
}

/// What a rank hands over to a sum; the last digits differ from rank to rank.
fn numbers(rank: usize, length: usize) -> Vec<f32> {
    (0..length).map(|index| ((index * 7919 + rank * 104_729) % 10_007) as f32 / 3.0 - 1000.0).collect()
}

fn expected(world: usize, length: usize) -> Vec<f32> {
    let plus = |one: Vec<f32>, other: Vec<f32>| one.iter().zip(other).map(|(one, other)| one + other).collect();
    let mut sums = OrderedSum::of(world);
    (0..world).for_each(|rank| sums.add(numbers(rank, length), plus));
    sums.finish(plus).unwrap()
}

fn exchange(member: &Member) {
    let (ranks, rank, world) = (member.communicator(), member.rank(), member.world());
    for length in [0, 1, 3, 1000, 600_007] {
        let mut values = numbers(rank, length);
        ranks.sum_f32(&mut values).unwrap();
        let same = values.iter().zip(expected(world, length)).all(|(one, other)| one.to_bits() == other.to_bits());
        check(same, "a sum");
    }
    let mut halves = [1.0 + rank as f32 / 1000.0];
    ranks.sum_bf16(&mut halves).unwrap();
    let rounded = |number: f32| from_bf16_bytes(to_bf16_bytes(number));
    let mut sum = OrderedSum::of(world);
    (0..world).for_each(|rank| sum.add(rounded(1.0 + rank as f32 / 1000.0), |one, other| one + other));
    check(halves == [rounded(sum.finish(|one, other| one + other).unwrap())], "a sum in half the bytes");
    let mut sums = [0.5_f64, rank as f64];
    ranks.sum_f64(&mut sums).unwrap();
    check(sums == [0.5 * world as f64, (0..world).sum::<usize>() as f64], "a sum of doubles");
    let all = ranks.gather("names", vec![rank as u8; 100_000 * rank]).unwrap();
    check(all.iter().enumerate().all(|(rank, bytes)| *bytes == vec![rank as u8; 100_000 * rank]), "a gather");
    check(ranks.broadcast(world - 1, vec![rank as u8]).unwrap() == [world as u8 - 1], "a broadcast");
    ranks.barrier().unwrap();
    member.leave().unwrap();
}

fn failure(member: &Member) {
    let ranks = member.communicator();
    if member.rank() == 2 {
        ranks.fail("the disk is full");
        sleep(Duration::from_secs(60)); // until the first rank ends all
        exit(WRONG);
    }
    let reason = "the disk is full".to_string();
    let error = ranks.barrier().unwrap_err();
    check(error == CommunicatorError::Failed { rank: 2, reason }, &error.to_string());
    check(ranks.barrier().is_err() && ranks.sum_f32(&mut [1.0]).is_err(), "what comes after a failure");
    if member.rank() == 0 {
        eprintln!("error: {error}");
        sleep(FORWARDING);
        member.abort(7);
    }
    sleep(Duration::from_secs(60));
}

fn other_operation(member: &Member) {
    let operation = if member.rank() == 1 { "vote" } else { "step" };
    let error = member.communicator().gather(operation, Vec::new()).unwrap_err();
    let is_told = matches!(error, CommunicatorError::Mismatch { rank, .. } if (rank == 1) == (member.rank() != 1));
    check(is_told, &error.to_string());
    for lengths in [[4, 5], [4, 0], [0, 4]] {
        let mut values = vec![1.0; lengths[usize::from(member.rank() == 1)]];
        let error = member.communicator().sum_f32(&mut values).unwrap_err();
        check(error.to_string().contains("numbers as rank"), &error.to_string());
    }
    println!("rank {} is told", member.rank());
    member.leave().unwrap();
}

fn silent(member: &Member) {
    if member.rank() == 1 {
        sleep(Duration::from_secs(60));
        exit(WRONG);
    }
    let error = member.communicator().barrier().unwrap_err();
    let by_itself = matches!(&error, CommunicatorError::Timeout { missing, .. } if *missing == [1]);
    check(by_itself, &error.to_string());
    if member.rank() == 0 {
        eprintln!("error: {error}");
        sleep(FORWARDING);
        member.abort(8);
    }
    sleep(Duration::from_secs(60));
}

fn killed(member: &Member) {
    member.communicator().barrier().unwrap();
    if member.rank() == 2 {
        let _ = Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status();
    }
    let _ = member.communicator().barrier();
    sleep(Duration::from_secs(60));
}

fn left(member: &Member) {
    member.leave().unwrap();
    if member.rank() == 0 {
        sleep(Duration::from_millis(200)); // the others end meanwhile
        println!("written by the first rank");
    }
    member.abort(WRONG as u8); // there is nobody left to be ended
}

#[test]
fn sums_are_those_of_the_order_of_one_process_on_any_number_of_ranks() {
    for world in [2, 3, 4, 8] {
        let output = mpirun(world, "exchange");
        assert!(output.status.success(), "{world} ranks: {}", said(&output));
    }
}

#[test]
fn a_rank_that_fails_ends_all_with_one_line() {
    let output = mpirun(4, "failure");
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    assert_eq!(said(&output).matches("error: rank 2 has failed: the disk is full").count(), 1);
}

#[test]
fn a_rank_that_does_something_else_is_told() {
    let output = mpirun(3, "other operation");
    assert!(output.status.success(), "{}", said(&output));
    for rank in 0..3 {
        assert_eq!(said(&output).matches(&format!("rank {rank} is told")).count(), 1, "{}", said(&output));
    }
}

#[test]
fn a_rank_that_does_not_answer_is_named_after_the_timeout() {
    let output = mpirun(3, "silent");
    assert_eq!(output.status.code(), Some(8), "{}", said(&output));
    assert_eq!(said(&output).matches("error: rank 0 has waited 3 s in the barrier for rank 1;").count(), 1);
}

#[test]
fn a_rank_that_is_killed_ends_all() {
    let output = mpirun(4, "killed");
    assert!(!output.status.success() && said(&output).contains("signal 9 (Killed)"), "{}", said(&output));
}

#[test]
fn the_first_rank_goes_on_after_all_have_parted() {
    let output = mpirun(4, "left");
    assert!(output.status.success() && said(&output).contains("written by the first rank"), "{}", said(&output));
}
