//! A Burn project that takes its encoder and its attention from `firelight-core`, and everything else from Burn: layers,
//! data loaders, Learner, metrics, checkpoints, records.
//!
//! Command, in this folder: cargo run --release -- [FOLDER]
//! Expect: Burn's report of every batch, and at the end a loss below a fifth of the 1.4 nats that guessing costs.

mod data;
mod model;

use std::error::Error;
use std::path::{Path, PathBuf};

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::optim::AdamWConfig;
use burn::tensor::Device;
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{Learner, SupervisedTraining};
use data::{Batch, Sequences, items};
use model::Classifier;
use std::sync::Arc;

const EPOCHS: usize = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).map_or_else(|| std::env::temp_dir().join("firelight-consumer"), PathBuf::from);
    run(&folder)
}

/// Trains a classifier in `folder`, and loads it twice: from a file of its own and from the Learner's last checkpoint.
fn run(folder: &Path) -> Result<(), Box<dyn Error>> {
    let device = Device::flex();
    device.seed(1);
    let untrained = Classifier::new(&device.clone().autodiff());
    let examples = Sequences.batch(items(200, 3), &device);
    let before = loss(&untrained.clone().valid(), &examples);

    let model = train(untrained, folder)?;
    let after = loss(&model, &examples);
    println!("loss {before:.3} before, {after:.3} after the training");
    if after > before / 5.0 {
        return Err(format!("nothing was learnt: the loss went from {before} to {after}").into());
    }

    let path = folder.join("classifier.bpk");
    model.clone().save_file(&path)?;
    for path in [path, folder.join(format!("checkpoint/model-{EPOCHS}.bpk"))] {
        let loaded = Classifier::new(&device).try_load_file(&path)?;
        let outputs = [&model, &loaded].map(|model| model.forward(examples.tokens.clone()).into_data());
        if outputs[0] != outputs[1] {
            return Err(format!("the model of {} answers otherwise", path.display()).into());
        }
    }
    Ok(())
}

/// Burn's own loop, with its metrics and checkpoints.
fn train(model: Classifier, folder: &Path) -> Result<Classifier, Box<dyn Error>> {
    let training = SupervisedTraining::new(folder, loader(items(1200, 1)), loader(items(200, 2)))
        .metrics((LossMetric::new(), AccuracyMetric::new()))
        .with_default_checkpointers()
        .with_application_logger(None)
        .num_epochs(EPOCHS);
    let result = training.launch(Learner::new(model, AdamWConfig::new().init(), 3e-3));
    match result.error {
        Some(error) => Err(error.to_string().into()),
        None => Ok(result.model),
    }
}

fn loader(items: Vec<data::Item>) -> Arc<dyn DataLoader<Batch>> {
    DataLoaderBuilder::new(Sequences).batch_size(25).shuffle(1).build(InMemDataset::new(items))
}

fn loss(model: &Classifier, examples: &Batch) -> f32 {
    model.classify(examples.clone()).loss.into_scalar::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_ones_own_is_trained_saved_and_loaded() {
        let folder = std::env::temp_dir().join(format!("firelight-consumer-{}", std::process::id()));
        let outcome = run(&folder).map_err(|error| error.to_string());
        std::fs::remove_dir_all(&folder).expect("the run wrote its folder");
        assert_eq!(outcome, Ok(()));
    }
}
