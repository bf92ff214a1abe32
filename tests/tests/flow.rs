//! Whole routes: a text becomes tokens, a trained model, a run folder, and text again.

use std::fs;
use std::path::Path;

use burn::tensor::Device;
use firelight::data::{Tokenizer, TokenizerConfig};
use firelight::generation::GenerationOptions;
#[cfg(feature = "flex")]
use firelight::kernels::assert_close;
use firelight::language::{Language, Run, RunRequest, TextGenerator, TrainedRun};
use firelight::storage::{Checkpoint, Existing};
use firelight::training::{RecipeError, evaluate_run};
use tempfile::TempDir;

use crate::support::device;
#[cfg(feature = "flex")]
use crate::support::is_gpu;

/// The built-in recipe at toy size, on the device under test.
fn request(out: &Path) -> RunRequest {
    request_on(out, &device())
}

fn request_on(out: &Path, device: &Device) -> RunRequest {
    let overrides = [
        ("data.stories", "6000"),
        ("data.split.validation", "0.1"),
        ("model.d_model", "16"),
        ("model.n_heads", "2"),
        ("model.n_layers", "1"),
        ("model.max_seq_len", "16"),
        ("training.steps", "20"),
        ("training.batch_size", "4"),
        ("training.evaluate_every", "10"),
        ("training.checkpoint_every", "10"),
        ("optimizer.learning_rate", "0.01"),
        ("schedule.warmup_steps", "2"),
        ("schedule.steps", "20"),
    ];
    let overrides = overrides.map(|(key, value)| (key.to_string(), value.to_string())).to_vec();
    RunRequest { overrides, out: Some(out.into()), ..RunRequest::new(device) }
}

fn train(request: &RunRequest) -> TrainedRun {
    Run::prepare(request).unwrap().fit().unwrap()
}

fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_run_learns_saves_loads_and_writes() {
    let home = home();
    let run = train(&request(&home.path().join("run")));
    let first: serde_json::Value =
        serde_json::from_str(fs::read_to_string(run.folder.metrics()).unwrap().lines().next().unwrap()).unwrap();
    assert!(run.evaluation.unwrap().loss < first["loss"].as_f64().unwrap() - 0.3, "20 steps learn something");

    // The loaded model is the trained one, to the letter.
    let options = GenerationOptions::new(40).greedy();
    let trained = TextGenerator::new(run.model, run.corpus.tokenizer).generate("The ", &options).unwrap();
    let loaded = TextGenerator::load_from(run.folder.path(), &Checkpoint::Last, &device()).unwrap();
    assert_eq!(loaded.generate("The ", &options).unwrap(), trained);
    assert_eq!(trained.ids.len(), 40);

    // The cache changes no text, greedy or drawn, also beyond the context of 16.
    let drawn = GenerationOptions::new(40).with_seed(3);
    let cached = [&options, &drawn].map(|options| loaded.generate("The ", options).unwrap());
    let uncached = loaded.without_cache();
    assert_eq!(cached, [&options, &drawn].map(|options| uncached.generate("The ", options).unwrap()));
}

#[test]
fn the_evaluation_of_a_folder_is_the_one_of_its_run() {
    let home = home();
    let text = firelight::data::stories(1, 6000);
    let run = train(&request(&home.path().join("run")));
    let path = home.path().join("text.txt");
    std::fs::write(&path, &text).unwrap();
    let (folder, asked) = (run.folder.path(), Some((path.as_path(), None)));
    let found = evaluate_run::<Language>(folder, &Checkpoint::Last, asked, &(), &device()).unwrap();
    assert!((found.loss - run.evaluation.unwrap().loss).abs() < 1e-6);
    assert!((found.perplexity - found.loss.exp()).abs() < 1e-9);
    // A character tokenizer: bits per character are bits per token.
    assert!((found.bits_per_character - found.loss / 2f64.ln()).abs() < 1e-9);
    let validation = text.chars().count() - (text.chars().count() as f64 * 0.9).floor() as usize;
    assert_eq!(found.tokens as usize, validation - 1);
}

