//! Trains a model that describes images: a vision transformer reads a picture of one to four digits that are drawn, and a decoder says
//! what is where. A second picture shows where each word of the first caption looked.
//!
//! Command: cargo run --release -p firelight-examples --example captions -- [--toy]
//! Time: about four minutes on two CPU cores, seconds with --toy.
//! Expect: captions such as `a seven at the top left and an eight at the bottom right`, most of them the true ones word by word.

use std::path::Path;

use anyhow::Result;
use firelight::data::Image;
use firelight::seq2seq::{Captioner, Captioning, Interrupter, RunRequest};
use firelight::storage::Checkpoint;
use firelight::training::{Observer, ProgressBar, Run};

/// What `--toy` makes of the built-in recipe: the same route in a few seconds.
const TOY: [(&str, &str); 12] = [
    ("data.drawn_digits", "60"),
    ("data.scenes", "60"),
    ("data.split.validation", "6"),
    ("data.described", "3"),
    ("model.d_model", "32"),
    ("model.n_layers", "1"),
    ("model.d_ff", "32"),
    ("training.steps", "10"),
    ("training.batch_size", "8"),
    ("training.evaluate_every", "10"),
    ("schedule.warmup_steps", "2"),
    ("schedule.steps", "10"),
];

/// Pictures that are described at the end.
const DESCRIBED: usize = 4;

/// Trains in `out`, or in the next free folder of `runs`, and returns the true caption of some pictures and the one that the model gives.
/// `words.png` in the folder shows where the words of the first one looked.
fn train(out: Option<&Path>, toy: bool, observers: Vec<Box<dyn Observer>>) -> Result<Vec<[String; 2]>> {
    // Config and data: the recipe is read and its pictures are drawn before anything is written.
    let device = firelight::device::select(None)?;
    let changes: &[(&str, &str)] = if toy { &TOY } else { &[] };
    let request = out.into_iter().fold(RunRequest::new(&device), |request, out| request.with_out(out));
    let request = changes.iter().fold(request, |request, (key, value)| request.with_override(key, value));
    let run = Run::<Captioning>::prepare(&request)?;

    // Model.
    println!("training {} parameters in {}", run.cost().parameters, run.folder.path().display());

    // Fit: Burn's Learner under an observer; the folder fills on the way.
    let trained = run.fit_with(observers, Interrupter::new(), None)?;
    if let Some(best) = &trained.best {
        println!("best validation loss {:.4} nats per token, at step {}", best.loss, best.step);
    }

    // Show: load the model as any other program would.
    let out = trained.folder.path();
    let captioner = Captioner::load_from(out, &Checkpoint::Last, &device)?;
    let held_out = trained.corpus.validation();
    let images: Vec<Image> = (0..DESCRIBED).map(|index| held_out.images.image(index)).collect();
    let found = captioner.caption(&images, 4)?; // By four beams.
    let words = captioner.words(&images[0], &found[0])?;
    captioner.picture(&images[0], &words).write_png(out.join("words.png"))?;
    let both = held_out.captions.iter().zip(found);
    Ok(both.map(|(truth, found)| [truth.clone(), found.text]).collect())
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(run)
}

fn run() -> Result<()> {
    let (toy, _) = firelight_examples::toy_and_words(0, "[--toy]")?;
    for [truth, found] in train(None, toy, vec![Box::new(ProgressBar::new())])? {
        println!("true:  {truth}\nfound: {found}\n");
    }
    Ok(())
}

#[test]
fn trains_and_describes_pictures_at_toy_size() {
    let home = tempfile::tempdir().unwrap();
    let found = train(Some(&home.path().join("run")), true, Vec::new()).unwrap();
    assert_eq!(found.len(), DESCRIBED);
    assert!(found.iter().all(|[truth, _]| truth.contains(" at the ")), "{found:?}");
    let words = Image::open(home.path().join("run/words.png")).unwrap();
    assert_eq!(words.shape().size()[1] % 160, 0, "the picture and a column for each word, 160 pixels wide");
}
