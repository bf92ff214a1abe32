//! What the trainer tells about a run while it goes on, and the trait of those who listen: the progress bar, the metrics
//! file, and whatever a user adds.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::TrainingError;

/// What is known when a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunReport {
    /// Steps that an earlier run has done already.
    pub done: usize,
    /// The step at which the run ends.
    pub steps: usize,
}

/// One optimiser step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepReport {
    /// The step, counted from 1 over all resumed runs.
    pub step: usize,
    /// The mean loss of the batch in nats per target, before the step.
    pub loss: f64,
    /// The mean of the loss that the step minimised in nats per target, where that is not `loss`: with label smoothing, z-loss or
    /// class weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training_loss: Option<f64>,
    /// The learning rate of the step.
    pub learning_rate: f64,
    /// The norm of all gradients together, before clipping.
    pub gradient_norm: f64,
    /// Counted targets per second, loading of the batch included.
    pub tokens_per_second: f64,
}

/// One evaluation over the whole validation data.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EvaluationReport {
    /// The number of steps done before it.
    pub step: usize,
    /// The mean loss in nats per target.
    pub validation_loss: f64,
    /// The metrics of the task by name.
    #[serde(flatten)]
    pub metrics: BTreeMap<String, f64>,
    /// Whether it is the best of the run so far.
    #[serde(skip)]
    pub is_best: bool,
}

/// Receives the reports of a run. Every method does nothing by default; an error ends the run.
///
/// # Errors
/// What an observer returns stops the training and reaches the caller of [`fit`](crate::fit()).
pub trait Observer: Send {
    /// The run begins.
    fn started(&mut self, _run: &RunReport) -> Result<(), TrainingError> {
        Ok(())
    }

    /// A step is done.
    fn step(&mut self, _report: &StepReport) -> Result<(), TrainingError> {
        Ok(())
    }

    /// An evaluation is done.
    fn evaluation(&mut self, _report: &EvaluationReport) -> Result<(), TrainingError> {
        Ok(())
    }

    /// The run has ended, at its last step or by an interruption, and its files are written.
    fn finished(&mut self) -> Result<(), TrainingError> {
        Ok(())
    }
}

/// All observers of a run, called in turn.
pub(crate) struct Observers(pub(crate) Vec<Box<dyn Observer>>);

impl Observer for Observers {
    fn started(&mut self, run: &RunReport) -> Result<(), TrainingError> {
        self.0.iter_mut().try_for_each(|observer| observer.started(run))
    }

    fn step(&mut self, report: &StepReport) -> Result<(), TrainingError> {
        self.0.iter_mut().try_for_each(|observer| observer.step(report))
    }

    fn evaluation(&mut self, report: &EvaluationReport) -> Result<(), TrainingError> {
        self.0.iter_mut().try_for_each(|observer| observer.evaluation(report))
    }

    fn finished(&mut self) -> Result<(), TrainingError> {
        self.0.iter_mut().try_for_each(|observer| observer.finished())
    }
}
