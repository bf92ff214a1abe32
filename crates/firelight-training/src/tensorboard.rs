//! The numbers of a training as TensorBoard event files, for those who watch many runs side by side: an [`Observer`] of
//! [`fit`](crate::fit()), and Burn's [`MetricLogger`], over one writer.

mod event_file;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use burn::train::logger::{InMemoryMetricLogger, MetricLogger};
use burn::train::metric::store::{EpochSummary, MetricsUpdate, NumericMetricUpdate, Split};
use burn::train::metric::{MetricDefinition, MetricId, MetricName, NumericEntry};

use self::event_file::EventFile;
use crate::{EvaluationReport, Observer, StepReport, TrainingError};

/// Writes an event file into a folder; a resumed run adds another one, as TensorBoard expects.
///
/// As an [`Observer`] it has the reports of [`fit`](crate::fit()). As a [`MetricLogger`] it has the metrics of any Burn training
/// (`with_metric_logger`): of every training batch, and of the validation as a whole, at the number of batches before it. Burn hands no
/// number of a step to its loggers, so the batches are counted here.
pub struct TensorBoard {
    file: EventFile,
    /// Training batches that Burn has logged.
    batches: usize,
    names: HashMap<MetricId, MetricName>,
    /// Burn's early stopping and its choice of checkpoints ask a logger for what it was told.
    told: InMemoryMetricLogger,
    is_broken: bool,
}

impl TensorBoard {
    /// Begins an event file in `folder`, which is made if it is missing.
    ///
    /// # Errors
    /// Fails if the file cannot be created.
    pub fn create(folder: impl AsRef<Path>) -> Result<Self, TrainingError> {
        let (file, told) = (EventFile::create(folder.as_ref())?, InMemoryMetricLogger::new());
        Ok(Self { file, batches: 0, names: HashMap::new(), told, is_broken: false })
    }

    /// Counts on from so many training batches, those of a training of Burn's that is resumed.
    #[must_use]
    pub fn after(self, batches: usize) -> Self {
        Self { batches, ..self }
    }

    /// Writes numbers of Burn's. A logger has no way to stop a training: the first failure is logged, and the file ends with it.
    fn write_metrics(&mut self, part: &str, metrics: &[NumericMetricUpdate]) {
        let tag =
            |metric: &NumericMetricUpdate| self.names.get(&metric.entry.metric_id).map(|name| format!("{part}/{name}"));
        let named = |metric: &NumericMetricUpdate| Some((tag(metric)?, metric.numeric_entry.as_ref()?.current()));
        let values: Vec<_> = metrics.iter().filter_map(named).collect();
        if values.is_empty() || self.is_broken {
            return;
        }
        if let Err(error) = self.file.write(self.batches, values) {
            log::error!("the TensorBoard file ends here: {error}");
            self.is_broken = true;
        }
    }
}

impl Observer for TensorBoard {
    fn step(&mut self, report: &StepReport) -> Result<(), TrainingError> {
        let StepReport { step, loss, training_loss, learning_rate, gradient_norm, tokens_per_second } = *report;
        let values = [
            ("loss", Some(loss)),
            ("training_loss", training_loss),
            ("learning_rate", Some(learning_rate)),
            ("gradient_norm", Some(gradient_norm)),
            ("tokens_per_second", Some(tokens_per_second)),
        ];
        let named = |(name, value): (&str, Option<f64>)| Some((format!("training/{name}"), value?));
        Ok(self.file.write(step, values.into_iter().filter_map(named).collect())?)
    }

    fn evaluation(&mut self, report: &EvaluationReport) -> Result<(), TrainingError> {
        let scores = report.metrics.iter().map(|(name, value)| (name.as_str(), *value));
        let all = [("loss", report.validation_loss)].into_iter().chain(scores);
        Ok(self.file.write(report.step, all.map(|(name, value)| (format!("validation/{name}"), value)).collect())?)
    }
}

