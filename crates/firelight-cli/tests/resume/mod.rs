//! A run that was stopped goes on as if it had not been, and what cannot go on is refused and left as it was.

use std::fs;
use std::path::Path;

use crate::USER;
use crate::support::{Finished, Model, contents, firelight, model, text, train};

#[test]
fn a_resumed_run_ends_with_the_bytes_of_an_uninterrupted_one() {
    let scratch = Model::scratch();
    let run = |more: &[&str]| {
        let args = train(model(), scratch.path());
        firelight(args.into_iter().chain(more.iter().map(|arg| arg.to_string()))).succeeds()
    };
    run(&["--steps", "10"]);
    let resumed = run(&["--resume", "--steps", "20"]);
    assert!(resumed.stderr.contains("from step 10 to 20"), "{}", resumed.stderr);
    let file = |dir: &Path, name: &str| fs::read(dir.join(name)).unwrap();
    for name in ["model.safetensors", "recipe.toml"] {
        assert!(file(scratch.path(), name) == file(&model().dir, name), "{name}");
    }
}

#[test]
fn there_must_be_a_run_to_resume_unless_the_command_could_begin_one() {
    let scratch = Model::scratch();
    let out = scratch.path().join("run");
    firelight(["train", "--resume", "--out", &text(&out)]).fails(USER, &["no run to resume"]);
    assert!(!out.exists());
    let resume = || firelight(train(model(), &out).into_iter().chain(["--resume".to_string()])).succeeds();
    assert!(resume().stderr.contains("from step 0 to 20"));
    let before = contents(&out);
    let again = resume();
    assert!(again.stderr.contains("is finished after 20 steps, best ") && again.stdout.is_empty(), "{}", again.stderr);
    assert!(contents(&out) == before);
}

#[test]
fn a_run_that_was_stopped_while_its_folder_was_filled_begins_again() {
    let copy = model().copy();
    for name in ["config.json", "model.safetensors", "metrics.jsonl", "tokenizer.json"] {
        fs::remove_file(copy.path().join(name)).unwrap();
    }
    fs::remove_dir_all(copy.path().join("checkpoints")).unwrap();
    firelight(["train", "--resume", "--out", &text(copy.path())]).fails(USER, &["--data FILE"]);
    let resumed = firelight(train(model(), copy.path()).into_iter().chain(["--resume".to_string()])).succeeds();
    assert!(resumed.stderr.contains("from step 0 to 20"), "{}", resumed.stderr);
    let weights = |dir: &Path| fs::read(dir.join("model.safetensors")).unwrap();
    assert!(weights(copy.path()) == weights(&model().dir));
}

#[test]
fn a_run_without_checkpoints_begins_again_to_the_same_bytes() {
    let copy = model().copy();
    fs::remove_dir_all(copy.path().join("checkpoints")).unwrap();
    let resumed = firelight(["train", "--resume", "--out", &text(copy.path())]).succeeds();
    assert!(resumed.stderr.contains("from step 0 to 20"), "{}", resumed.stderr);
    let weights = |dir: &Path, name: &str| fs::read(dir.join(name)).unwrap();
    for name in ["model.safetensors", "checkpoints/best/model.safetensors", "checkpoints/step-20/model.safetensors"] {
        assert!(weights(copy.path(), name) == weights(&model().dir, name), "{name}");
    }
}

/// Resumes a copy of the run for ten steps more.
fn resume(copy: &Path, more: &[&str]) -> Finished {
    let args = ["train", "--resume", "--out", &text(copy), "--steps", "30"].map(str::to_string);
    firelight(args.into_iter().chain(more.iter().map(|arg| arg.to_string())))
}

#[test]
fn a_damaged_newest_checkpoint_is_reported_and_the_one_before_it_resumed() {
    let copy = model().copy();
    let optimizer = copy.path().join("checkpoints/step-20/optimizer.bpk");
    let whole = fs::read(&optimizer).unwrap();
    fs::write(&optimizer, &whole[..whole.len() / 2]).unwrap();
    let resumed = resume(copy.path(), &[]).succeeds();
    for text in ["warn: passing over the checkpoint of step 20: ", "optimizer.bpk", "from step 10 to 30"] {
        assert!(resumed.stderr.contains(text), "`{text}` is not in {}", resumed.stderr);
    }
}

