//! Runs that are fed by datasets.

use std::error::Error;
use std::fs;

use burn::data::dataset::InMemDataset;
use firelight_storage::{Checkpoint, Existing};

use super::super::{NoKeys, Run, RunRequest};
use super::*;
use crate::toy::{Line, Noted as Loss, Points, alone};

/// A line through the points of a file, in three methods.
struct Dots;

type Dot = (f32, f32);

impl Task for Dots {
    const NAME: &'static str = "dots";
    type Data = NoKeys;
    type Model = NoKeys;
    type Loss = Loss;
    type Config = NoKeys;
    type DataModule = Datasets<Self>;
    type Net = Line;
    type Error = Box<dyn Error>;

    fn config(_recipe: &RecipeOf<Self>, _data: &Datasets<Self>, _source: &Path) -> Result<NoKeys, Self::Error> {
        Ok(NoKeys {})
    }

    fn model(_config: &NoKeys, _seed: u64, device: &Device) -> Line {
        Line::new(0.0, 0.0, device).with_dropout(0.3)
    }
}

impl DatasetTask for Dots {
    type Item = Dot;

    fn datasets(_recipe: &RecipeOf<Self>, paths: &[PathBuf]) -> Result<Datasets<Self>, Self::Error> {
        let text = paths.iter().map(fs::read_to_string).collect::<Result<String, _>>()?;
        let dots = text.lines().map(|x| x.parse().map(|x: f32| (x, 3.0 * x - 1.0)));
        let mut dots = dots.collect::<Result<Vec<Dot>, _>>()?;
        let validation = dots.split_off(dots.len() / 2);
        Ok(Datasets::new(InMemDataset::new(dots), InMemDataset::new(validation), Stack))
    }
}

struct Stack;

impl Batcher<Dot, Points> for Stack {
    fn batch(&self, dots: Vec<Dot>, device: &Device) -> Points {
        Points::new(dots, device)
    }
}

/// A file of `count` points, and the request of a run of six steps on it.
fn request(home: &Path, count: usize) -> RunRequest {
    let file = home.join("dots.txt");
    let lines = (0..count).map(|number| format!("0.{number:02}\n"));
    fs::write(&file, lines.collect::<String>()).unwrap();
    let request = RunRequest::new(&Device::flex()).with_out(home.join("run")).with_data(file);
    let sizes = [("training.steps", 6), ("training.batch_size", 3), ("training.checkpoint_every", 2)];
    [&sizes[..], &[("schedule.steps", 6), ("schedule.warmup_steps", 0)]]
        .concat()
        .into_iter()
        .fold(request, |request, (key, value)| request.with_override(key, value))
}

fn resumed(request: &RunRequest) -> Result<Run<Dots>, String> {
    let request = RunRequest { data: Vec::new(), ..request.clone() }.with_existing(Existing::Resume);
    Run::<Dots>::prepare(&request).map_err(|error| error.to_string())
}

#[test]
fn a_task_of_three_methods_is_trained_stopped_and_resumed_to_the_bit() {
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let request = request(home.path(), 16); // an epoch of 8, of which batches of 3 reach into the next
    let weights = |run: Run<Dots>| fs::read(run.fit().unwrap().folder.weights(&Checkpoint::Last).unwrap()).unwrap();
    let whole = weights(Run::prepare(&request).unwrap());

    let parts = request.with_out(home.path().join("parts")).with_existing(Existing::Continue);
    let run = Run::<Dots>::prepare(&parts.clone().with_override("training.steps", 3)).unwrap();
    assert_eq!(run.corpus.sizes(), "8 items to train on, 8 to validate on");
    assert_eq!(run.parameters(), [("slope".to_string(), 1), ("offset".to_string(), 1)]);
    assert_eq!((run.cost().parameters, run.cost().tokens_per_step), (2, 3));
    let begun = weights(run);
    let run = Run::prepare(&parts).unwrap();
    assert_eq!(run.done(), 3);
    assert!(begun != whole && weights(run) == whole, "the weights of a run that was stopped are others");
}

#[test]
fn an_epoch_is_the_batches_that_have_every_item() {
    let home = tempfile::tempdir().unwrap();
    let run = Run::<Dots>::prepare(&request(home.path(), 16).with_override("training.epochs", 4)).unwrap();
    assert_eq!(run.recipe.training.steps, 12); // three batches hold eight items
}

#[test]
fn data_that_has_changed_or_is_empty_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let request = request(home.path(), 16);
    drop(Run::<Dots>::prepare(&request).unwrap());
    let file = &request.data[0];
    let text = fs::read_to_string(file).unwrap();
    for (changed, expected) in [
        (text.replace("0.03", "0.33"), "training data: the items are other ones than the run began with"),
        (text.replace("0.12", "0.22"), "validation data: the items are other ones than the run began with"),
        (text.replace("0.12\n0.13\n", ""), "training data: there are 7 items, but the run began with 8"),
    ] {
        fs::write(file, changed).unwrap();
        let error = resumed(&request).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    let other = home.path().join("other.txt");
    fs::write(&other, text.replace("0.03", "0.33")).unwrap();
    fs::write(file, &text).unwrap();
    let again = request.clone().with_existing(Existing::Resume);
    drop(Run::<Dots>::prepare(&again).unwrap());
    let error = Run::<Dots>::prepare(&again.clone().with_data(other)).unwrap_err();
    assert!(error.to_string().contains("`--data` is not what the run began with"), "{error}");

    fs::write(file, "").unwrap();
    let error = Run::<Dots>::prepare(&request.with_out(home.path().join("empty"))).unwrap_err();
    assert!(error.to_string().contains("the dataset is empty"), "{error}");
    assert!(!home.path().join("empty").exists());
}
