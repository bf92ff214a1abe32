//! What happens after which step of a run: reports, evaluations, the best weights, checkpoints, the end. It takes its steps
//! from `trainer.rs`, writes through `checkpoint.rs`, and is driven by [`fit`](crate::fit()).

use std::time::Instant;

use burn::data::dataloader::DataLoaderIterator;
use burn::train::{TrainLoader, TrainStep, ValidLoader};
use firelight_storage::{Checkpoint, ModelFolder, save_weights};

use crate::checkpoint::{RunState, save_best, save_step};
use crate::evaluate::evaluate_with;
use crate::events::Events;
use crate::observer::Observers;
use crate::trainer::{Trainer, check_finite};
use crate::{EvaluationReport, Observer, RunReport, Trainable, TrainingConfig, TrainingError};

/// How a run ended.
pub(crate) struct Finished {
    pub(crate) state: RunState,
    pub(crate) interrupted: bool,
}

/// A training in progress.
pub(crate) struct Run<M> {
    pub(crate) trainer: Trainer<M>,
    pub(crate) state: RunState,
    pub(crate) training: TrainingConfig,
    pub(crate) folder: Option<ModelFolder>,
    pub(crate) observers: Observers,
}

impl<M: Trainable> Run<M> {
    /// Takes all steps that are left, then writes the last weights.
    pub(crate) fn train(
        &mut self,
        train_loader: &TrainLoader<M>,
        valid_loader: &ValidLoader<M>,
        events: &mut Events<M>,
    ) -> Result<Finished, TrainingError> {
        let loader = train_loader.to_device(&self.trainer.device());
        let mut batches = loader.iter();
        let mut interrupted = false;
        self.observers.started(&RunReport { done: self.state.step, steps: self.training.steps })?;
        while self.state.step < self.training.steps && !interrupted {
            self.step(batches.as_mut(), loader.num_items(), events)?;
            interrupted = events.should_stop() && self.state.step < self.training.steps;
            if !interrupted && self.training.evaluates_after(self.state.step) {
                self.evaluate(valid_loader, events)?;
            }
            if interrupted || self.training.checkpoints_after(self.state.step) {
                self.checkpoint()?;
            }
        }
        self.finish(valid_loader, events, interrupted)?;
        Ok(Finished { state: self.state.clone(), interrupted })
    }

    /// Takes the next step.
    fn step(
        &mut self,
        batches: &mut (dyn DataLoaderIterator<<M as TrainStep>::Input> + '_),
        items: usize,
        events: &mut Events<M>,
    ) -> Result<(), TrainingError> {
        let began = Instant::now();
        events.training(items);
        let missing = TrainingError::TooFewBatches { step: self.state.step + 1, steps: self.training.steps };
        let batch = batches.next().ok_or(missing)?.map_err(TrainingError::data("training"))?;
        let (output, report) = self.trainer.step_since(began, batch)?;
        self.state.step = report.step;
        events.trained(output, batches.progress(), &report);
        self.observers.step(&report)
    }

    /// Measures the validation loss and keeps the weights if it is the lowest.
    fn evaluate(&mut self, loader: &ValidLoader<M>, events: &mut Events<M>) -> Result<(), TrainingError> {
        events.validating(loader.num_items());
        let evaluation =
            evaluate_with(&self.trainer.model, loader.as_ref(), |output, progress| events.validated(output, progress))?;
        events.end_epoch();
        check_finite(self.state.step, "validation loss", evaluation.loss)?;
        let is_best = self.state.note(evaluation.loss);
        if let (true, Some(folder)) = (is_best, &self.folder) {
            save_best(folder, &self.trainer.model, &self.state)?;
        }
        let report = EvaluationReport { step: self.state.step, validation_loss: evaluation.loss, is_best };
        self.observers.evaluation(&report)
    }

    fn checkpoint(&self) -> Result<(), TrainingError> {
        let Some(folder) = &self.folder else { return Ok(()) };
        save_step(folder, &self.trainer.model, &self.trainer.optimizer, &self.state)
    }

    /// Writes the last weights. A run that had no step left to take is evaluated here if it never was.
    fn finish(
        &mut self,
        loader: &ValidLoader<M>,
        events: &mut Events<M>,
        interrupted: bool,
    ) -> Result<(), TrainingError> {
        if !interrupted && self.state.evaluation.is_none_or(|newest| newest.step != self.state.step) {
            self.evaluate(loader, events)?;
        }
        if let Some(folder) = &self.folder {
            save_weights(&self.trainer.model, folder.weights_path(&Checkpoint::Last))?;
        }
        self.observers.finished()
    }
}