#[test]
fn one_seed_gives_one_file_and_resuming_gives_the_same() {
    let home = home();
    let bytes = |run: &TrainedRun| fs::read(run.folder.weights(&Checkpoint::Last).unwrap()).unwrap();
    let [first, second] = ["a", "b"].map(|name| bytes(&train(&request(&home.path().join(name)))));
    assert_eq!(first, second);

    let mut parts = request(&home.path().join("parts"));
    parts.overrides.push(("training.steps".into(), "10".into()));
    train(&parts);
    parts.overrides.pop();
    parts.existing = Existing::Resume;
    assert_eq!(bytes(&train(&parts)), first);
    parts.overrides.push(("model.n_layers".into(), "2".into()));
    let error = Run::prepare(&parts).unwrap_err();
    assert!(error.cause().is::<RecipeError>() && error.is_user_error(), "{error}");
    assert!(error.to_string().contains("model.n_layers was 1 and is 2"), "{error}");
}

/// Trains on flex and on `device`, without dropout, whose masks every backend draws in its own way.
#[cfg(feature = "flex")]
fn assert_losses_as_on_flex(device: &Device, tolerance: f64) {
    let flex = firelight::device::select(Some("flex")).unwrap();
    let [expected, found] = [&flex, device].map(losses);
    assert_eq!([expected.len(), found.len()], [20, 20]);
    assert_close(&found, &expected, tolerance);
}

#[cfg(feature = "flex")]
fn losses(device: &Device) -> Vec<f64> {
    let home = home();
    let mut request = request_on(&home.path().join("run"), device);
    request.overrides.push(("model.dropout".into(), "0.0".into()));
    let metrics = fs::read_to_string(train(&request).folder.metrics()).unwrap();
    let lines = metrics.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.filter_map(|line| line["loss"].as_f64()).collect()
}

#[cfg(all(feature = "flex", feature = "ndarray"))]
#[test]
fn first_losses_agree_across_backends() {
    assert_losses_as_on_flex(&firelight::device::select(Some("ndarray")).unwrap(), 1e-4);
}

#[cfg(feature = "flex")]
#[test]
fn first_losses_of_the_device_under_test_are_those_of_flex() {
    let device = device();
    // Twice on flex itself: one seed gives one training, to the bit.
    let tolerance = if device == Device::flex() { 0.0 } else { 1e-4 };
    assert_losses_as_on_flex(&device, if is_gpu() { 1e-3 } else { tolerance });
}

#[test]
fn every_tokenizer_trains_a_model() {
    let home = home();
    for (name, config) in [("byte", TokenizerConfig::Byte), ("bpe", TokenizerConfig::Bpe { vocab_size: 300 })] {
        let mut request = request(&home.path().join(name));
        request.overrides.push(("data.tokenizer".into(), config.to_string()));
        request.overrides.push(("training.steps".into(), "2".into()));
        let run = train(&request);
        assert_eq!(Tokenizer::load(run.folder.tokenizer()).unwrap().vocab_size(), run.model.vocab_size());
        let generator = TextGenerator::load_from(run.folder.path(), &Checkpoint::Best, &device()).unwrap();
        generator.generate("Once", &GenerationOptions::new(5)).unwrap();
    }
}

#[test]
fn mistakes_are_told_and_nothing_is_written() {
    let home = home();
    let out = home.path().join("run");
    let refuse = |change: &dyn Fn(&mut RunRequest)| {
        let mut request = request(&out);
        change(&mut request);
        let error = Run::prepare(&request).unwrap_err();
        assert!(error.is_user_error() && !out.exists(), "{error}");
        error.to_string()
    };
    let set = |key: &'static str, value: &'static str| {
        refuse(&move |request: &mut RunRequest| request.overrides.push((key.into(), value.into())))
    };
    assert!(set("model.d_model", "15").contains("d_model = 15 is not divisible by n_heads = 2"));
    assert!(set("model.max_seq_len", "5000").contains("too short"));
    assert!(set("model.d_modle", "16").contains("d_model"), "the nearest key");
    assert!(set("task", "vision").contains("vision"));
    let missing = home.path().join("missing.txt");
    assert!(refuse(&|request: &mut RunRequest| request.data = vec![missing.clone()]).contains("missing.txt"));
}
