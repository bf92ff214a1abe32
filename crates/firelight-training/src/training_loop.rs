//! What happens after which step of a run: reports, evaluations, the best weights, checkpoints, the end. It takes its steps
//! from `trainer.rs`, writes through `checkpoint.rs`, and is driven by [`fit`](crate::fit()).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::iter;
use std::time::Instant;

use burn::data::dataloader::DataLoaderIterator;
use burn::train::{TrainLoader, TrainStep, ValidLoader};
use firelight_storage::{InputError, ModelFolder, has_adapters, save_adapters};

use crate::checkpoint::{RunState, save_best, save_last, save_step};
use crate::evaluate::{evaluate_with, finish, names_of};
use crate::events::Events;
use crate::observer::Observers;
use crate::ranks::{Ranks, Share};
use crate::spare;
use crate::trainer::Trainer;
use crate::writer::Writer;
use crate::{
    EvaluationReport, Evaluator, LossScale, Observer, RunReport, Score, Trainable, TrainingConfig, TrainingError,
};

/// How a run ended.
pub(crate) struct Finished {
    pub(crate) state: RunState,
    pub(crate) interrupted: bool,
    pub(crate) figures: Option<Vec<(String, String)>>,
}

/// A training in progress.
pub(crate) struct TrainingLoop<M> {
    pub(crate) trainer: Trainer<M>,
    pub(crate) state: RunState,
    pub(crate) training: TrainingConfig,
    pub(crate) evaluator: Box<dyn Evaluator<M>>,
    /// Whether the evaluator has judged the weights as they are now.
    pub(crate) judged: bool,
    /// The ranks that share an evaluation.
    pub(crate) evaluating: Ranks,
    /// The score that decides which evaluation is the best; none is the loss.
    pub(crate) deciding: Option<Score>,
    /// Whether Burn's early stopping has ended the run.
    pub(crate) early_stopped: bool,
    pub(crate) folder: Option<ModelFolder>,
    pub(crate) observers: Observers,
}

impl<M: Trainable> TrainingLoop<M> {
    /// Takes all steps that are left. The checkpoint after the last one is written at the very end, so that a run whose
    /// newest checkpoint is its last lacks nothing; such a run changes nothing.
    pub(crate) fn train(
        &mut self,
        train_loader: &TrainLoader<M>,
        valid_loader: &ValidLoader<M>,
        events: &mut Events<M>,
    ) -> Result<Finished, TrainingError> {
        self.observers.started(&RunReport { done: self.state.step, steps: self.training.steps })?;
        let mut interrupted = false;
        if !self.state.is_finished(&self.training) {
            // Not where the moments are shared: there memory is short, and so much is never needed.
            if self.folder.is_some() && self.training.checkpoint_every > 0 && self.trainer.shards.is_none() {
                spare::take(&self.trainer.model, &self.trainer.device());
            }
            let writer = Writer::start();
            let taken = self.take_steps(train_loader, valid_loader, events, &writer);
            // What was handed over is written also when a later step fails.
            let written = writer.finish();
            interrupted = taken?;
            written?;
            self.finish(valid_loader, events, interrupted)?;
            self.trainer.ranks.meet()?; // No rank ends well before everything is written.
        }
        self.observers.finished()?;
        let figures = self.judged.then(|| self.evaluator.figures()).flatten();
        Ok(Finished { state: self.state.clone(), interrupted, figures })
    }

    /// Takes steps until the run ends, and returns whether it was interrupted before. An evaluation that is due is made before an
    /// interruption, so that a resumed run has those of an uninterrupted one.
    fn take_steps(
        &mut self,
        train_loader: &TrainLoader<M>,
        valid_loader: &ValidLoader<M>,
        events: &mut Events<M>,
        writer: &Writer,
    ) -> Result<bool, TrainingError> {
        let loader = train_loader.to_device(&self.trainer.device());
        let mut batches = loader.iter();
        let mut left_out = self.share().before;
        while !self.ends() && !writer.has_failed() {
            self.step(batches.as_mut(), left_out, loader.num_items(), events)?;
            left_out = self.share().others;
            if self.training.evaluates_after(self.state.step) {
                self.evaluate(valid_loader, events, writer)?;
            }
            if self.trainer.ranks.any(events.should_stop())? && !self.ends() {
                return Ok(true);
            }
            if !self.ends() && self.training.checkpoints_after(self.state.step) {
                self.checkpoint(writer)?;
            }
        }
        Ok(false)
    }

    fn ends(&self) -> bool {
        self.early_stopped || self.state.ends(&self.training)
    }

    /// What this rank computes of every group of batches.
    fn share(&self) -> Share {
        self.trainer.ranks.share(self.training.gradient_accumulation_steps)
    }

