//! A model and a data set of this program's own, trained by Firelight's `fit`: a causal Transformer over numbers says the next value of
//! a series at every place of it. A training that was stopped goes on when the program is started again.
//!
//! Command: cargo run --release -p firelight-examples --example forecaster
//! Time: seconds on two CPU cores.
//! Expect: a mean squared error far below the one of saying the last value again.

use std::path::Path;

use anyhow::Result;
use burn::data::dataloader::{DataLoaderBuilder, batcher::Batcher};
use burn::data::dataset::{Dataset, DatasetError};
use burn::nn::{Linear, LinearConfig, loss::MseLoss, loss::Reduction};
use burn::prelude::*;
use burn::train::{InferenceStep, RegressionOutput, TrainOutput, TrainStep};
use firelight::nn::{Pass, PositionConfig, SequenceInput, Transformer, TransformerConfig};
use firelight::storage::{Existing, ModelFolder};
use firelight::training::{FitInput, OptimizerConfig, ScheduleConfig, TrainingConfig, fit, resume_point};

/// Places of a series at which the next value is told, and series of a batch.
const LENGTH: usize = 24;
const BATCH: usize = 16;
type Series = [f32; LENGTH + 1];

/// So many series, each the sum of two waves of its own pace and phase.
struct Waves(usize);

impl Dataset<Series> for Waves {
    fn get(&self, index: usize) -> Result<Series, DatasetError> {
        let share = |factor: f32| (index as f32 * factor).fract();
        let (slow, fast, phase) = (0.2 + 0.2 * share(0.618), 0.6 + 0.4 * share(0.414), 6.3 * share(0.732));
        Ok(std::array::from_fn(|t| (slow * t as f32 + phase).sin() + 0.3 * (fast * t as f32).sin()))
    }
    fn len(&self) -> usize {
        self.0
    }
}

impl Batcher<Series, Tensor<2>> for Waves {
    fn batch(&self, items: Vec<Series>, device: &Device) -> Tensor<2> {
        Tensor::from_data(TensorData::new(items.concat(), [items.len(), LENGTH + 1]), device) // side by side
    }
}

/// Burn's layers around Firelight's stack.
#[derive(Module, Debug)]
struct Forecaster {
    input: Linear,
    stack: Transformer,
    output: Linear,
}

impl Forecaster {
    fn new(device: &Device) -> Self {
        device.seed(1);
        let stack = TransformerConfig::new(32, 4, 2).with_position(PositionConfig::rotary()).init(device);
        Self { input: LinearConfig::new(1, 32).init(device), stack, output: LinearConfig::new(32, 1).init(device) }
    }

    /// The forecasts of all places and their error; `series` are `[B, LENGTH + 1]`.
    fn regress(&self, series: Tensor<2>) -> RegressionOutput {
        let (read, targets) = (series.clone().narrow(1, 0, LENGTH), series.narrow(1, 1, LENGTH));
        let x = self.input.forward(read.unsqueeze_dim(2)); // [B, T, D]
        let x = self.stack.forward(x, &SequenceInput::default(), &mut Pass::default());
        let output: Tensor<2> = self.output.forward(x).squeeze_dim(2); // [B, T]
        RegressionOutput::new(MseLoss::new().forward(output.clone(), targets.clone(), Reduction::Mean), output, targets)
    }
}

impl TrainStep for Forecaster {
    type Input = Tensor<2>;
    type Output = RegressionOutput;
    fn step(&self, series: Tensor<2>) -> TrainOutput<RegressionOutput> {
        let output = self.regress(series);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Forecaster {
    type Input = Tensor<2>;
    type Output = RegressionOutput;
    fn step(&self, series: Tensor<2>) -> RegressionOutput {
        self.regress(series)
    }
}

/// Trains up to a step, from where an earlier training ended. The errors for unseen series, and those of the last value again.
fn train(out: &Path, steps: usize) -> Result<[f32; 2]> {
    let device = firelight::device::select(None)?;
    let folder = ModelFolder::create(out, Existing::Continue)?;
    let start = resume_point(&folder)?.unwrap_or_default();
    let loader = |waves: Waves| DataLoaderBuilder::<Series, Tensor<2>>::new(Waves(0)).batch_size(BATCH).build(waves);
    let training = loader(Waves(steps * BATCH)).slice(start.step() * BATCH, steps * BATCH);
    let input = FitInput {
        training: TrainingConfig { steps, evaluate_every: 50, ..TrainingConfig::default() },
        optimizer: OptimizerConfig { learning_rate: 3e-3, ..OptimizerConfig::default() },
        schedule: ScheduleConfig { warmup_steps: 10, ..ScheduleConfig::default() },
        folder: Some(folder),
        start,
        ..FitInput::new(training, loader(Waves(8064)).slice(8000, 8064)) // no series of the training
    };
    let model = fit(Forecaster::new(&device.clone().autodiff()), input)?.model;
    let unseen = (10_000..10_064).map(|item| Waves(usize::MAX).get(item)).collect::<Result<Vec<_>, _>>()?;
    let unseen = Waves(0).batch(unseen, &device);
    let again = unseen.clone().narrow(1, 1, LENGTH) - unseen.clone().narrow(1, 0, LENGTH);
    let errors = [model.regress(unseen).loss.into_scalar(), again.square().mean().into_scalar()];
    println!("mean squared error {:.4}, of the last value again {:.4}", errors[0], errors[1]);
    Ok(errors)
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(|| train(Path::new("runs/forecaster"), 400).map(drop))
}

#[test]
fn it_learns_and_goes_on_at_toy_size() {
    let home = tempfile::tempdir().unwrap();
    let [early, late] = [10, 100].map(|steps| train(home.path(), steps).unwrap()[0]);
    assert!(late < 0.5 * early, "from {early} to {late}");
}
