//! Readers of the files of a run folder: as a model that generates, and as a training that is resumed.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use burn::tensor::Device;
use firelight::generation::GenerationOptions;
use firelight::language::{Run, RunRequest, TextGenerator};
use firelight::storage::{Checkpoint, Existing, ModelFolder};
use firelight::training::{MetricsLog, Report};
use tempfile::TempDir;

use super::{Names, Reader, text_of};

pub(super) fn readers() -> Vec<Reader> {
    vec![
        of_model("run-config", "run/config.json"),
        of_model("run-tokenizer", "run/tokenizer.json"),
        of_model("run-weights", "run/model.safetensors"),
        of_training("run-recipe", "run/recipe.toml", Names::Anything),
        of_training("run-tokens", "run/data.tokens", Names::Anything),
        of_training("run-state", "run/checkpoints/step-20/state.json", Names::File),
        of_training("run-moments", "run/checkpoints/step-20/optimizer.bpk", Names::File),
        Reader { name: "run-ema", file: EMA, valid: copied, read: go_on, names: Names::File },
        Reader { name: "run-metrics", file: METRICS, valid: copied, read: go_on_with_metrics, names: Names::File },
        Reader { name: "run-sessions", file: SESSIONS, valid: copied, read: report, names: Names::File },
    ]
}

fn of_model(name: &'static str, file: &'static str) -> Reader {
    Reader { name, file, valid: copied, read: generate, names: Names::File }
}

fn of_training(name: &'static str, file: &'static str, names: Names) -> Reader {
    Reader { name, file, valid: copied, read: resume, names }
}

const METRICS: &str = "run/metrics.jsonl";
const SESSIONS: &str = "run/sessions.json";
const EMA: &str = "run/checkpoints/step-20/ema.safetensors";

/// The steps of the run.
const STEPS: usize = 20;

/// A run with one checkpoint, so that none is there to fall back on, trained once in a process.
fn trained() -> &'static Path {
    static HOME: OnceLock<TempDir> = OnceLock::new();
    let home = HOME.get_or_init(|| {
        let home = tempfile::tempdir().expect("a scratch folder");
        let mut request = RunRequest::new(&Device::flex()).with_out(home.path().join("run"));
        let settings = [
            ("data.stories", "3000"),
            ("model.d_model", "8"),
            ("model.n_heads", "2"),
            ("model.n_layers", "1"),
            ("model.max_seq_len", "8"),
            ("training.steps", "20"),
            ("training.batch_size", "2"),
            ("training.evaluate_every", "10"),
            ("training.checkpoint_every", "10"),
            ("training.keep_checkpoints", "1"),
            ("training.ema_decay", "0.5"),
            ("schedule.warmup_steps", "2"),
            ("schedule.steps", "20"),
        ];
        settings.iter().for_each(|(key, value)| request.overrides.push((key.to_string(), value.to_string())));
        Run::prepare(&request).and_then(Run::fit).expect("a run of 20 steps");
        home
    });
    home.path()
}

/// A copy of the run; its own files are the valid ones.
fn copied(home: &Path) -> Vec<Vec<u8>> {
    copy(&trained().join("run"), &home.join("run"));
    Vec::new()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a scratch folder");
    for entry in fs::read_dir(from).expect("a folder of the run").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match from.is_dir() {
            true => copy(&from, &to),
            false => fs::copy(&from, &to).map(|_| ()).expect("a file of the run"),
        }
    }
}

/// Loads the last weights and writes three tokens.
fn generate(home: &Path) -> Result<(), String> {
    let generator = TextGenerator::load_from(home.join("run"), &Checkpoint::Last, &Device::flex());
    let generator = generator.map_err(|error| error.to_string())?;
    drop(generator.generate("The", &GenerationOptions::new(3).greedy())); // May lack a character, or find damaged weights.
    Ok(())
}

/// Everything that a resumed training reads before it begins.
fn resume(home: &Path) -> Result<(), String> {
    text_of(Run::prepare(&resumed(home)))
}

/// And what it reads as it begins, although no step is left.
fn go_on(home: &Path) -> Result<(), String> {
    text_of(Run::prepare(&resumed(home)).and_then(Run::fit))
}

fn resumed(home: &Path) -> RunRequest {
    RunRequest::new(&Device::flex()).with_out(home.join("run")).with_existing(Existing::Resume)
}

/// What a resumed training reads as it begins.
fn go_on_with_metrics(home: &Path) -> Result<(), String> {
    text_of(MetricsLog::resume(home.join(METRICS), STEPS))
}

/// What a report says of the sessions.
fn report(home: &Path) -> Result<(), String> {
    let folder = ModelFolder::open(home.join("run")).map_err(|error| error.to_string())?;
    text_of(Report::default().write(&folder))
}
