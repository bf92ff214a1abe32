//! A model with Burn's steps and Burn's outputs is trained by Firelight's loop: with a score of its own, and, stopped and resumed, to the
//! bytes of a training that was not.

use std::fs;
use std::path::Path;

use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::tensor::Device;
use burn::train::ClassificationOutput;
use firelight_consumer::data::{Sequences, items};
use firelight_consumer::model::Classifier;
use firelight_storage::{Existing, ModelFolder};
use firelight_training::{
    Evaluator, FitInput, Fitted, OptimizerConfig, ScheduleConfig, Score, TrainingConfig, TrainingError, fit,
    resume_point,
};

const BATCH: usize = 25;
const STEPS: usize = 120;

/// The share of right answers.
#[derive(Default)]
struct Accuracy {
    right: f64,
    all: f64,
}

impl Evaluator<Classifier> for Accuracy {
    fn scores(&self) -> Vec<Score> {
        vec![Score::higher("accuracy")]
    }

    fn observe(&mut self, output: &ClassificationOutput) -> Result<(), TrainingError> {
        let found = output.output.clone().argmax(1).squeeze_dim::<1>(1);
        self.right += found.equal(output.targets.clone()).int().sum().into_scalar::<i64>() as f64;
        self.all += output.targets.dims()[0] as f64;
        Ok(())
    }

    fn finish(&mut self, _model: &Classifier) -> Result<Vec<f64>, TrainingError> {
        let Self { right, all } = std::mem::take(self);
        Ok(vec![right / all])
    }
}

/// Trains to a step in a folder, from where an earlier training has stopped.
fn train(path: &Path, steps: usize) -> Fitted<Classifier> {
    let folder = ModelFolder::create(path, Existing::Continue).expect("a folder");
    let device = Device::default();
    device.seed(1);
    let model = Classifier::new(&device.autodiff());
    let start = resume_point(&folder).expect("a readable folder").unwrap_or_default();
    let loader = |count, seed| -> std::sync::Arc<dyn DataLoader<_>> {
        DataLoaderBuilder::new(Sequences).batch_size(BATCH).build(InMemDataset::new(items(count, seed)))
    };
    let left = loader(STEPS * BATCH, 1).slice(start.step() * BATCH, STEPS * BATCH);
    let input = FitInput {
        training: TrainingConfig { steps, evaluate_every: 40, monitor: "accuracy".into(), ..TrainingConfig::default() },
        optimizer: OptimizerConfig { learning_rate: 3e-3, ..OptimizerConfig::default() },
        schedule: ScheduleConfig { warmup_steps: 10, steps: Some(STEPS), ..ScheduleConfig::default() },
        folder: Some(folder),
        start,
        evaluator: Box::new(Accuracy::default()),
        ..FitInput::new(left, loader(200, 2))
    };
    fit(model, input).expect("a training")
}

#[test]
fn a_model_of_ones_own_is_trained_stopped_and_resumed() {
    let home = tempfile::tempdir().expect("a folder");
    let [whole, parts] = ["whole", "parts"].map(|name| home.path().join(name));
    let fitted = train(&whole, STEPS);
    assert!(fitted.evaluation.expect("an evaluation").loss < 1.0, "{fitted:?}");
    assert_eq!(train(&parts, 50).steps, 50);
    assert_eq!(train(&parts, STEPS).steps, STEPS);
    let weights = |run: &Path| fs::read(run.join("model.safetensors")).expect("weights");
    assert!(weights(&whole) == weights(&parts), "the weights of a training that was stopped are others");
}
