//! Trains a classifier of texts and asks it: which of two shops does a customer mean?
//!
//! Command: cargo run --release -p firelight-examples --example train_classifier -- [--toy]
//! Time: seconds on two CPU cores.
//! Expect: accuracy 1 on the validation texts, then `bakery` and `florist`, both all but certain.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use firelight::classification::{Classifier, Interrupter, Prediction, Run, RunRequest};
use firelight::storage::Checkpoint;
use firelight::training::{Observer, ProgressBar};

/// What is asked for, by shop.
const GOODS: [(&str, [&str; 4]); 2] = [
    ("bakery", ["bread", "a cake", "two rolls", "rye loaves"]),
    ("florist", ["roses", "a tulip", "lilies", "some ivy"]),
];

/// How it is asked for.
const WISHES: [&str; 5] = ["I would like", "could I have", "do you still sell", "tomorrow I need", "please keep me"];

/// The settings of the built-in recipe that differ: the texts are few and short.
const SETTINGS: [(&str, &str); 8] = [
    ("data.tokenizer", "word:1"),
    ("data.split.validation", "8"),
    ("model.d_model", "32"),
    ("model.n_layers", "1"),
    ("model.dropout", "0.1"),
    ("training.batch_size", "8"),
    ("optimizer.learning_rate", "0.003"),
    ("schedule.warmup_steps", "10"),
];

/// Writes every wish for everything as `text TAB label`.
fn write_texts(folder: &Path) -> Result<PathBuf> {
    let path = folder.join("wishes.tsv");
    let wishes = WISHES.iter().flat_map(|wish| {
        let of_shop = |(shop, goods): &(&str, [&str; 4])| goods.map(|goods| format!("{wish} {goods}\t{shop}\n"));
        GOODS.iter().flat_map(of_shop).collect::<Vec<_>>()
    });
    fs::create_dir_all(folder)?;
    fs::write(&path, wishes.collect::<String>())?;
    Ok(path)
}

/// Writes the texts into `folder` and trains in `out`, or in the next free folder of `runs`.
fn train(
    folder: &Path,
    out: Option<&Path>,
    epochs: usize,
    observers: Vec<Box<dyn Observer>>,
) -> Result<Vec<Prediction>> {
    // Config and data: recipe and texts are read and split, all of it checked before anything is written.
    let device = firelight::device::select(None)?;
    let request = RunRequest::new(&device).with_data(write_texts(folder)?);
    let request = out.into_iter().fold(request, |request, out| request.with_out(out));
    let request = SETTINGS.iter().fold(request, |request, (key, value)| request.with_override(key, value));
    let run = Run::prepare(&request.with_override("training.epochs", epochs))?;

    // Model.
    println!("training {} parameters in {}", run.cost().parameters, run.folder.path().display());

    // Fit: Burn's Learner under an observer; the folder fills on the way.
    let trained = run.fit_with(observers, Interrupter::new(), None)?;
    if let Some(last) = &trained.evaluation {
        println!("validation loss {:.4} nats per text", last.loss);
    }

    // Show: load the model as any other program would.
    let classifier = Classifier::load_from(trained.folder.path(), &Checkpoint::Last, &device)?;
    Ok(classifier.classify(&["could I have two rolls", "please keep me roses"])?)
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(run)
}

fn run() -> Result<()> {
    let (toy, _) = firelight_examples::toy_and_words(0, "[--toy]")?;
    let epochs = if toy { 1 } else { 30 };
    let found = train(Path::new("runs/wishes"), None, epochs, vec![Box::new(ProgressBar::new())])?;
    for prediction in found {
        println!("{}: {:?}", prediction.labels().join(", "), prediction.probabilities());
    }
    Ok(())
}

#[test]
fn trains_and_classifies_at_toy_size() {
    let home = tempfile::tempdir().unwrap();
    let found = train(home.path(), Some(&home.path().join("run")), 30, Vec::new()).unwrap();
    assert_eq!([found[0].labels(), found[1].labels()], [["bakery"], ["florist"]]);
}
