//! A model is trained: what a run leaves behind, what the options add to it, and which data and folders are refused.

use std::fs;
use std::path::Path;

use firelight::kernels::assert_close;
use serde_json::Value;

use crate::USER;
use crate::support::{Finished, Model, contents, evaluate, firelight, in_a_terminal, model, text, train, train_with};

/// Trains on these bytes as the data file.
fn train_on(bytes: &[u8]) -> Finished {
    let scratch = Model::scratch();
    let data = scratch.path().join("data.txt");
    fs::write(&data, bytes).unwrap();
    firelight(["train", &text(&model().recipe), "--data", &text(&data), "--out", &text(&scratch.path().join("run"))])
}

#[test]
fn one_seed_trains_the_same_bytes() {
    let scratch = Model::scratch();
    firelight(train(model(), scratch.path())).succeeds();
    let weights = |dir: &Path| fs::read(dir.join("model.safetensors")).unwrap();
    assert!(weights(scratch.path()) == weights(&model().dir));
}

#[test]
fn overrides_reach_the_recipe_of_the_run() {
    let scratch = Model::scratch();
    let more = ["--steps", "3", "--seed", "9", "--set", "model.d_ff=24"].map(str::to_string);
    firelight(train(model(), scratch.path()).into_iter().chain(more)).succeeds();
    let recipe = fs::read_to_string(scratch.path().join("recipe.toml")).unwrap();
    for line in ["steps = 3", "seed = 9", "d_ff = 24"] {
        assert!(recipe.lines().any(|found| found == line), "{line}: {recipe}");
    }
    let steps = fs::read_to_string(scratch.path().join("metrics.jsonl")).unwrap();
    assert_eq!(steps.lines().filter(|line| line.contains("\"gradient_norm\"")).count(), 3);
}

/// The training losses of a run.
fn losses(out: &Path) -> Vec<f64> {
    let metrics = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    metrics.lines().filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["loss"].as_f64()).collect()
}

#[test]
fn a_precision_of_the_recipe_is_what_the_model_computes_in() {
    let single = losses(&model().dir);
    for precision in ["bf16", "f16"] {
        let scratch = Model::scratch();
        let change = ["--set".to_string(), format!("training.precision={precision}")];
        let run = firelight(train(model(), scratch.path()).into_iter().chain(change));
        if std::env::var("BURN_DEVICE").is_ok_and(|device| device == "ndarray") {
            run.fails(USER, &["cannot compute in", precision]);
            continue;
        }
        run.succeeds();
        let half = losses(scratch.path());
        assert_eq!(half.len(), 20);
        assert_ne!(half[0], single[0], "{precision} was not computed in");
        assert_close(&half, &single, 0.1);
    }
}

#[test]
fn the_progress_is_a_line_for_every_evaluation_where_there_is_no_terminal() {
    let scratch = Model::scratch();
    let trained = firelight(train(model(), scratch.path())).succeeds();
    let is_evaluation = |line: &&str| line.starts_with("step ") && line.contains("validation loss ");
    let lines: Vec<&str> = trained.stderr.lines().filter(is_evaluation).collect();
    assert_eq!(lines.len(), 2, "{}", trained.stderr);
    for (line, place) in lines.iter().zip(["step 10/20, ", "step 20/20, "]) {
        let parts = [" left: loss ", "(smoothed ", "gradient ", "rate ", " tokens/s", "validation loss "];
        assert!(line.starts_with(place) && parts.iter().all(|part| line.contains(part)), "{line}");
    }
    assert!(trained.stderr.contains(" nats per token at step 20, best "), "{}", trained.stderr);
}

#[test]
fn without_a_terminal_every_fifty_steps_are_reported() {
    let trained = train_with(&["--steps", "120", "--set", "training.evaluate_every=0"]).succeeds();
    for step in [50, 100] {
        let is_reported = |line: &str| line.starts_with(&format!("step {step}/120, ")) && line.contains(" left: loss ");
        assert!(trained.stderr.lines().any(is_reported), "{step}: {}", trained.stderr);
    }
}

#[test]
fn tensorboard_finds_one_file_with_all_numbers() {
    let scratch = Model::scratch();
    firelight(train(model(), scratch.path()).into_iter().chain(["--tensorboard".to_string()])).succeeds();
    let files: Vec<_> =
        fs::read_dir(scratch.path().join("tensorboard")).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert!(files[0].file_name().unwrap().to_string_lossy().starts_with("events.out.tfevents."), "{files:?}");
    let bytes = fs::read(&files[0]).unwrap();
    let count = |tag: &str| bytes.windows(tag.len()).filter(|window| *window == tag.as_bytes()).count();
    assert_eq!(["training/loss", "training/gradient_norm", "validation/loss"].map(count), [20, 20, 2]);
    assert!(!model().dir.join("tensorboard").exists(), "it was not asked for");
}

