//! A Burn project that takes its encoder and its attention from `firelight-core`, and everything else of its classifier from Burn: layers,
//! data loaders, Learner, metrics, checkpoints, records. Its tests put attention, a block, a mask rule, a feed-forward network and
//! a state of its own into Firelight's stack, which Firelight's `fit` trains.

pub mod data;
pub mod forecast_run;
pub mod forecaster;
pub mod model;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::optim::AdamWConfig;
use burn::tensor::Device;
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{Learner, SupervisedTraining};
use data::{Batch, Sequences, items};
use firelight_core::{Layer, PairRule, Transformer};
use firelight_training::{FitInput, OptimizerConfig, ScheduleConfig, ScheduleKind, TrainingConfig};
use model::Classifier;

const EPOCHS: usize = 4;
const BATCH: usize = 25;

/// Trains a classifier in `folder`, and loads it twice: from a file of its own and from the Learner's last checkpoint.
///
/// # Errors
/// If nothing is learnt, or a loaded model answers otherwise.
pub fn run(folder: &Path) -> Result<(), Box<dyn Error>> {
    let device = Device::default();
    device.seed(1);
    let untrained = Classifier::new(&device.clone().autodiff());
    let examples = Sequences.batch(items(200, 3), &device);
    let before = loss(&untrained.clone().valid(), &examples);

    let model = train(untrained, folder, EPOCHS, 48)?;
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

/// The loss before and after so many steps of Firelight's `fit`, of a classifier around `encoder` in which `rule` hides pairs.
///
/// # Errors
/// If the training fails.
pub fn fit<L: Layer + 'static>(
    encoder: Transformer<L>,
    rule: PairRule,
    steps: usize,
) -> Result<[f32; 2], Box<dyn Error>> {
    let device = Device::default();
    device.seed(1);
    let untrained = Classifier::around(encoder, rule, &device.clone().autodiff());
    let examples = Sequences.batch(items(200, 3), &device);
    let before = loss(&untrained.clone().valid(), &examples);
    let input = FitInput {
        training: TrainingConfig { steps, evaluate_every: steps, ..TrainingConfig::default() },
        optimizer: OptimizerConfig { learning_rate: 3e-3, ..OptimizerConfig::default() },
        schedule: ScheduleConfig { kind: ScheduleKind::Constant, warmup_steps: 0, ..ScheduleConfig::default() },
        ..FitInput::new(loader(items(BATCH * steps, 1)), loader(items(200, 2)))
    };
    let fitted = firelight_training::fit(untrained, input)?;
    Ok([before, loss(&fitted.model, &examples)])
}

/// Burn's own loop, with its metrics and checkpoints: `steps` steps an epoch.
fn train(model: Classifier, folder: &Path, epochs: usize, steps: usize) -> Result<Classifier, Box<dyn Error>> {
    let training = SupervisedTraining::new(folder, loader(items(BATCH * steps, 1)), loader(items(200, 2)))
        .metrics((LossMetric::new(), AccuracyMetric::new()))
        .with_default_checkpointers()
        .with_application_logger(None)
        .num_epochs(epochs);
    let result = training.launch(Learner::new(model, AdamWConfig::new().init(), 3e-3));
    match result.error {
        Some(error) => Err(error.to_string().into()),
        None => Ok(result.model),
    }
}

fn loader(items: Vec<data::Item>) -> Arc<dyn DataLoader<Batch>> {
    DataLoaderBuilder::new(Sequences).batch_size(BATCH).shuffle(1).build(InMemDataset::new(items))
}

fn loss<L: Layer + 'static>(model: &Classifier<L>, examples: &Batch) -> f32 {
    model.classify(examples.clone()).loss.into_scalar::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_ones_own_is_trained_saved_and_loaded() {
        let folder = tempfile::tempdir().expect("a folder");
        let outcome = run(folder.path()).map_err(|error| error.to_string());
        assert_eq!(outcome, Ok(()));
    }
}
