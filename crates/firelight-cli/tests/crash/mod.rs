//! A training that is killed at any moment and resumed ends with the bytes of one that was left in peace.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{Finished, Model, command, contents, finish, firelight, model, timeless, train};

/// Random moments of a run at which it is killed.
const MOMENTS: usize = 20;

/// Repeats the moments of an earlier test: the seed that it printed.
pub(super) const SEED: &str = "FIRELIGHT_CRASH_SEED";

/// Dropout and shuffling on, a moving average, two batches a step, and something to write after almost every step.
const BUSY: [&str; 14] = [
    "--resume",
    "--steps",
    "60",
    "--set",
    "schedule.steps=60",
    "--set",
    "training.evaluate_every=3",
    "--set",
    "training.checkpoint_every=2",
    "--set",
    "training.gradient_accumulation_steps=2",
    "--set",
    "training.ema_decay=0.9",
    "--seed=3",
];

fn arguments(out: &Path) -> Vec<String> {
    train(model(), out).into_iter().chain(BUSY.map(str::to_string)).collect()
}

/// The files that a run is about, and the numbers of its metrics that do not tell the time.
fn remains(out: &Path) -> Vec<(String, Vec<u8>)> {
    let files = ["model.safetensors", "checkpoints/best/model.safetensors", "checkpoints/best/state.json"];
    let last = ["model.safetensors", "ema.safetensors"].map(|name| format!("checkpoints/step-60/{name}"));
    let names = files.map(str::to_string).into_iter().chain(last);
    let mut remains: Vec<_> = names.map(|name| (name.clone(), fs::read(out.join(&name)).unwrap())).collect();
    let metrics = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    remains.push(("metrics.jsonl".into(), timeless(&metrics).into_bytes()));
    remains
}

/// Runs until it `is_time`, kills, and returns whether the run was still going: whether it was the signal that ended it. One
/// that ended before must have done so well.
fn killed_when(out: &Path, mut is_time: impl FnMut() -> bool) -> bool {
    let mut run = command(arguments(out)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while run.try_wait().unwrap().is_none() && !is_time() {
        std::thread::sleep(Duration::from_micros(100));
    }
    run.kill().unwrap(); // SIGKILL
    let status = run.wait().unwrap();
    assert!(status.success() || status.code().is_none(), "the run failed before it was killed: {status}");
    status.code().is_none()
}

/// How many steps the run in `out` has noted.
fn noted_steps(out: &Path) -> usize {
    let metrics = fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default();
    metrics.lines().filter(|line| line.contains("\"gradient_norm\"")).count()
}

/// Resumes the run in `out` to its end, and makes sure that nothing tells it from the `expected` one.
fn resumes_to(expected: &[(String, Vec<u8>)], out: &Path, killed: &str) {
    finish(command(arguments(out))).succeeds();
    for ((name, found), (_, expected)) in remains(out).iter().zip(expected) {
        assert!(found == expected, "{name} differs after the kill {killed}");
    }
    fs::remove_dir_all(out).unwrap();
}

/// The seed of an earlier test, or another one each time.
pub(super) fn seed() -> u64 {
    std::env::var(SEED).map_or_else(|_| RandomState::new().hash_one(MOMENTS), |seed| seed.parse().unwrap())
}

/// Numbers from 0 to 1 that a seed decides over: xorshift64 (Marsaglia 2003, Xorshift RNGs, §3).
pub(super) fn moments(seed: u64) -> impl Iterator<Item = f64> {
    let mut state = seed.max(1);
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    })
}

#[test]
fn a_run_killed_at_any_moment_resumes_to_the_same_bytes() {
    let scratch = Model::scratch();
    let peaceful = scratch.path().join("peaceful");
    let began = Instant::now();
    firelight(arguments(&peaceful)).succeeds();
    let mut duration = began.elapsed();
    let expected = remains(&peaceful);

    let seed = seed();
    eprintln!("the moments of the kills: {SEED}={seed}");
    let mut cut_short = 0;
    for moment in moments(seed).take(5 * MOMENTS) {
        let (out, began) = (scratch.path().join("killed"), Instant::now());
        match killed_when(&out, || began.elapsed() >= duration.mul_f64(moment)) {
            true => cut_short += 1,
            false => duration = duration.min(began.elapsed()), // The machine is less busy than it was.
        }
        resumes_to(&expected, &out, &format!("after {moment:.3} of its time ({SEED}={seed})"));
        if cut_short == MOMENTS {
            return;
        }
    }
    panic!("only {cut_short} runs were still going when they were killed");
}