    /// Takes the next step, whose first `left_out` batches are of other ranks.
    fn step(
        &mut self,
        batches: &mut (dyn DataLoaderIterator<<M as TrainStep>::Input> + '_),
        left_out: usize,
        items: usize,
        events: &mut Events<M>,
    ) -> Result<(), TrainingError> {
        let began = Instant::now();
        events.training(items);
        let (step, steps) = (self.state.step + 1, self.training.steps);
        let first = batches.nth(left_out);
        if first.is_none() && self.trainer.ranks.is_first() {
            return Err(too_few_batches(step, steps).into());
        }
        let newest = RefCell::new(batches.progress());
        let rest = iter::from_fn(|| {
            let batch = batches.next()?;
            newest.replace(batches.progress());
            Some(batch)
        });
        let group = self.share().taken(first, rest);
        let rate = self.trainer.learning_rate();
        let tell = |output| events.trained(output, newest.borrow().clone(), (step, rate));
        let report = self.trainer.step_since(began, group, tell)?;
        self.state.step = report.step;
        self.judged = false;
        self.state.loss_scale = self.trainer.loss_scale.as_ref().map(LossScale::state);
        self.observers.step(&report)
    }

    /// Measures the validation loss and the scores in one pass, and keeps the weights if they are the best.
    fn evaluate(
        &mut self,
        loader: &ValidLoader<M>,
        events: &mut Events<M>,
        writer: &Writer,
    ) -> Result<(), TrainingError> {
        let model = self.trainer.kept();
        events.validating(loader.num_items());
        let (valid, evaluator) = (model.valid(), self.evaluator.as_mut());
        let tell = |output, progress| events.validated(output, progress);
        let evaluation = evaluate_with(&valid, loader.as_ref(), &self.evaluating, evaluator, tell)?;
        let stops = events.end_epoch(&self.trainer);
        self.early_stopped |= self.trainer.ranks.any(stops)?;
        let metrics = self.scores(&valid)?;
        self.judged = true;
        let badness = self.deciding.map_or(evaluation.loss, |score| {
            let value = metrics[score.name];
            if score.higher_is_better { -value } else { value } // lower is better
        });
        self.trainer.check_validation("validation loss", evaluation.loss)?;
        self.trainer.check_validation("metric of `training.monitor`", badness)?;
        check_scores(self.state.step, &metrics)?;
        let is_best = self.state.note(evaluation.loss, badness);
        if let (true, Some(folder)) = (is_best, self.folder.clone()) {
            let state = self.state.clone();
            writer.write(move || save_best(&folder, &model, &state));
        }
        let report = EvaluationReport { step: self.state.step, validation_loss: evaluation.loss, metrics, is_best };
        self.observers.evaluation(&report)
    }

    /// The scores of an evaluation of all batches, by name.
    fn scores(&mut self, model: &M) -> Result<BTreeMap<String, f64>, TrainingError> {
        let names = names_of(self.evaluator.as_ref()).into_iter().map(str::to_string);
        Ok(names.zip(finish(self.evaluator.as_mut(), model, &self.evaluating)?).collect())
    }

    /// Hands everything that is needed to continue to the writer.
    fn checkpoint(&self, writer: &Writer) -> Result<(), TrainingError> {
        let others = self.states_of_others()?;
        let Some(folder) = self.folder.clone() else { return Ok(()) };
        let (model, optimizer) = (self.trainer.model.clone(), self.trainer.optimizer.clone());
        let kind = self.trainer.optimizer_config.kind();
        let ema = self.trainer.ema.is_some().then(|| self.trainer.kept());
        let (state, keep) = (self.state.clone(), self.training.keep_checkpoints);
        writer.write(move || save_step(&folder, &model, ema.as_ref(), (kind, &optimizer, others), &state, keep));
        Ok(())
    }

    /// The states of the optimiser that other ranks keep, on the first one if it writes; none where each rank has the whole state.
    fn states_of_others(&self) -> Result<Vec<Vec<u8>>, TrainingError> {
        let Trainer { ranks, optimizer, shards, .. } = &self.trainer;
        if shards.is_some() && ranks.any(self.folder.is_some())? {
            return ranks.states_of_others(optimizer);
        }
        Ok(Vec::new())
    }

    /// Writes the last weights and, after them, the last checkpoint. A run that had no step left to take is evaluated here
    /// if it never was.
    fn finish(
        &mut self,
        loader: &ValidLoader<M>,
        events: &mut Events<M>,
        interrupted: bool,
    ) -> Result<(), TrainingError> {
        let writer = Writer::start();
        if !interrupted && self.state.evaluation.is_none_or(|newest| newest.step != self.state.step) {
            self.evaluate(loader, events, &writer)?;
        }
        if let Some(folder) = &self.folder {
            let kept = self.trainer.kept();
            save_last(folder, &kept, self.state.step)?;
            if has_adapters(&kept) {
                save_adapters(&kept, folder.adapters())?;
            }
        }
        self.checkpoint(&writer)?;
        writer.finish()
    }
}

/// Refuses a score that is no number: it would be lost in the files, where there is no such number.
fn check_scores(step: usize, scores: &BTreeMap<String, f64>) -> Result<(), InputError> {
    match scores.iter().find(|(_, value)| !value.is_finite()) {
        None => Ok(()),
        Some((name, value)) => {
            let problem =
                format!("step {step}: the score `{name}` of the validation is {value}, but a score must be a number");
            Err(InputError::new(problem).advise("say in its evaluator what it is where it has no value, such as 0"))
        }
    }
}

/// Training batches that end before the run does.
fn too_few_batches(step: usize, steps: usize) -> InputError {
    InputError::new(format!("the training data ended before step {step} of {steps}"))
        .advise("the loader must yield one batch for every step")
}
