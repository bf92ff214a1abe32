//! Tells Burn's event processor what the trainer does, so that Burn's metrics, renderers and loggers work as in Burn's own
//! loop. [`fit`](crate::fit()) sends through it; the silent renderer and logger stand in where the user adds none.

use std::sync::Arc;

use burn::data::dataloader::Progress;
use burn::train::logger::{EvaluationProgressLogger, MetricLogger, TrainingProgressLogger};
use burn::train::metric::store::{EpochSummary, EventStoreClient, MetricsUpdate, Split};
use burn::train::metric::{MetricDefinition, NumericEntry};
use burn::train::renderer::{
    EvaluationName, MetricState, MetricsRenderer, MetricsRendererEvaluation, MetricsRendererTraining,
};
use burn::train::{
    CloneEarlyStoppingStrategy, EventProcessorTraining, InferenceStep, Interrupter, Learner, LearnerEvent,
    LearningCheckpointer, SupervisedTrainingEventProcessor, TrainStep, TrainingComponents, TrainingItem,
};

use crate::trainer::Trainer;
use crate::{Trainable, TrainingConfig};

/// The events of one run. A failing metric stops the run through the interrupter.
pub(crate) struct Events<M: Trainable> {
    processor: SupervisedTrainingEventProcessor<M>,
    store: Arc<EventStoreClient>,
    checkpointer: Option<LearningCheckpointer<M>>,
    early_stopping: Option<Box<dyn CloneEarlyStoppingStrategy>>,
    interrupter: Interrupter,
    /// The stretch between two evaluations, counted from 1.
    epoch: usize,
    /// Whether the training split of the stretch has begun.
    is_training: bool,
    validated: usize,
    stretches: Stretches,
    /// Items trained on, those of them before the stretch, and how many the stretch has.
    trained: usize,
    before: usize,
    items: usize,
}

/// Where a run is evaluated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretches {
    /// Steps done, at first and now, and the step at which the run ends.
    first: usize,
    done: usize,
    end: usize,
    /// Steps between two evaluations; 0 is the end alone.
    every: usize,
}

impl Stretches {
    /// The stretches of a run that has done some steps.
    pub(crate) fn new(done: usize, training: &TrainingConfig) -> Self {
        Self { first: done, done, end: training.steps.max(done), every: training.evaluate_every }
    }

    /// How many there are, at least one.
    pub(crate) fn count(&self) -> usize {
        match self.every {
            0 => 1,
            every => (self.end.div_ceil(every) - self.first / every).max(1),
        }
    }

    /// How many of `items`, those of all steps, are of the stretch that follows.
    fn share(&self, items: usize) -> usize {
        let next = match self.every {
            0 => self.end,
            every => (self.done / every + 1).saturating_mul(every).min(self.end),
        };
        let (steps, all) = (next - self.done, (self.end - self.first).max(1));
        (items as u128 * steps as u128 / all as u128) as usize
    }
}

impl<M: Trainable> Events<M> {
    /// Nothing has happened yet in a run of these stretches.
    pub(crate) fn new(components: TrainingComponents<M>, stretches: Stretches) -> Self {
        Self {
            processor: components.event_processor,
            store: components.event_store,
            checkpointer: components.checkpointer,
            early_stopping: components.early_stopping,
            interrupter: components.interrupter,
            epoch: 1,
            is_training: false,
            validated: 0,
            stretches,
            trained: 0,
            before: 0,
            items: 0,
        }
    }

    /// A training step follows, out of `items` items of all steps.
    pub(crate) fn training(&mut self, items: usize) {
        if !self.is_training {
            (self.is_training, self.before) = (true, self.trained);
            self.items = self.stretches.share(items);
            self.send_train(LearnerEvent::StartSplit { epoch_number: self.epoch, total_items: self.items });
        }
    }

    /// A batch of a training step is done, with the step's number and its learning rate.
    pub(crate) fn trained(
        &mut self,
        output: <M as TrainStep>::Output,
        progress: Progress,
        (step, learning_rate): (usize, f64),
    ) {
        (self.stretches.done, self.trained) = (step, progress.items_processed);
        let progress = Progress::new(self.trained.saturating_sub(self.before), self.items, progress.unit);
        let item = TrainingItem::new(output, progress, Some(step), Some(learning_rate.into()));
        self.send_train(LearnerEvent::ProcessedItem(item));
    }

    /// An evaluation over `items` items follows.
    pub(crate) fn validating(&mut self, items: usize) {
        if self.is_training {
            self.is_training = false;
            self.send_train(LearnerEvent::EndSplit(self.epoch));
        }
        self.validated = 0;
        self.send_valid(LearnerEvent::StartSplit { epoch_number: self.epoch, total_items: items });
    }

    /// A validation batch is done.
    pub(crate) fn validated(&mut self, output: <M as InferenceStep>::Output, progress: Progress) {
        self.validated += 1;
        let item = TrainingItem::new(output, progress, Some(self.validated), None);
        self.send_valid(LearnerEvent::ProcessedItem(item));
    }

    /// The evaluation of the model that `trainer` holds is done. Burn's checkpointers, where a user set them, are called with
    /// the step as their key; returns whether Burn's early stopping, where a user set it, ends the run.
    pub(crate) fn end_epoch(&mut self, trainer: &Trainer<M>) -> bool {
        self.send_valid(LearnerEvent::EndSplit(self.epoch));
        self.send_train(LearnerEvent::EndEpoch(self.epoch));
        if self.checkpointer.is_some() || self.early_stopping.is_some() {
            self.interrupter.fail_on_error(self.processor.flush());
        }
        if let Some(checkpointer) = &mut self.checkpointer {
            checkpointer.checkpoint(&learner(trainer), trainer.done, &self.store);
        }
        let stops = |strategy: &mut Box<dyn CloneEarlyStoppingStrategy>| strategy.should_stop(self.epoch, &self.store);
        let stopped = self.early_stopping.as_mut().is_some_and(stops);
        self.epoch += 1;
        stopped
    }