#[test]
fn a_run_killed_while_it_writes_a_checkpoint_or_evaluates_resumes_to_the_same_bytes() {
    let scratch = Model::scratch();
    let [peaceful, out] = ["peaceful", "killed"].map(|name| scratch.path().join(name));
    firelight(arguments(&peaceful)).succeeds();
    let expected = remains(&peaceful);

    let is_staging = |name: &str| name.starts_with(".step-") && name.ends_with(".staging");
    let names = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let writes = || names(out.join("checkpoints")).any(|name| is_staging(&name.to_string_lossy()));
    assert!(killed_when(&out, writes), "no checkpoint was seen in the writing");
    resumes_to(&expected, &out, "in the midst of a checkpoint");

    // After every third step the run evaluates; here the line of step 33 is there, and that of its evaluation is not.
    let metrics = || fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default();
    assert!(killed_when(&out, || metrics().contains("{\"step\":33,")), "step 33 was not seen");
    resumes_to(&expected, &out, "in the midst of an evaluation");
}

#[test]
fn a_run_killed_again_and_again_still_ends_well() {
    let scratch = Model::scratch();
    let [peaceful, killed] = ["peaceful", "killed"].map(|name| scratch.path().join(name));
    firelight(arguments(&peaceful)).succeeds();
    for step in [5, 15, 25, 35, 45] {
        assert!(killed_when(&killed, || noted_steps(&killed) >= step), "the run had ended before step {step} was seen");
    }
    firelight(arguments(&killed)).succeeds();
    assert!(remains(&killed) == remains(&peaceful));
}

/// Runs the command with a limit on the size of files, which fails as a full disk does, in the middle of a write.
#[cfg(target_os = "linux")]
fn on_a_full_disk(args: impl IntoIterator<Item = String>) -> Finished {
    let mut shell = std::process::Command::new("sh");
    let script = "trap '' XFSZ; ulimit -f 16; exec \"$@\""; // blocks of 512 bytes; the signal would kill
    shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_firelight")]).args(args);
    finish(shell)
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_full_for_a_checkpoint_leaves_all_that_was_there() {
    let scratch = Model::scratch();
    let out = scratch.path().join("run");
    let with = |more: &[&str]| {
        let every = ["--set", "training.evaluate_every=0", "--set", "training.checkpoint_every=5"];
        let all = train(model(), &out).into_iter().chain(every.map(str::to_string));
        all.chain(more.iter().map(ToString::to_string)).collect::<Vec<_>>()
    };
    firelight(with(&["--steps", "10"])).succeeds();
    let kept = || ["checkpoints/step-10", "checkpoints/best"].map(|name| contents(&out.join(name)));
    let before = kept();

    let failed = on_a_full_disk(with(&["--resume", "--steps", "20"]));
    let error = failed.stderr.lines().last().unwrap_or_default();
    assert!(error.starts_with("error: cannot write the weights `") && error.contains("step-15"), "{}", failed.stderr);
    assert_eq!(failed.code, 1);
    assert!(before[0].len() >= 3 && kept() == before);
    assert!(!out.join("checkpoints/step-15").exists());
    firelight(with(&["--resume", "--steps", "20"])).succeeds();
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_stops_the_run_with_the_last_good_checkpoint() {
    let scratch = Model::scratch();
    let out = scratch.path().join("run");
    firelight(train(model(), &out).into_iter().chain(["--steps", "10"].map(str::to_string))).succeeds();
    let good = fs::read(out.join("checkpoints/step-10/model.safetensors")).unwrap();

    let failed =
        on_a_full_disk(train(model(), &out).into_iter().chain(["--resume", "--steps", "20"].map(str::to_string)));
    let error = failed.stderr.lines().last().unwrap_or_default();
    assert!(failed.code == 1 && error.starts_with("error: cannot write the weights `"), "{}", failed.stderr);

    assert_eq!(fs::read(out.join("checkpoints/step-10/model.safetensors")).unwrap(), good);
    firelight(train(model(), &out).into_iter().chain(["--resume", "--steps", "20"].map(str::to_string))).succeeds();
    let weights = |dir: &Path| fs::read(dir.join("model.safetensors")).unwrap();
    assert!(weights(&out) == weights(&model().dir));
}