impl MetricLogger for TensorBoard {
    fn log(&mut self, update: MetricsUpdate, epoch: usize, split: &Split) {
        // The last update of an epoch holds the means over it.
        let is_final = |metric: &NumericMetricUpdate| matches!(metric.numeric_entry, Some(NumericEntry::Final(_)));
        let is_whole = update.entries_numeric.iter().any(is_final);
        match split {
            Split::Train if !is_whole => {
                self.batches += 1;
                self.write_metrics("training", &update.entries_numeric);
            }
            Split::Valid if is_whole => self.write_metrics("validation", &update.entries_numeric),
            _ => {}
        }
        self.told.log(update, epoch, split);
    }

    fn read_numeric(&mut self, name: &str, epoch: usize, split: &Split) -> Result<Vec<NumericEntry>, String> {
        self.told.read_numeric(name, epoch, split)
    }

    fn log_metric_definition(&mut self, definition: MetricDefinition) {
        self.names.insert(definition.metric_id.clone(), definition.name.clone());
        self.told.log_metric_definition(definition);
    }

    fn log_epoch_summary(&mut self, summary: EpochSummary) {
        self.told.log_epoch_summary(summary);
    }
}

impl fmt::Debug for TensorBoard {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("TensorBoard").field("file", &self.file).field("batches", &self.batches).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use burn::train::metric::{LossMetric, Metric, MetricEntry, SerializedEntry};

    use super::event_file::scalars;
    use super::*;

    #[test]
    fn what_is_reported_is_read_back() {
        let home = tempfile::tempdir().unwrap();
        let mut board = TensorBoard::create(home.path().join("tensorboard")).unwrap();
        let report = StepReport {
            step: 7,
            loss: 2.5,
            training_loss: Some(2.75),
            learning_rate: 0.5,
            gradient_norm: 1.5,
            tokens_per_second: 9.0,
        };
        board.step(&report).unwrap();
        let metrics = [("accuracy".to_string(), 0.25)].into();
        board.evaluation(&EvaluationReport { step: 7, validation_loss: 2.25, metrics, ..Default::default() }).unwrap();
        let expected = [
            ("training/loss", 2.5),
            ("training/training_loss", 2.75),
            ("training/learning_rate", 0.5),
            ("training/gradient_norm", 1.5),
            ("training/tokens_per_second", 9.0),
            ("validation/loss", 2.25),
            ("validation/accuracy", 0.25),
        ];
        assert_eq!(scalars(&board.file.path), expected.map(|(tag, value)| (7, tag.to_string(), value)));
    }

    fn definition() -> MetricDefinition {
        let metric = LossMetric::new();
        MetricDefinition::new(MetricId::new(metric.name()), &metric)
    }

    fn loss(value: NumericEntry) -> MetricsUpdate {
        let shown = SerializedEntry::new("shown".into(), value.serialize());
        let entry = MetricEntry::new(definition().metric_id, shown);
        MetricsUpdate::new(Vec::new(), vec![NumericMetricUpdate::new(entry, Some(value), None)])
    }

    #[test]
    fn what_burn_logs_is_read_back_batch_by_batch_and_as_a_whole() {
        let home = tempfile::tempdir().unwrap();
        let mut board = TensorBoard::create(home.path()).unwrap().after(10);
        board.log_metric_definition(definition());
        let log = |board: &mut TensorBoard, split: Split, value| board.log(loss(value), 1, &split);
        for value in [3.0, 2.0] {
            log(&mut board, Split::Train, NumericEntry::Value(value));
        }
        log(&mut board, Split::Train, NumericEntry::Final(2.5));
        for value in [NumericEntry::Value(1.0), NumericEntry::Value(2.0), NumericEntry::Final(1.5)] {
            log(&mut board, Split::Valid, value);
        }
        board.log_epoch_summary(EpochSummary::new(1, Split::Valid));
        let expected = [(11, "training/Loss", 3.0), (12, "training/Loss", 2.0), (12, "validation/Loss", 1.5)];
        assert_eq!(scalars(&board.file.path), expected.map(|(step, tag, value)| (step, tag.to_string(), value)));
        let told = board.read_numeric("Loss", 1, &Split::Valid).unwrap();
        assert!(matches!(told.last(), Some(NumericEntry::Final(value)) if *value == 1.5), "{told:?}");
    }
}
