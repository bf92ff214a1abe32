//! A forecaster of time series: a data set of this project's own, a causal Transformer over numbers, a regression. Firelight's `fit`
//! trains it, with checkpoints, exact resume, Burn's metrics and a report page; Burn's own Learner does as well.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::{Dataset, DatasetError};
use burn::module::Module;
use burn::nn::{Linear, LinearConfig, loss::MseLoss, loss::Reduction};
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Tensor, TensorData};
use burn::train::logger::FileMetricLogger;
use burn::train::metric::LossMetric;
use burn::train::{InferenceStep, Learner, RegressionOutput, SupervisedTraining, TrainOutput, TrainStep};
use firelight_core::{Pass, PositionConfig, SequenceInput, Transformer, TransformerConfig};
use firelight_storage::{Existing, ModelFolder};
use firelight_training::{FitInput, Fitted, MetricsLog, OptimizerConfig, Report, TrainingConfig, fit, resume_point};
use firelight_training::{ProgressBar, TensorBoard};

/// Places of a series at which the next value is told.
pub const LENGTH: usize = 24;
const BATCH: usize = 16;

/// The values of one item.
pub type Series = [f32; LENGTH + 1];

/// So many sums of two waves, whose pace and phase are those of the item.
#[derive(Clone)]
pub struct Waves(pub usize);

impl Dataset<Series> for Waves {
    fn get(&self, index: usize) -> Result<Series, DatasetError> {
        let of_item = |factor: f32| (index as f32 * factor).fract();
        let (slow, fast, phase) = (0.2 + 0.2 * of_item(0.618), 0.6 + 0.4 * of_item(0.414), 6.3 * of_item(0.732));
        Ok(std::array::from_fn(|t| (slow * t as f32 + phase).sin() + 0.3 * (fast * t as f32).sin()))
    }

    fn len(&self) -> usize {
        self.0
    }
}

impl Batcher<Series, Tensor<2>> for Waves {
    /// Series side by side: `[B, LENGTH + 1]`.
    fn batch(&self, items: Vec<Series>, device: &Device) -> Tensor<2> {
        Tensor::from_data(TensorData::new(items.concat(), [items.len(), LENGTH + 1]), device)
    }
}

/// Every next value of a series from those before it.
#[derive(Module, Debug)]
pub struct Forecaster {
    input: Linear,
    encoder: Transformer,
    output: Linear,
}

impl Forecaster {
    /// A forecaster of width 32.
    pub fn new(device: &Device) -> Self {
        Self::around(&TransformerConfig::new(32, 4, 2).with_position(PositionConfig::rotary()), 1, device)
    }

    /// A forecaster around an encoder; Burn's layers begin as the seed says, Firelight's by one of their own.
    pub fn around(encoder: &TransformerConfig, seed: u64, device: &Device) -> Self {
        device.seed(seed);
        let linear = |from, to| LinearConfig::new(from, to).init(device);
        Self { input: linear(1, encoder.d_model), encoder: encoder.init(device), output: linear(encoder.d_model, 1) }
    }

    /// `[B, T] -> [B, T]`: at each place the value after it.
    pub fn forward(&self, series: Tensor<2>) -> Tensor<2> {
        let x = self.input.forward(series.unsqueeze_dim(2)); // [B, T, D]
        self.output.forward(self.encoder.forward(x, &SequenceInput::default(), &mut Pass::default())).squeeze_dim(2)
    }

    /// The forecasts of all places, and their error.
    pub fn regress(&self, series: Tensor<2>) -> RegressionOutput {
        let output = self.forward(series.clone().narrow(1, 0, LENGTH));
        let targets = series.narrow(1, 1, LENGTH);
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

fn loader(waves: Waves) -> Arc<dyn DataLoader<Tensor<2>>> {
    DataLoaderBuilder::new(waves.clone()).batch_size(BATCH).build(waves)
}

/// Where Burn's logger keeps the metrics of a training in `path`: beside it, for a folder of a run is resumed as long as it holds
/// nothing but files of a run.
pub fn burn_metrics(path: &Path) -> PathBuf {
    path.with_file_name(format!("{}-metrics", path.file_name().unwrap_or_default().display()))
}

/// Trains in a folder up to a step, from where an earlier training has ended or was killed.
///
/// # Errors
/// If the folder holds something else, or the training fails.
pub fn train(path: &Path, steps: usize) -> Result<Fitted<Forecaster>, Box<dyn Error>> {
    let folder = ModelFolder::create(path, Existing::Continue)?;
    let start = resume_point(&folder)?.unwrap_or_default();
    let metrics = FileMetricLogger::new(burn_metrics(path));
    let training = loader(Waves(steps * BATCH)).slice(start.step() * BATCH, steps * BATCH);
    let fitted = fit(
        Forecaster::new(&Device::default().autodiff()),
        FitInput {
            training: TrainingConfig { steps, evaluate_every: 20, ..TrainingConfig::default() },
            optimizer: OptimizerConfig { learning_rate: 3e-3, ..OptimizerConfig::default() },
            observers: vec![Box::new(MetricsLog::resume(folder.metrics(), start.step())?)],
            folder: Some(folder),
            start,
            extension: Some(Box::new(|training| training.metrics((LossMetric::new(),)).with_metric_logger(metrics))),
            ..FitInput::new(training, loader(Waves(64)))
        },
    )?;
    Report { title: "waves".into(), target: "series", steps, ..Report::default() }.write(&ModelFolder::open(path)?)?;
    Ok(fitted)
}

/// The same by Burn's own Learner, for two epochs of so many steps, which TensorBoard and Firelight's progress bar show.
///
/// # Errors
/// If the training fails.
pub fn train_by_burn(path: &Path, steps: usize) -> Result<Forecaster, Box<dyn Error>> {
    let training = SupervisedTraining::new(path, loader(Waves(steps * BATCH)), loader(Waves(64)))
        .metrics((LossMetric::new(),))
        .with_metric_logger(TensorBoard::create(path.join("tensorboard"))?)
        .renderer(Box::new(ProgressBar::new()))
        .with_default_checkpointers()
        .with_application_logger(None)
        .num_epochs(2);
    let learner = Learner::new(Forecaster::new(&Device::default().autodiff()), AdamWConfig::new().init(), 3e-3);
    let result = training.launch(learner);
    result.error.map_or(Ok(result.model), |error| Err(error.to_string().into()))
}
