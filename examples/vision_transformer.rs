//! Trains a vision transformer on a folder of images, or on digits that it draws itself, and asks it for the images that it was not
//! trained on.
//!
//! Command: cargo run --release -p firelight-examples --example vision_transformer -- [DIR] [--toy]
//! (DIR: a folder of PNG or JPEG files for each class, all of one size, or the files of MNIST or CIFAR)
//! Time: about a minute on two CPU cores without arguments, seconds with --toy.
//! Expect: a validation loss far below the 2.30 nats of guessing among ten digits, and most of the images named rightly.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use firelight::data::{Image, drawn_digits};
use firelight::storage::Checkpoint;
use firelight::training::{Observer, ProgressBar};
use firelight::vision::{ImageClassifier, Interrupter, Run, RunRequest};

/// The settings of the built-in recipe `images` that differ.
const SETTINGS: [(&str, &str); 4] =
    [("model.d_model", "64"), ("model.n_layers", "4"), ("training.epochs", "10"), ("schedule.warmup_steps", "50")];

/// What `--toy` makes of them.
const TOY: [(&str, &str); 5] = [
    ("model.d_model", "32"),
    ("model.n_layers", "1"),
    ("training.epochs", "1"),
    ("training.batch_size", "16"),
    ("schedule.warmup_steps", "2"),
];

/// Images that are asked about at the end.
const ASKED: usize = 8;

/// Draws digits into a folder for each class, as images of one's own lie.
fn draw(folder: &Path, count: usize) -> Result<PathBuf> {
    let digits = drawn_digits(1, count);
    for (index, &label) in digits.labels().iter().enumerate() {
        let class = folder.join(&digits.classes()[label as usize]);
        fs::create_dir_all(&class)?;
        digits.image(index).write_png(class.join(format!("{index}.png")))?;
    }
    Ok(folder.to_path_buf())
}

/// Trains in `out`, or in the next free folder of `runs`, and returns what some images show, and what the model finds in them.
fn train(data: &Path, out: Option<&Path>, toy: bool, observers: Vec<Box<dyn Observer>>) -> Result<Vec<[String; 2]>> {
    // Config and data: the recipe and the images are read and split, all of it checked before anything is written.
    let device = firelight::device::select(None)?;
    let changes: &[(&str, &str)] = if toy { &TOY } else { &[] };
    let request = RunRequest::new(&device).with_data(data);
    let request = out.into_iter().fold(request, |request, out| request.with_out(out));
    let request =
        SETTINGS.iter().chain(changes).fold(request, |request, (key, value)| request.with_override(key, value));
    let run = Run::prepare(&request)?;

    // Model.
    println!("training {} parameters in {}", run.cost().parameters, run.folder.path().display());

    // Fit: Burn's Learner under an observer; the folder fills on the way.
    let trained = run.fit_with(observers, Interrupter::new(), None)?;
    if let Some(last) = &trained.evaluation {
        println!("validation loss {:.4} nats per image", last.loss);
    }

    // Show: load the model as any other program would.
    let classifier = ImageClassifier::load_from(trained.folder.path(), &Checkpoint::Last, &device)?;
    let held_out = trained.corpus.validation();
    let count = ASKED.min(held_out.len());
    let images: Vec<Image> = (0..count).map(|index| held_out.image(index)).collect();
    let truth = held_out.labels().iter().map(|&label| held_out.classes()[label as usize].clone());
    let found = classifier.classify(&images)?.into_iter().map(|found| found.label);
    Ok(truth.zip(found).map(|(truth, found)| [truth, found]).collect())
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(run)
}

fn run() -> Result<()> {
    let (toy, paths) = firelight_examples::toy_and_words(1, "[DIR] [--toy]")?;
    let count = if toy { 400 } else { 4000 };
    let data = match paths.first() {
        Some(data) => PathBuf::from(data),
        None => draw(Path::new(&format!("runs/{count}-drawn-digits")), count)?,
    };
    for [truth, found] in train(&data, None, toy, vec![Box::new(ProgressBar::new())])? {
        println!("{truth}: named {found}");
    }
    Ok(())
}

#[test]
fn trains_and_names_images_at_toy_size() {
    let home = tempfile::tempdir().unwrap();
    let data = draw(&home.path().join("data"), 200).unwrap();
    let found = train(&data, Some(&home.path().join("run")), true, Vec::new()).unwrap();
    assert_eq!(found.len(), ASKED);
    let is_digit = |name: &String| name.parse::<usize>().is_ok_and(|digit| digit < 10);
    assert!(found.iter().flatten().all(is_digit), "{found:?}");
}
