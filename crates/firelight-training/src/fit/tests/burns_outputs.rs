//! A model whose steps return Burn's own outputs: it is trained, judged by an evaluator, and seen by Burn's metrics.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig, loss::CrossEntropyLossConfig};
use burn::tensor::{Int, Tensor};
use burn::train::logger::FileMetricLogger;
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{ClassificationOutput, TrainOutput};

/// Examples of one batch, and of all to train and to validate on.
const SIZES: [usize; 3] = [8, 160, 40];

/// Passes over validation batches.
static PASSES: AtomicUsize = AtomicUsize::new(0);

/// Says of which of three numbers the largest is.
#[derive(Module, Debug)]
struct Largest {
    linear: Linear,
}

#[derive(Clone, Debug)]
struct Numbers {
    numbers: Tensor<2>,
    targets: Tensor<1, Int>,
}

/// Stacks numbers.
#[derive(Clone)]
struct Stack;

impl Batcher<[f32; 3], Numbers> for Stack {
    fn batch(&self, rows: Vec<[f32; 3]>, device: &Device) -> Numbers {
        let largest = |row: &[f32; 3]| (0..3).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0) as i32;
        let targets: Vec<i32> = rows.iter().map(largest).collect();
        let numbers = Tensor::<1>::from_floats(rows.concat().as_slice(), device).reshape([rows.len(), 3]);
        Numbers { numbers, targets: Tensor::from_ints(targets.as_slice(), device) }
    }
}

impl Largest {
    fn classify(&self, batch: Numbers) -> ClassificationOutput {
        let output = self.linear.forward(batch.numbers);
        let loss = CrossEntropyLossConfig::new().init(&output.device());
        ClassificationOutput::new(loss.forward(output.clone(), batch.targets.clone()), output, batch.targets)
    }
}

impl TrainStep for Largest {
    type Input = Numbers;
    type Output = ClassificationOutput;

    fn step(&self, batch: Numbers) -> TrainOutput<ClassificationOutput> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Largest {
    type Input = Numbers;
    type Output = ClassificationOutput;

    fn step(&self, batch: Numbers) -> ClassificationOutput {
        PASSES.fetch_add(1, Ordering::Relaxed);
        self.classify(batch)
    }
}

/// The share of right answers.
#[derive(Default)]
struct Accuracy {
    right: f64,
    all: f64,
}

impl Evaluator<Largest> for Accuracy {
    fn scores(&self) -> Vec<Score> {
        vec![Score::higher("accuracy")]
    }

    fn observe(&mut self, output: &ClassificationOutput) -> Result<(), TrainingError> {
        let found = output.output.clone().argmax(1).squeeze_dim::<1>(1);
        self.right += found.equal(output.targets.clone()).int().sum().into_scalar::<i64>() as f64;
        self.all += output.targets.dims()[0] as f64;
        Ok(())
    }

    fn finish(&mut self, _model: &Largest) -> Result<Vec<f64>, TrainingError> {
        let Self { right, all } = std::mem::take(self);
        Ok(vec![right / all])
    }
}

/// Keeps the reports of evaluations.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<EvaluationReport>>>);

impl Observer for Reports {
    fn evaluation(&mut self, report: &EvaluationReport) -> Result<(), TrainingError> {
        self.0.lock().unwrap().push(report.clone());
        Ok(())
    }
}

#[test]
fn a_model_with_burns_outputs_is_trained_and_judged_in_one_pass() {
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let rows = |count: usize, seed: usize| -> Vec<[f32; 3]> {
        (0..count).map(|i| [1.7, 2.9, 4.3].map(|factor| ((i + seed) as f32 * factor).sin())).collect()
    };
    let loader =
        |count, seed| DataLoaderBuilder::new(Stack).batch_size(SIZES[0]).build(InMemDataset::new(rows(count, seed)));
    let reports = Reports::default();
    let log = FileMetricLogger::new(home.path());
    let extend: Extension<Largest> =
        Box::new(|training| training.with_metric_logger(log).metrics((LossMetric::new(), AccuracyMetric::new())));
    let training = TrainingConfig {
        steps: SIZES[1] / SIZES[0],
        evaluate_every: 10,
        monitor: "accuracy".into(),
        ..TrainingConfig::default()
    };
    let device = Device::default().autodiff();
    device.seed(5);
    let fitted = fit(
        Largest { linear: LinearConfig::new(3, 3).init(&device) },
        FitInput {
            training,
            optimizer: OptimizerConfig { learning_rate: 0.3, ..OptimizerConfig::default() },
            schedule: ScheduleConfig { warmup_steps: 0, ..ScheduleConfig::default() },
            evaluator: Box::new(Accuracy::default()),
            observers: vec![Box::new(reports.clone())],
            extension: Some(extend),
            ..FitInput::new(loader(SIZES[1], 0), loader(SIZES[2], 1000))
        },
    );
    let reports = reports.0.lock().unwrap().clone();
    assert_eq!((fitted.unwrap().steps, reports.len()), (20, 2));
    assert_eq!(PASSES.load(Ordering::Relaxed), 2 * SIZES[2] / SIZES[0], "one pass over each batch");
    assert!(reports[1].metrics["accuracy"] > 0.9 && reports[1].validation_loss < 0.5, "{reports:?}");
    let log = fs::read_to_string(home.path().join("valid/epoch-2/Accuracy.log")).unwrap();
    assert_eq!(log.lines().count(), SIZES[2] / SIZES[0] + 1, "each batch and the end: {log}");
}
