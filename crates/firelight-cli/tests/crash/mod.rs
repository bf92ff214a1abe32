//! A training that is killed at any moment and resumed ends with the bytes of one that was left in peace.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{Model, command, finish, firelight, model, train};

/// Moments of a run at which it is killed, spread evenly over its time.
const MOMENTS: u32 = 20;

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
    "training.accumulate=2",
    "--set",
    "training.smoothing=0.9",
    "--seed=3",
];

fn arguments(out: &Path) -> Vec<String> {
    train(model(), out).into_iter().chain(BUSY.map(str::to_string)).collect()
}

/// The files that a run is about, and the numbers of its metrics that do not tell the time.
fn remains(out: &Path) -> Vec<(String, Vec<u8>)> {
    let files = ["model.safetensors", "checkpoints/best/model.safetensors", "checkpoints/best/state.json"];
    let last = ["model.safetensors", "smoothed.safetensors"].map(|name| format!("checkpoints/step-60/{name}"));
    let names = files.map(str::to_string).into_iter().chain(last);
    let mut remains: Vec<_> = names.map(|name| (name.clone(), fs::read(out.join(&name)).unwrap())).collect();
    let metrics = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let timeless = |line: &str| line.split(",\"tokens_per_second\"").next().unwrap_or(line).to_string();
    remains.push(("metrics.jsonl".into(), metrics.lines().map(timeless).collect::<Vec<_>>().join("\n").into_bytes()));
    remains
}

#[test]
fn a_run_killed_at_any_moment_resumes_to_the_same_bytes() {
    let scratch = Model::scratch();
    let peaceful = scratch.path().join("peaceful");
    let began = Instant::now();
    firelight(arguments(&peaceful)).succeeds();
    let duration = began.elapsed();
    let expected = remains(&peaceful);

    let mut cut_short = 0;
    for moment in 0..MOMENTS {
        let out = scratch.path().join(format!("killed-{moment}"));
        let mut run = command(arguments(&out)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(duration.mul_f64((f64::from(moment) + 0.5) / f64::from(MOMENTS)));
        run.kill().unwrap(); // SIGKILL
        cut_short += u32::from(!run.wait().unwrap().success());
        finish(command(arguments(&out))).succeeds();
        for ((name, found), (_, expected)) in remains(&out).iter().zip(&expected) {
            assert!(found == expected, "{name} differs after the kill at moment {moment} of {MOMENTS}");
        }
        fs::remove_dir_all(&out).unwrap();
    }
    assert!(cut_short >= MOMENTS / 2, "only {cut_short} of {MOMENTS} runs were still going when they were killed");
}

#[test]
fn a_run_killed_again_and_again_still_ends_well() {
    let scratch = Model::scratch();
    let [peaceful, killed] = ["peaceful", "killed"].map(|name| scratch.path().join(name));
    firelight(arguments(&peaceful)).succeeds();
    for moment in 1..6 {
        let mut run = command(arguments(&killed)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(150 * moment));
        run.kill().unwrap();
        run.wait().unwrap();
    }
    firelight(arguments(&killed)).succeeds();
    assert!(remains(&killed) == remains(&peaceful));
}

/// A limit on the size of files fails as a full disk does, in the middle of a write.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_stops_the_run_with_the_last_good_checkpoint() {
    let scratch = Model::scratch();
    let out = scratch.path().join("run");
    firelight(train(model(), &out).into_iter().chain(["--steps", "10"].map(str::to_string))).succeeds();
    let good = fs::read(out.join("checkpoints/step-10/model.safetensors")).unwrap();

    let mut shell = std::process::Command::new("sh");
    let script = "trap '' XFSZ; ulimit -f 16; exec \"$@\""; // blocks of 512 bytes; the signal would kill
    shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_firelight")]).args(train(model(), &out));
    shell.args(["--resume", "--steps", "20"]);
    let failed = finish(shell);
    let error = failed.stderr.lines().last().unwrap_or_default();
    assert!(failed.code == 1 && error.starts_with("error: cannot write the weights `"), "{}", failed.stderr);

    assert_eq!(fs::read(out.join("checkpoints/step-10/model.safetensors")).unwrap(), good);
    firelight(train(model(), &out).into_iter().chain(["--resume", "--steps", "20"].map(str::to_string))).succeeds();
    let weights = |dir: &Path| fs::read(dir.join("model.safetensors")).unwrap();
    assert!(weights(&out) == weights(&model().dir));
}
