//! The running state that the metrics share: a sum over targets and their number, for the newest batch and for the epoch,
//! both shown as one number by a function of the metric.

use burn::train::metric::{NumericEntry, SerializedEntry, format_float};

/// Digits after the point that are shown.
const PRECISION: usize = 3;

/// Sums over one epoch, shown as `value(sum / weight)`.
#[derive(Clone)]
pub(super) struct TokenMean {
    value: fn(f64) -> f64,
    batch: Sums,
    epoch: Sums,
    targets: f64,
}

/// A sum and what it is divided by.
#[derive(Clone, Copy, Default)]
struct Sums {
    sum: f64,
    weight: f64,
}

impl TokenMean {
    /// Nothing has been added yet.
    pub(super) fn new(value: fn(f64) -> f64) -> Self {
        Self { value, batch: Sums::default(), epoch: Sums::default(), targets: 0.0 }
    }

    /// Adds a batch with `targets` targets.
    pub(super) fn add(&mut self, sum: f64, weight: f64, targets: f64) -> SerializedEntry {
        self.batch = Sums { sum, weight };
        self.epoch = Sums { sum: self.epoch.sum + sum, weight: self.epoch.weight + weight };
        self.targets = targets;
        self.entry(self.newest())
    }

    /// Forgets the epoch.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.value);
    }

    /// The value of the newest batch.
    pub(super) fn newest(&self) -> NumericEntry {
        NumericEntry::Aggregated { aggregated_value: self.of(self.batch), count: self.targets as usize }
    }

    /// The value of the epoch so far.
    pub(super) fn running(&self) -> NumericEntry {
        NumericEntry::Value(self.of(self.epoch))
    }

    /// The value of the whole epoch.
    pub(super) fn last(&self) -> NumericEntry {
        NumericEntry::Final(self.of(self.epoch))
    }

    /// The text that Burn shows, with `number` as what it stores.
    pub(super) fn entry(&self, number: NumericEntry) -> SerializedEntry {
        let [epoch, batch] = [self.epoch, self.batch].map(|sums| format_float(self.of(sums), PRECISION));
        SerializedEntry::new(format!("epoch {epoch} - batch {batch}"), number.serialize())
    }

    fn of(&self, sums: Sums) -> f64 {
        (self.value)(sums.sum / sums.weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_weighs_by_targets_and_not_by_batches() {
        // One target of loss 3 and three targets of loss 1 each: (3 + 3) / 4.
        let mut mean = TokenMean::new(|mean| mean);
        mean.add(3.0, 1.0, 1.0);
        let entry = mean.add(3.0, 3.0, 3.0);
        assert_eq!(mean.newest().current(), 1.0);
        assert_eq!(mean.last().current(), 1.5);
        assert_eq!((entry.formatted.as_str(), entry.serialized.as_str()), ("epoch 1.500 - batch 1.000", "1,3"));
        mean.clear();
        assert!(mean.running().current().is_nan());
    }
}
