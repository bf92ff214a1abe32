//! How many counted targets a second pass through the model, between one batch and the next as Burn's metrics see them.

use std::sync::Arc;
use std::time::Instant;

use burn::tensor::TensorReadError;
use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry, SerializedEntry,
};

use super::token_mean::TokenMean;
use crate::LossOutput;

/// Counted targets per second. Higher is better. The first batch of an epoch only starts the clock.
#[derive(Clone)]
pub struct TokensPerSecond {
    mean: TokenMean,
    newest: Option<Instant>,
}

impl Default for TokensPerSecond {
    fn default() -> Self {
        Self::new()
    }
}

impl TokensPerSecond {
    /// The metric of an epoch that has not begun.
    pub fn new() -> Self {
        Self { mean: TokenMean::new(|rate| rate), newest: None }
    }

    /// Counts the targets of a batch that is done `now`.
    fn count(&mut self, targets: f64, now: Instant) -> SerializedEntry {
        match self.newest.replace(now) {
            None => SerializedEntry::not_available(Some("tokens/s")),
            Some(before) => self.mean.add(targets, (now - before).as_secs_f64(), targets),
        }
    }
}

impl Metric for TokensPerSecond {
    type Input = LossOutput;

    fn name(&self) -> MetricName {
        Arc::new("Tokens per second".into())
    }

    fn description(&self) -> Option<String> {
        Some("counted targets per second".into())
    }

    fn attributes(&self) -> MetricAttributes {
        NumericAttributes { unit: Some("tokens/s".into()), higher_is_better: true }.into()
    }

    fn update(&mut self, output: &LossOutput, _metadata: &MetricMetadata) -> Result<SerializedEntry, TensorReadError> {
        let (_, count) = output.read()?;
        Ok(self.count(count, Instant::now()))
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(self.mean.entry(self.mean.last()))
    }

    fn clear(&mut self) {
        *self = Self::new();
    }
}

impl Numeric for TokensPerSecond {
    fn value(&self) -> Option<NumericEntry> {
        Some(self.mean.newest())
    }

    fn running_value(&self) -> Option<NumericEntry> {
        Some(self.mean.running())
    }

    fn final_value(&self) -> NumericEntry {
        self.mean.last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::data::dataloader::Progress;
    use burn::tensor::{Device, Tensor};
    use std::time::Duration;

    #[test]
    fn the_clock_runs_from_batch_to_batch() {
        let (mut metric, began) = (TokensPerSecond::new(), Instant::now());
        assert!(metric.count(64.0, began).is_not_available());
        metric.count(64.0, began + Duration::from_secs(2));
        assert_eq!((metric.final_value().current(), metric.value().unwrap().current()), (32.0, 32.0));
        metric.count(32.0, began + Duration::from_secs(4));
        assert_eq!((metric.final_value().current(), metric.value().unwrap().current()), (24.0, 16.0));
    }

    #[test]
    fn an_epoch_begins_without_a_rate() {
        let metadata = MetricMetadata { progress: Progress::new(1, 1, None), iteration: None, lr: None };
        let number = |value| Tensor::from_floats([value], &Device::default());
        let output = LossOutput::new(number(1.0_f32), number(64.0));
        let mut metric = TokensPerSecond::new();
        assert!(metric.update(&output, &metadata).unwrap().is_not_available());
        assert!(!metric.update(&output, &metadata).unwrap().is_not_available());
        metric.clear();
        assert!(metric.update(&output, &metadata).unwrap().is_not_available());
    }
}
