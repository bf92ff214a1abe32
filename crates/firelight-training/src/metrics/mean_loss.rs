//! The metric behind [`Perplexity`](super::Perplexity) and [`BitsPerToken`](super::BitsPerToken): the mean loss of an epoch
//! over all counted targets, shown on the scale of the metric.

use std::marker::PhantomData;
use std::sync::Arc;

use burn::tensor::TensorReadError;
use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry, SerializedEntry,
};

use super::token_mean::TokenMean;
use crate::LossOutput;

/// How a mean loss is shown.
pub trait LossScale: Clone + Send + Sync + 'static {
    /// The name of the metric.
    const NAME: &'static str;
    /// What it tells, in a few words.
    const DESCRIPTION: &'static str;

    /// The value of a mean loss in nats per target.
    fn value(nats: f64) -> f64;
}

/// The mean loss over all counted targets of an epoch on the scale `S`. Lower is better.
#[derive(Clone)]
pub struct MeanLoss<S> {
    mean: TokenMean,
    scale: PhantomData<S>,
}

impl<S: LossScale> Default for MeanLoss<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: LossScale> MeanLoss<S> {
    /// The metric of an epoch that has not begun.
    pub fn new() -> Self {
        Self { mean: TokenMean::new(S::value), scale: PhantomData }
    }
}

impl<S: LossScale> Metric for MeanLoss<S> {
    type Input = LossOutput;

    fn name(&self) -> MetricName {
        Arc::new(S::NAME.into())
    }

    fn description(&self) -> Option<String> {
        Some(S::DESCRIPTION.into())
    }

    fn attributes(&self) -> MetricAttributes {
        NumericAttributes { unit: None, higher_is_better: false }.into()
    }

    fn update(&mut self, output: &LossOutput, _metadata: &MetricMetadata) -> Result<SerializedEntry, TensorReadError> {
        let (total, count) = output.read()?;
        Ok(self.mean.add(total, count, count))
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(self.mean.entry(self.mean.last()))
    }

    fn clear(&mut self) {
        self.mean.clear();
    }
}

impl<S: LossScale> Numeric for MeanLoss<S> {
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
