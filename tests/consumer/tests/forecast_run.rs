//! A run of a task in three methods that Burn's datasets feed: stopped and resumed it ends in the bytes of one that was not.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs in a process of its own, since Burn draws initial weights from one generator for all threads: what it says, or its error.
fn run(folder: &Path, changes: &[&str]) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firelight-consumer"));
    let done = command.arg("run").arg(folder).args(changes).output().expect("the program");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    if done.status.success() { Ok(text(done.stdout)) } else { Err(text(done.stderr)) }
}

#[test]
fn a_task_of_three_methods_is_stopped_and_resumed_to_the_bit() {
    let home = tempfile::tempdir().expect("a folder");
    let [whole, parts] = ["whole", "parts"].map(|name| home.path().join(name));
    let recipe = [
        "training.evaluate_every=10",
        "schedule.steps=40",
        "schedule.warmup_steps=5",
        "data.training=100",
        "model.d_model=16",
    ];
    let run = |folder: &Path, steps: usize| {
        run(folder, &[&recipe[..], &[&format!("training.steps={steps}")]].concat()).expect("a training")
    };
    let said = run(&whole, 40);
    assert!(
        said.contains(" parameters, ") && said.contains("12 tokens a step") && said.ends_with("from step 0\n"),
        "{said}"
    );

    run(&parts, 15);
    let weights = |run: &Path| fs::read(run.join("model.safetensors")).expect("weights");
    assert!(weights(&whole) != weights(&parts));
    assert!(run(&parts, 40).ends_with("from step 15\n"));
    assert!(weights(&whole) == weights(&parts), "the weights of a run that was stopped are others");
    let page = fs::read_to_string(parts.join("report.html")).expect("a report");
    for text in ["encoder.blocks", "100 items to train on, 64 to validate on", "in 2 sessions"] {
        assert!(page.contains(text), "`{text}` is not in {page}");
    }
}

#[test]
fn its_recipe_and_its_data_are_checked_before_anything_is_written() {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("run");
    for (change, expected) in [
        ("model.d_modle=16", "d_model"),
        ("data.training=0", "the dataset is empty"),
        ("training.batch_size=0", "training.batch_size = 0 must be at least 1"),
    ] {
        let error = run(&folder, &[change]).expect_err("a mistake");
        assert!(error.contains(expected), "{error}");
    }
    assert!(!folder.join("config.json").exists());
}
