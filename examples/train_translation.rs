//! Trains an encoder-decoder on pairs and translates with it: dates as people write them become dates of ISO 8601.
//!
//! Command: cargo run --release -p firelight-examples --example train_translation -- [--toy]
//! Time: about a minute on two CPU cores, seconds with --toy.
//! Expect: every one of the last validation sources translated to the letter, and `2021-07-07` at the end.

use std::path::Path;

use anyhow::Result;
use burn::tensor::Device;
use firelight::seq2seq::{Interrupter, Run, RunRequest, Translator};
use firelight::storage::Checkpoint;
use firelight::training::{Observer, ProgressBar};

/// The settings of the built-in recipe that are changed for a look at it.
const TOY: [(&str, &str); 4] =
    [("training.steps", "10"), ("training.evaluate_every", "10"), ("data.toy_pairs", "600"), ("data.translated", "4")];

/// The command of the built-in recipe, in a folder, or in the next free one of `runs`.
fn request(device: &Device, out: Option<&Path>, toy: bool) -> RunRequest {
    let changes: &[(&str, &str)] = if toy { &TOY } else { &[] };
    let request = out.into_iter().fold(RunRequest::new(device), |request, out| request.with_out(out));
    changes.iter().fold(request, |request, (key, value)| request.with_override(key, value))
}

fn train(out: Option<&Path>, toy: bool, observers: Vec<Box<dyn Observer>>) -> Result<Vec<String>> {
    // Config and data: the recipe is read and its pairs are generated before anything is written.
    let device = firelight::device::select(None)?;
    let run = Run::prepare(&request(&device, out, toy))?;

    // Model.
    println!("training {} parameters in {}", run.cost().parameters, run.folder.path().display());

    // Fit: Burn's Learner under an observer; the folder fills on the way.
    let trained = run.fit_with(observers, Interrupter::new(), None)?;
    if let Some(best) = &trained.best {
        println!("best validation loss {:.4} nats per token, at step {}", best.loss, best.step);
    }

    // Show: load the model as any other program would.
    let translator = Translator::load_from(trained.folder.path(), &Checkpoint::Last, &device)?;
    Ok(translator.translate(&["3rd of March 1997", "7 July 2021"])?)
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(run)
}

fn run() -> Result<()> {
    let (toy, _) = firelight_examples::toy_and_words(0, "[--toy]")?;
    let found = train(None, toy, vec![Box::new(ProgressBar::new())])?;
    found.iter().for_each(|date| println!("{date}"));
    Ok(())
}

#[test]
fn trains_and_translates_at_toy_size() {
    let home = tempfile::tempdir().unwrap();
    assert_eq!(train(Some(&home.path().join("run")), true, Vec::new()).unwrap().len(), 2);
}
