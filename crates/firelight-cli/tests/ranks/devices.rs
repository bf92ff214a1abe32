//! Devices of one process that train together.

use std::fs;
use std::path::Path;

use crate::USER;
use crate::support::{Finished, Model, firelight, model, timeless, train, train_with};

/// Four steps of two batches each.
const GROUPS: [&str; 4] = ["--steps", "4", "--set", "training.gradient_accumulation_steps=2"];

/// Trains the tiny model into a folder with these arguments more.
fn train_into(out: &Path, more: &[&str]) -> Finished {
    let more = GROUPS.iter().chain(more).map(|word| word.to_string());
    firelight(train(model(), out).into_iter().chain(more)).succeeds()
}

/// The model, which has dropout, and the numbers of its steps without their times.
fn left(out: &Path) -> (Vec<u8>, String) {
    let metrics = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    (fs::read(out.join("model.safetensors")).unwrap(), timeless(&metrics))
}

#[test]
fn several_devices_of_one_process_train_what_one_trains() {
    let scratch = Model::scratch();
    let [one, two] = ["one", "two"].map(|name| scratch.path().join(name));
    let alone = train_into(&one, &["--device", "cpu"]);
    let together = train_into(&two, &["--devices", "cpu,cpu"]);
    assert!(left(&one) == left(&two));
    assert_eq!(together.stdout, alone.stdout);
    assert_eq!(together.stderr.matches("training in ").count(), 1, "{}", together.stderr);
    assert!(together.stderr.contains(" on 2 ranks, "), "{}", together.stderr);
    assert!(!alone.stderr.contains("ranks"), "{}", alone.stderr);
}

#[test]
fn devices_that_cannot_train_together_are_refused_in_one_line() {
    let group = ["training.gradient_accumulation_steps = 1 cannot be shared by 2 ranks", "such as 2"];
    train_with(&["--devices", "cpu,cpu"]).fails(USER, &group);
    train_with(&["--devices", "cpu,toaster"]).fails(USER, &["`toaster` is unknown", "cuda[:INDEX]"]);
    train_with(&["--devices", "cpu,cpu", "--device", "cpu"]).fails(USER, &["'--devices <NAMES>'", "'--device <NAME>'"]);
    train_with(&["--devices", "cpu,cpu", "--nccl"]).fails(USER, &["--nccl is for NVIDIA GPUs"]);
    train_with(&["--nccl"]).fails(USER, &["--devices <NAMES>"]);
    let single = ["--devices names one, `cpu`", "name two or more", "leave --nccl out"];
    train_with(&["--devices", "cpu", "--nccl"]).fails(USER, &single);
    train_with(&["--devices", "cpu,cpu", "--tui"]).fails(USER, &["--tui draws on a terminal"]);
}
