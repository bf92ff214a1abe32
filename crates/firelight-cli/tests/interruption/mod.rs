//! Ctrl-C ends a training after the step that it does, and the run goes on from there.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use crate::support::{Model, command, firelight, model, text, train, train_with};

/// Interrupts a training as Ctrl-C does after a few steps, and returns how many it had done when it ended, and what it said.
fn interrupted(out: &Path, more: &[&str]) -> (usize, String) {
    let args = train(model(), out).into_iter().chain(more.iter().map(|arg| arg.to_string()));
    let mut child = command(args).stderr(Stdio::piped()).spawn().unwrap();
    let metrics = out.join("metrics.jsonl");
    while !fs::read_to_string(&metrics).is_ok_and(|text| text.lines().count() > 5) {
        assert!(child.try_wait().unwrap().is_none(), "the training ended before it was interrupted");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let interrupt = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{stderr}");
    let text = fs::read_to_string(&metrics).unwrap();
    (text.lines().filter(|line| line.contains("gradient_norm")).count(), stderr)
}

#[test]
fn epochs_are_counted_over_an_interruption() {
    let scratch = Model::scratch();
    let epochs = ["--set", "training.epochs=5"];
    let dry = train_with(&[&epochs[..], &["--dry-run"]].concat()).succeeds().stdout;
    let steps: usize = dry.split("FLOP in ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(steps > 100, "{dry}");
    let (done, _) = interrupted(scratch.path(), &epochs);
    let resumed = firelight(["train", "--resume", "--out", &text(scratch.path())]).succeeds();
    assert!(resumed.stderr.contains(&format!("from step {done} to {steps}")), "{}", resumed.stderr);
    assert!(resumed.stderr.contains(&format!("done after {steps} steps")), "{}", resumed.stderr);
    let metrics = fs::read_to_string(scratch.path().join("metrics.jsonl")).unwrap();
    assert_eq!(metrics.lines().filter(|line| line.contains("gradient_norm")).count(), steps);
}

#[test]
fn ctrl_c_stops_all_devices_of_the_process() {
    let scratch = Model::scratch();
    let long = ["--steps", "100000", "--set", "schedule.steps=20", "--set", "training.gradient_accumulation_steps=2"];
    let (done, stderr) = interrupted(scratch.path(), &[&long[..], &["--devices", "cpu,cpu"]].concat());
    assert!(stderr.contains(&format!("interrupted after {done} steps")), "{stderr}");
    let out = text(scratch.path());
    let resumed = firelight(["train", "--resume", "--out", &out, "--steps", &(done + 1).to_string()]);
    assert!(resumed.succeeds().stderr.contains(&format!("from step {done} to {}", done + 1)));
}

#[test]
fn ctrl_c_finishes_the_step_saves_and_says_how_to_go_on() {
    let scratch = Model::scratch();
    let long = ["--steps", "100000", "--set", "schedule.steps=20", "--set", "training.evaluate_every=3"];
    let (lines, stderr) = interrupted(scratch.path(), &long);
    let (out, evaluated) = (text(scratch.path()), lines - lines % 3);
    for said in [
        "stopping after this step, then saving; press Ctrl-C again to quit now\n".to_string(),
        format!("interrupted after {lines} steps: validation loss "),
        format!(" nats per token at step {evaluated}, best "),
        format!("resume with: firelight train --resume --out {out}\n"),
        format!("report with: firelight report {out}\n"),
    ] {
        assert!(stderr.contains(&said), "{said}: {stderr}");
    }
    let resumed = firelight(["train", "--resume", "--out", &text(scratch.path()), "--steps", &(lines + 5).to_string()]);
    assert!(resumed.succeeds().stderr.contains(&format!("from step {lines} to {}", lines + 5)));
}
