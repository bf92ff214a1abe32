//! The progress of a training by Burn's own `Learner`, which reports splits, items and metrics to its [`MetricsRenderer`]: a bar for each
//! split, and a line when it ends.

use std::collections::HashMap;

use burn::train::logger::{EvaluationProgressLogger, TrainingProgressLogger};
use burn::train::metric::{MetricDefinition, MetricId, MetricName};
use burn::train::renderer::{
    EvaluationName, MetricState, MetricsRenderer, MetricsRendererEvaluation, MetricsRendererTraining,
};

use super::{LINE_EVERY, ProgressBar, TICK};

/// Below it a number is written with an exponent.
const SMALL: f64 = 1e-3;

/// What Burn has reported so far.
#[derive(Default)]
pub(super) struct BurnProgress {
    /// The metrics in the order in which they were registered.
    metrics: Vec<(MetricId, MetricName)>,
    /// Their newest values in this split.
    values: HashMap<MetricId, String>,
    /// The epoch, from 1 on, and how many there are.
    epoch: usize,
    epochs: usize,
    /// What is gone through, such as `epoch 1/2, train`.
    split: String,
    /// Items of it that are done, and all.
    done: usize,
    items: usize,
}

impl BurnProgress {
    fn take(&mut self, state: MetricState) {
        let (entry, number) = match state {
            MetricState::Generic(entry) => (entry, None),
            MetricState::Numeric(entry, number) => (entry, number),
        };
        let text = number.map_or(entry.serialized_entry.formatted, |number| in_digits(number.current()));
        self.values.insert(entry.metric_id, text);
    }

    /// The metrics that have a value.
    fn metrics(&self) -> String {
        let named = |(id, name): &(MetricId, MetricName)| Some(format!("{name} {}", self.values.get(id)?));
        self.metrics.iter().filter_map(named).collect::<Vec<_>>().join(", ")
    }

    fn line(&self) -> String {
        let Self { split, done, items, .. } = self;
        let metrics = self.metrics();
        let comma = if metrics.is_empty() { "" } else { ", " };
        format!("{split}: {done} of {items} items{comma}{metrics}")
    }
}

fn in_digits(value: f64) -> String {
    if value != 0.0 && value.abs() < SMALL { format!("{value:.1e}") } else { format!("{value:.4}") }
}

impl ProgressBar {
    /// A split of so many items begins.
    fn begin(&mut self, split: String, items: usize) {
        self.of_burn.values.clear();
        (self.of_burn.done, self.of_burn.items) = (0, items);
        self.written.0 = self.clock.elapsed();
        self.bar.set_length(items as u64);
        self.bar.set_position(0);
        self.bar.set_prefix(format!(", {split}"));
        self.of_burn.split = split;
        if !self.bar.is_hidden() {
            self.bar.enable_steady_tick(TICK);
        }
    }

    fn advance(&mut self, items: usize) {
        self.of_burn.done = items;
        self.bar.set_position(items as u64);
        self.bar.set_message(self.of_burn.metrics());
        if self.bar.is_hidden() && self.clock.elapsed() >= self.written.0 + LINE_EVERY.1 {
            self.conclude();
        }
    }

    /// Writes a line about the split that stays.
    fn conclude(&mut self) {
        self.write(&self.of_burn.line());
        self.written.0 = self.clock.elapsed();
    }
}

impl MetricsRendererTraining for ProgressBar {
    fn update_train(&mut self, state: MetricState) {
        self.of_burn.take(state);
    }

    fn update_valid(&mut self, state: MetricState) {
        self.of_burn.take(state);
    }
}

impl MetricsRendererEvaluation for ProgressBar {
    fn update_test(&mut self, _name: EvaluationName, state: MetricState) {
        self.of_burn.take(state);
    }
}

impl TrainingProgressLogger for ProgressBar {
    fn start(&mut self, epochs: usize, first: usize, _items: Option<usize>, _label: Option<&str>) {
        (self.of_burn.epoch, self.of_burn.epochs) = (first.max(1), epochs);
    }

    fn update_epoch(&mut self, epoch: usize) {
        self.of_burn.epoch = epoch + 1;
    }

