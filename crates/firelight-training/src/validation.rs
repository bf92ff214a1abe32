//! Metrics of a task that are measured at every evaluation beside the loss, such as the accuracy of a classifier or the
//! BLEU of generated translations. [`TrainingConfig::best_by`](crate::TrainingConfig::best_by) may name one of them.

use std::collections::BTreeMap;

use crate::config::LOSS;
use crate::{Evaluation, TrainingError};

/// A number that tells how good a model is, measured on data of its own.
pub trait ValidationMetric<M>: Send {
    /// The name in `metrics.jsonl` and in recipes: `accuracy`.
    fn name(&self) -> &str;

    /// Whether a higher value is a better one.
    fn higher_is_better(&self) -> bool;

    /// Measures `model`, which has no gradients and no dropout.
    ///
    /// # Errors
    /// What a metric returns stops the training.
    fn measure(&mut self, model: &M) -> Result<f64, TrainingError>;
}

/// All metrics of a run and the one that decides.
pub(crate) struct Metrics<M> {
    all: Vec<Box<dyn ValidationMetric<M>>>,
    best_by: String,
}

/// What one evaluation found.
pub(crate) struct Measured {
    pub(crate) metrics: BTreeMap<String, f64>,
    /// How good the model is: the deciding metric, turned so that lower is better.
    pub(crate) badness: f64,
}

impl<M> Metrics<M> {
    /// # Errors
    /// Fails if `best_by` is the name of none.
    pub(crate) fn new(all: Vec<Box<dyn ValidationMetric<M>>>, best_by: &str) -> Result<Self, TrainingError> {
        let known: Vec<&str> = [LOSS].into_iter().chain(all.iter().map(|metric| metric.name())).collect();
        match known.contains(&best_by) {
            true => Ok(Self { best_by: best_by.into(), all }),
            false => Err(TrainingError::UnknownMetric { name: best_by.into(), known: known.join(", ") }),
        }
    }

    /// Measures them all on the evaluated `model`.
    pub(crate) fn measure(&mut self, model: &M, evaluation: &Evaluation) -> Result<Measured, TrainingError> {
        let mut measured = Measured { metrics: BTreeMap::new(), badness: evaluation.loss };
        for metric in &mut self.all {
            let value = metric.measure(model)?;
            measured.metrics.insert(metric.name().into(), value);
            if metric.name() == self.best_by {
                measured.badness = if metric.higher_is_better() { -value } else { value };
            }
        }
        Ok(measured)
    }
}
