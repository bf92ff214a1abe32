//! Trains the classifier of this project, or its forecaster, by `fit` or as a task with a recipe.
//!
//! Commands, in this folder: cargo run --release -- [FOLDER]; cargo run --release -- forecast FOLDER; cargo run --release -- run FOLDER
//! [training.steps=60 ...]
//! Expect: Burn's report of every batch, and at the end a loss below a fifth of the 1.4 nats that guessing costs; of the forecaster
//! a folder with weights, checkpoints and report.html.

use std::error::Error;
use std::path::PathBuf;

use firelight_consumer::{forecast_run, forecaster};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match arguments.as_slice() {
        [task, folder] if task.as_os_str() == "forecast" => forecaster::train(folder, 200).map(drop),
        [task, folder, changes @ ..] if task.as_os_str() == "run" => {
            let change = |change: &PathBuf| {
                let (key, value) = change.to_str()?.split_once('=')?;
                Some((key.to_string(), value.to_string()))
            };
            let changes = changes.iter().map(change).collect::<Option<Vec<_>>>();
            forecast_run::run(folder, &changes.ok_or("a change of the recipe is KEY=VALUE")?)
        }
        [folder, ..] => firelight_consumer::run(folder),
        [] => firelight_consumer::run(&std::env::temp_dir().join("firelight-consumer")),
    }
}