    /// Whether someone asked the run to stop, or a metric failed.
    pub(crate) fn should_stop(&self) -> bool {
        self.interrupter.should_stop()
    }

    /// Gives the processor back to Burn.
    pub(crate) fn into_processor(self) -> SupervisedTrainingEventProcessor<M> {
        self.processor
    }

    fn send_train(&mut self, event: LearnerEvent<<M as TrainStep>::Output>) {
        self.interrupter.fail_on_error(self.processor.process_train(event));
    }

    fn send_valid(&mut self, event: LearnerEvent<<M as InferenceStep>::Output>) {
        self.interrupter.fail_on_error(self.processor.process_valid(event));
    }
}

/// A learner of Burn's that stands where `trainer` stands.
fn learner<M: Trainable>(trainer: &Trainer<M>) -> Learner<M> {
    let schedule = trainer.schedule.init(trainer.optimizer_config.learning_rate).after(trainer.done);
    Learner::new(trainer.model.clone(), trainer.optimizer.clone(), schedule)
}

/// Shows nothing: a library does not print.
pub(crate) struct NoRenderer;

impl MetricsRendererTraining for NoRenderer {
    fn update_train(&mut self, _state: MetricState) {}
    fn update_valid(&mut self, _state: MetricState) {}
}

impl MetricsRendererEvaluation for NoRenderer {
    fn update_test(&mut self, _name: EvaluationName, _state: MetricState) {}
}

impl TrainingProgressLogger for NoRenderer {
    fn start(&mut self, _epochs: usize, _first: usize, _items: Option<usize>, _label: Option<&str>) {}
    fn update_epoch(&mut self, _epoch: usize) {}
    fn start_split(&mut self, _split: &str, _items: usize) {}
    fn update_split(&mut self, _items: usize) {}
    fn end_split(&mut self) {}
    fn end(&mut self) {}
    fn log_event_training(&mut self, _event: String) {}
}

impl EvaluationProgressLogger for NoRenderer {
    fn start_global_progress(&mut self, _tests: usize) {}
    fn start_test(&mut self, _name: &str, _items: usize) {}
    fn update_test_progress(&mut self, _items: usize) {}
    fn end_test(&mut self) {}
    fn end_global_progress(&mut self) {}
    fn log_event_evaluation(&mut self, _event: String) {}
}

impl MetricsRenderer for NoRenderer {
    fn manual_close(&mut self) {}
    fn register_metric(&mut self, _definition: MetricDefinition) {}
}

/// Keeps nothing: without a logger Burn would write a folder for each split of each epoch.
pub(crate) struct NoLog;

impl MetricLogger for NoLog {
    fn log(&mut self, _update: MetricsUpdate, _epoch: usize, _split: &Split) {}

    fn read_numeric(&mut self, name: &str, _epoch: usize, _split: &Split) -> Result<Vec<NumericEntry>, String> {
        Err(format!("the values of `{name}` are not kept"))
    }

    fn log_metric_definition(&mut self, _definition: MetricDefinition) {}
    fn log_epoch_summary(&mut self, _summary: EpochSummary) {}
}

#[cfg(test)]
mod tests {
    use super::Stretches;
    use crate::TrainingConfig;
    use std::fs;
    use std::path::{Path, PathBuf};

    fn sources(folder: &Path) -> Vec<PathBuf> {
        let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        paths.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
    }

    #[test]
    fn stretches_end_at_evaluations_and_share_the_items() {
        let shares = |steps: usize, every: usize, first: usize| {
            let training = TrainingConfig { steps, evaluate_every: every, ..TrainingConfig::default() };
            let mut stretches = Stretches::new(first, &training);
            let count = stretches.count();
            let ends: Vec<_> = (first..steps).filter(|&done| done == first || training.evaluates_after(done)).collect();
            let share = |&done: &usize| {
                stretches.done = done;
                stretches.share(10 * (steps - first))
            };
            (count, ends.iter().map(share).collect::<Vec<_>>())
        };
        assert_eq!(shares(10, 4, 0), (3, vec![40, 40, 20]));
        assert_eq!(shares(10, 4, 6), (2, vec![20, 20]));
        assert_eq!(shares(10, 4, 8), (1, vec![20]));
        assert_eq!(shares(10, 0, 0), (1, vec![100]));
        assert_eq!(shares(10, 5, 0), (2, vec![50, 50]));
        assert_eq!(Stretches::new(12, &TrainingConfig { steps: 10, ..TrainingConfig::default() }).count(), 1);
    }

    #[test]
    #[cfg(not(miri))]
    fn no_other_file_knows_the_events_and_the_learner_of_burn() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        for (name, homes) in [("LearnerEvent", &["events.rs"][..]), ("Learner::new(", &["events.rs", "fit.rs"])] {
            let knows = |path: &PathBuf| fs::read_to_string(path).is_ok_and(|text| text.contains(name));
            let mut found: Vec<_> = sources(&folder).into_iter().filter(knows).collect();
            found.sort();
            assert_eq!(found, homes.iter().map(|home| folder.join(home)).collect::<Vec<_>>(), "{name}");
        }
    }
}
