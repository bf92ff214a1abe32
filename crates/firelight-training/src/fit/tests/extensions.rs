//! What Burn's own metrics, renderers, checkpointers and early stopping receive from a training.

use super::*;
use crate::metrics::Perplexity;
use burn::lr_scheduler::LrSchedulerRecord;
use burn::train::checkpoint::{Checkpointer, FileCheckpointer};
use burn::train::logger::{EvaluationProgressLogger, FileMetricLogger, TrainingProgressLogger};
use burn::train::metric::store::{Aggregate, Direction, Split as BurnSplit};
use burn::train::metric::{LossMetric, MetricDefinition};
use burn::train::renderer::{
    EvaluationName, MetricState, MetricsRenderer, MetricsRendererEvaluation, MetricsRendererTraining,
};
use burn::train::{MetricEarlyStoppingStrategy, StoppingCondition};

#[test]
fn checkpointers_and_early_stopping_of_burn_are_served() {
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let stop = MetricEarlyStoppingStrategy::new(
        &LossMetric::new(),
        Aggregate::Mean,
        Direction::Highest, // the loss falls, so the first evaluation stays the best
        BurnSplit::Valid,
        StoppingCondition::NoImprovementSince { n_epochs: 2 },
    );
    let log = FileMetricLogger::new(home.path());
    let checkpoints = home.path().join("checkpoint");
    let [model, optimizer, schedule] =
        ["model", "optim", "scheduler"].map(|name| FileCheckpointer::new(&checkpoints, name));
    let extend: Extension<Line> = Box::new(|training| {
        training
            .with_metric_logger(log)
            .metrics((LossMetric::new(),))
            .with_custom_checkpointers(model, optimizer, schedule)
            .early_stopping(stop)
    });
    let fitted = fit(line(), FitInput { extension: Some(extend), ..input(40, StartPoint::default(), None) }).unwrap();
    assert_eq!(fitted.steps, 12);
    let files: Vec<_> = fs::read_dir(&checkpoints).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(files.iter().any(|name| name.to_string_lossy().contains("12")), "{files:?}");
    let schedules: LrSchedulerRecord = FileCheckpointer::new(&checkpoints, "scheduler").restore(12).unwrap();
    let of_all_parameters = schedules.record("0"); // Burn's first group
    assert_eq!(of_all_parameters.scalar("step"), Some(12_usize), "the rate goes on where it stood");
}

#[test]
fn metrics_of_burn_join() {
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let log = FileMetricLogger::new(home.path());
    let extend: Extension<Line> =
        Box::new(|training| training.with_metric_logger(log).metrics((LossMetric::new(), Perplexity::new())));
    fit(line(), FitInput { extension: Some(extend), ..input(5, StartPoint::default(), None) }).unwrap();
    for file in ["train/epoch-1/Loss.log", "valid/epoch-1/Perplexity.log", "train/epoch-2/Perplexity.log"] {
        assert!(home.path().join(file).is_file(), "{file}");
    }
}

/// Counts what Burn's event processor has a renderer show, and computes the epochs and the items of a split as its dashboard
/// does.
#[derive(Clone, Default)]
struct Recording {
    calls: Arc<Mutex<Vec<&'static str>>>,
    places: Arc<Mutex<Vec<String>>>,
    epochs: (usize, usize),
    items: usize,
}

impl Recording {
    fn note(&self, call: &'static str) {
        self.calls.lock().unwrap().push(call);
    }

    fn count(&self, call: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|noted| **noted == call).count()
    }
}

impl MetricsRendererTraining for Recording {
    fn update_train(&mut self, _state: MetricState) {
        self.note("train");
    }

    fn update_valid(&mut self, _state: MetricState) {
        self.note("valid");
    }
}

impl MetricsRendererEvaluation for Recording {
    fn update_test(&mut self, _name: EvaluationName, _state: MetricState) {}
}

impl TrainingProgressLogger for Recording {
    fn start(&mut self, epochs: usize, first: usize, _items: Option<usize>, _label: Option<&str>) {
        self.epochs = (first, epochs);
    }
    fn update_epoch(&mut self, epoch: usize) {
        self.epochs.0 = epoch + 1;
    }
    fn start_split(&mut self, split: &str, items: usize) {
        self.note("split");
        self.items = items;
        self.places.lock().unwrap().push(split.into());
    }
    fn update_split(&mut self, items: usize) {
        let ((epoch, epochs), all) = (self.epochs, self.items);
        self.places.lock().unwrap().push(format!("{epoch}/{epochs} {items}/{all}"));
    }
    fn end_split(&mut self) {}
    fn end(&mut self) {}
    fn log_event_training(&mut self, _event: String) {}
}

impl EvaluationProgressLogger for Recording {
    fn start_global_progress(&mut self, _tests: usize) {}
    fn start_test(&mut self, _name: &str, _items: usize) {}
    fn update_test_progress(&mut self, _items: usize) {}
    fn end_test(&mut self) {}
    fn end_global_progress(&mut self) {}
    fn log_event_evaluation(&mut self, _event: String) {}
}

impl MetricsRenderer for Recording {
    fn manual_close(&mut self) {}
    fn register_metric(&mut self, _definition: MetricDefinition) {}
}

#[test]
fn a_renderer_of_burn_is_shown_every_batch() {
    let _alone = alone();
    let (home, recording) = (tempfile::tempdir().unwrap(), Recording::default());
    let (log, renderer) = (FileMetricLogger::new(home.path()), Box::new(recording.clone()));
    let extend: Extension<Line> =
        Box::new(|training| training.with_metric_logger(log).renderer(renderer).metrics((LossMetric::new(),)));
    fit(line(), FitInput { extension: Some(extend), ..input(5, StartPoint::default(), None) }).unwrap();
    // Five steps; two evaluations of three batches; two splits each, at the end of which their means are shown.
    assert_eq!(["train", "valid", "split"].map(|call| recording.count(call)), [5 + 2, 6 + 2, 2 + 2]);
}

#[test]
fn a_dashboard_of_burn_counts_the_stretches_and_their_items() {
    let _alone = alone();
    let (_home, folder) = run_folder();
    fit(line(), input(2, StartPoint::default(), Some(&folder))).unwrap();
    let recording = Recording::default();
    let renderer = Box::new(recording.clone());
    let extend: Extension<Line> = Box::new(|training| training.renderer(renderer));
    let start = resume_point(&folder).unwrap().unwrap();
    fit(line(), FitInput { extension: Some(extend), ..input(5, start, Some(&folder)) }).unwrap();
    // Steps 3 and 4 with an evaluation of 12 points, step 5 with another one; each step has 4 points.
    let (first, second) = ("train, 1/2 4/8, 1/2 8/8", "train, 2/2 4/4");
    let valid = |epoch: usize| format!("valid, {epoch}/2 4/12, {epoch}/2 8/12, {epoch}/2 12/12");
    let places = recording.places.lock().unwrap().join(", ");
    assert_eq!(places, format!("{first}, {}, {second}, {}", valid(1), valid(2)));
}