    fn start_split(&mut self, split: &str, items: usize) {
        self.begin(format!("epoch {}/{}, {split}", self.of_burn.epoch, self.of_burn.epochs), items);
    }

    fn update_split(&mut self, items: usize) {
        self.advance(items);
    }

    fn end_split(&mut self) {
        self.conclude();
    }

    fn end(&mut self) {
        self.bar.finish_and_clear();
    }

    fn log_event_training(&mut self, _event: String) {}
}

impl EvaluationProgressLogger for ProgressBar {
    fn start_global_progress(&mut self, _tests: usize) {}

    fn start_test(&mut self, name: &str, items: usize) {
        self.begin(name.to_string(), items);
    }

    fn update_test_progress(&mut self, items: usize) {
        self.advance(items);
    }

    fn end_test(&mut self) {
        self.conclude();
    }

    fn end_global_progress(&mut self) {
        self.bar.finish_and_clear();
    }

    fn log_event_evaluation(&mut self, _event: String) {}
}

impl MetricsRenderer for ProgressBar {
    /// It stays no longer than what it shows.
    fn manual_close(&mut self) {}

    fn register_metric(&mut self, definition: MetricDefinition) {
        if self.of_burn.metrics.iter().all(|(id, _)| *id != definition.metric_id) {
            self.of_burn.metrics.push((definition.metric_id, definition.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use burn::train::metric::{LossMetric, Metric, MetricEntry, NumericEntry, SerializedEntry};

    use super::super::tests::without_a_terminal;
    use super::*;
    use crate::RunReport;

    fn id() -> MetricId {
        MetricId::new(LossMetric::new().name())
    }

    fn loss(number: NumericEntry) -> MetricState {
        let entry = MetricEntry::new(id(), SerializedEntry::new("in words".into(), String::new()));
        MetricState::Numeric(entry, Some(number))
    }

    #[test]
    fn a_training_of_burn_has_a_line_for_every_split_and_every_fifteen_seconds() {
        let (progress, written, hand) = without_a_terminal(RunReport { done: 0, steps: 0 });
        let mut renderer: Box<dyn MetricsRenderer> = Box::new(progress);
        for _ in ["training", "validation"] {
            renderer.register_metric(MetricDefinition::new(id(), &LossMetric::new()));
        }
        renderer.start(2, 1, None, None);
        renderer.start_split("train", 40);
        for (items, seconds, value) in [(20, 14, 1.5), (30, 15, 1.25), (40, 29, 1.0)] {
            hand.store(1000 * seconds, Ordering::SeqCst);
            renderer.update_train(loss(NumericEntry::Aggregated { aggregated_value: value, count: 1 }));
            renderer.update_split(items);
        }
        renderer.update_train(loss(NumericEntry::Final(1.125)));
        renderer.end_split();
        renderer.start_split("valid", 8);
        renderer.update_valid(loss(NumericEntry::Final(0.00025)));
        renderer.update_split(8);
        renderer.end_split();
        renderer.update_epoch(1);
        renderer.start_split("train", 40);
        renderer.end_split();
        renderer.end();
        let expected = [
            "epoch 1/2, train: 30 of 40 items, Loss 1.2500",
            "epoch 1/2, train: 40 of 40 items, Loss 1.1250",
            "epoch 1/2, valid: 8 of 8 items, Loss 2.5e-4",
            "epoch 2/2, train: 0 of 40 items",
        ];
        assert_eq!(written.lines(), expected);
    }

    #[test]
    fn a_test_of_burn_has_a_line_with_its_name_and_metrics_in_words() {
        let (mut renderer, written, _) = without_a_terminal(RunReport { done: 0, steps: 0 });
        renderer.register_metric(MetricDefinition::new(id(), &LossMetric::new()));
        renderer.start_global_progress(1);
        renderer.start_test("unseen", 5);
        let entry = MetricEntry::new(id(), SerializedEntry::new("in words".into(), String::new()));
        renderer.update_test(EvaluationName::new("unseen"), MetricState::Generic(entry));
        renderer.update_test_progress(5);
        renderer.end_test();
        renderer.end_global_progress();
        assert_eq!(written.lines(), ["unseen: 5 of 5 items, Loss in words"]);
    }
}