#[test]
fn a_checkpoint_of_another_model_or_other_data_is_refused_and_nothing_changed() {
    let (copy, other) = (model().copy(), Model::scratch());
    let wider = ["--steps", "1", "--set", "model.d_ff=24"].map(str::to_string);
    firelight(train(model(), &other.path().join("run")).into_iter().chain(wider)).succeeds();
    let weights = copy.path().join("checkpoints/step-20/model.safetensors");
    fs::copy(other.path().join("run/model.safetensors"), weights).unwrap();
    let before = contents(copy.path());
    resume(copy.path(), &[]).fails(USER, &["step-20/model.safetensors", "[16, 32]", "[16, 24]"]);
    assert!(contents(copy.path()) == before);

    let copy = model().copy();
    let (before, data) = (contents(copy.path()), other.path().join("other.txt"));
    // The second word has a character that the tokenizer of the run does not know.
    for word in ["fox", "\u{17b}uk"] {
        fs::write(&data, fs::read_to_string(&model().text).unwrap().replace("hen", word)).unwrap();
        resume(copy.path(), &["--data", &text(&data)]).fails(USER, &["`--data` is not what the run began with"]);
        assert!(contents(copy.path()) == before);
    }
}

#[test]
fn a_configuration_that_is_not_the_one_of_the_recipe_is_refused_and_nothing_changed() {
    let copy = model().copy();
    let config = copy.path().join("config.json");
    fs::write(&config, fs::read_to_string(&config).unwrap().replace("\"d_ff\": 32", "\"d_ff\": 24")).unwrap();
    let before = contents(copy.path());
    resume(copy.path(), &[]).fails(USER, &["`model` is not what the run began with"]);
    assert!(contents(copy.path()) == before);
}

#[test]
fn metrics_that_cannot_be_read_stop_a_resumed_run_before_it_changes_anything() {
    let copy = model().copy();
    let metrics = copy.path().join("metrics.jsonl");
    fs::write(&metrics, fs::read_to_string(&metrics).unwrap().replacen("{\"step\":2,", "{\"stop\":2,", 1)).unwrap();
    let before = contents(copy.path());
    let resumed = resume(copy.path(), &[]);
    let error = resumed.stderr.lines().last().unwrap_or_default();
    let expected = "metrics.jsonl` is damaged: line 2 is no JSON object with a `step`";
    assert!(resumed.code == USER && error.starts_with("error: ") && error.contains(expected), "{}", resumed.stderr);
    assert!(contents(copy.path()) == before);
}

#[test]
fn missing_metrics_are_reported_and_stop_no_resumed_run() {
    let copy = model().copy();
    fs::write(copy.path().join("metrics.jsonl"), "").unwrap();
    let said = resume(copy.path(), &[]).succeeds().stderr;
    let is_warned = |line: &str| line.starts_with("warn: ") && line.contains("metrics.jsonl` has 0 of the 20 steps");
    assert!(said.lines().any(is_warned), "{said}");
}

#[test]
fn what_a_resumed_run_may_not_change_is_named() {
    let copy = model().copy();
    let before = contents(copy.path());
    let more = ["--resume", "--steps", "30", "--set", "model.d_ff=24", "--seed", "9"].map(str::to_string);
    let finished = firelight(train(model(), copy.path()).into_iter().chain(more));
    finished.fails(USER, &["model.d_ff was 32 and is 24", "seed was 1 and is 9", "may change training.steps"]);
    assert!(contents(copy.path()) == before);
}

#[test]
fn a_folder_in_use_is_left_alone() {
    let copy = model().copy();
    let lock = fs::OpenOptions::new().write(true).create(true).truncate(false).open(copy.path().join(".lock")).unwrap();
    lock.lock().unwrap();
    let resume = ["--resume", "--steps", "30"].map(str::to_string);
    firelight(train(model(), copy.path()).into_iter().chain(resume)).fails(USER, &["in use by another process"]);
    drop(lock);
}