#[test]
fn the_dashboard_takes_the_whole_screen_of_a_terminal_and_gives_it_back() {
    let scratch = Model::scratch();
    // Long enough for the dashboard, which draws itself ten times a second.
    let more = ["--tui", "--steps", "500"].map(str::to_string);
    let Some(screen) = in_a_terminal([train(model(), scratch.path()), more.into()].concat()) else { return };
    let [taken, given_back] = ["\u{1b}[?1049h", "\u{1b}[?1049l"].map(|code| screen.find(code).expect("the screen"));
    let shown = &screen[taken..given_back];
    assert!(shown.contains("Metrics") && shown.contains("Perplexity"), "{shown}");
    assert!(!shown.contains("2/1"), "no more epochs than there are: {shown}");
    assert!(screen[given_back..].contains("done after 500 steps"), "{screen}");
}

#[test]
fn a_dry_run_says_what_it_would_cost_and_leaves_nothing() {
    let scratch = Model::scratch();
    let out = scratch.path().join("run");
    let finished = firelight(train(model(), &out).into_iter().chain(["--dry-run".to_string()])).succeeds();
    assert!(
        ["parameters, ", "MFLOP per token", "FLOP in 20 steps", "MiB"]
            .iter()
            .all(|text| finished.stdout.contains(text)),
        "{}",
        finished.stdout
    );
    let (estimate, pace) = finished.stdout.split_once('\n').unwrap();
    assert!(pace.starts_with("time on ") && pace.contains(": about ") && pace.contains(", 20 steps of "), "{pace}");
    let trained = firelight(train(model(), &scratch.path().join("trained"))).succeeds();
    assert!(trained.stderr.contains(&format!("estimate: {estimate}\n")), "{}", trained.stderr);
    assert!(!out.exists());
    train_with(&["--dry-run", "--set", "model.n_heads=3"]).fails(USER, &["n_heads"]);
}

#[test]
fn a_self_check_tells_what_holds_and_changes_nothing() {
    let scratch = Model::scratch();
    let checked = firelight(train(model(), scratch.path()).into_iter().chain(["--self-check".to_string()])).succeeds();
    assert_eq!(checked.stderr.matches("self-check: ").count(), 4, "{}", checked.stderr);
    let weights = |dir: &Path| fs::read(dir.join("model.safetensors")).unwrap();
    assert!(weights(scratch.path()) == weights(&model().dir));
    let wild = train_with(&["--self-check", "--set", "model.init={weight={kind=\"normal\",std=3.0}}"]);
    assert!(wild.stderr.contains("initial loss ln V: FAILED"), "{}", wild.stderr);
    assert_ne!(wild.code, 0);
}

// Bad data.

#[test]
fn a_missing_data_file_is_named() {
    firelight(["train", &text(&model().recipe), "--data", "nowhere.txt"]).fails(USER, &["nowhere.txt"]);
    firelight(evaluate(&model().dir, Path::new("nowhere.txt"))).fails(USER, &["nowhere.txt"]);
    firelight(["train", &text(&model().recipe)]).fails(USER, &["tiny.toml", "--data FILE"]);
}

#[test]
fn an_empty_data_file_is_refused() {
    train_on(b"").fails(USER, &["data.txt", "empty"]);
}

#[test]
fn bytes_that_are_no_text_are_found() {
    train_on(b"good text\xFFand more").fails(USER, &["data.txt", "UTF-8", "offset 9"]);
}

#[test]
fn a_text_shorter_than_the_context_says_what_is_needed() {
    train_on(b"short").fails(USER, &["too short", "context of 8"]);
}

// Bad folders.

#[test]
fn an_existing_run_is_refused_and_left_as_it_was() {
    let copy = model().copy();
    let before = contents(copy.path());
    firelight(train(model(), copy.path())).fails(USER, &["--resume", "--force"]);
    assert!(contents(copy.path()) == before);
}

#[test]
fn force_replaces_a_run_but_no_foreign_folder() {
    let copy = model().copy();
    let force = |dir: &Path| firelight(train(model(), dir).into_iter().chain(["--force".to_string()]));
    force(copy.path()).succeeds();
    let foreign = Model::scratch();
    fs::write(foreign.path().join("thesis.tex"), "years of work").unwrap();
    force(foreign.path()).fails(USER, &["thesis.tex"]);
    assert!(foreign.path().join("thesis.tex").exists());
}

#[test]
fn a_mistake_costs_no_existing_run() {
    let copy = model().copy();
    let before = contents(copy.path());
    let more = ["--force", "--set", "model.n_heads=3"].map(str::to_string);
    firelight(train(model(), copy.path()).into_iter().chain(more)).fails(USER, &["n_heads"]);
    assert!(contents(copy.path()) == before);
}
