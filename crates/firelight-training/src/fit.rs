//! Trains any Burn model step by step, as a strategy of Burn's `SupervisedTraining`. A task crate calls [`fit()`] with its
//! model and loaders; `training_loop.rs` decides what happens after which step. This file and `events.rs` alone know Burn's
//! `Learner`, whose interfaces change most from version to version.

use std::path::Path;
use std::sync::{Arc, Mutex};

use burn::train::{
    InferenceStep, Interrupter, Learner, LearnerModel, SupervisedLearningStrategy, SupervisedTraining,
    SupervisedTrainingEventProcessor, TrainLoader, TrainStep, TrainingComponents, TrainingStrategy, ValidLoader,
};
use firelight_storage::{InputError, ModelFolder};

use crate::config::all_of;
use crate::evaluate::{device_of, names_of, needs_all};
use crate::evaluator::deciding;
use crate::events::{Events, NoLog, NoRenderer, Stretches};
use crate::freeze;
use crate::observer::Observers;
use crate::ranks::{Ranks, Shards, Term, settings, weights};
use crate::trainer::Trainer;
use crate::training_loop::{Finished, TrainingLoop};
use crate::{
    Alone, Communicator, Evaluator, LossScale, Observer, OptimizerConfig, Precision, ScheduleConfig, StartPoint,
    StepOutput, TrainingConfig, TrainingError, ValidationLoss,
};

/// A model that [`fit()`] can train: Burn's `LearnerModel` whose steps return [`StepOutput`]s, such as Burn's own.
pub trait Trainable: LearnerModel + TrainStep<Output: StepOutput> + InferenceStep<Output: StepOutput> {}

impl<M> Trainable for M where M: LearnerModel + TrainStep<Output: StepOutput> + InferenceStep<Output: StepOutput> {}

/// Adds metrics, a renderer or loggers of Burn to a training.
///
/// [`fit()`] takes the steps itself. To Burn an epoch is the stretch from one evaluation to the next: `early_stopping` is
/// asked after each, and checkpointers write after each, with the step as their key. The length of a run and its resumable
/// checkpoints are those of [`TrainingConfig`]; `num_epochs`, `grads_accumulation` and `checkpoint` are accepted by the
/// builder and not looked at. The training strategy must stay: it is how [`fit()`] comes to train.
pub type Extension<M> = Box<dyn FnOnce(SupervisedTraining<M>) -> SupervisedTraining<M>>;

/// All that a training needs besides the model. Begin with [`FitInput::new`] and set the fields that differ.
pub struct FitInput<M: Trainable> {
    /// The training batches in order, one for each step from the one after `start` on.
    pub train_loader: TrainLoader<M>,
    /// The validation batches, the same at every evaluation.
    pub valid_loader: ValidLoader<M>,
    /// How long, and what happens on the way.
    pub training: TrainingConfig,
    /// The optimiser and the clipping.
    pub optimizer: OptimizerConfig,
    /// The learning rate by step.
    pub schedule: ScheduleConfig,
    /// Decides, with the step, over all randomness in the model, such as dropout.
    pub seed: u64,
    /// Where weights and checkpoints go; without it nothing is written.
    pub folder: Option<ModelFolder>,
    /// The beginning, or the checkpoint to continue.
    pub start: StartPoint,
    /// Who receives the reports of the run.
    pub observers: Vec<Box<dyn Observer>>,
    /// Stops the run after the current step when asked to.
    pub interrupter: Interrupter,
    /// The scale of the loss that the task multiplies with, which `training.precision` = `f16` needs.
    pub loss_scale: Option<LossScale>,
    /// What makes scores of every evaluation, beside the loss.
    pub evaluator: Box<dyn Evaluator<M>>,
    /// Burn's own metrics and renderers, if wanted.
    pub extension: Option<Extension<M>>,
    /// The ranks that train together, each with an input of its own. Default: one process by itself.
    pub communicator: Arc<dyn Communicator>,
    /// What else all ranks must have in common, by name, such as the commit of the program, the recipe and checksums of the data.
    pub in_common: Vec<(String, String)>,
}

impl<M: Trainable> FitInput<M> {
    /// The default settings on the given data: no folder, no observers.
    pub fn new(train_loader: TrainLoader<M>, valid_loader: ValidLoader<M>) -> Self {
        Self {
            train_loader,
            valid_loader,
            training: TrainingConfig::default(),
            optimizer: OptimizerConfig::default(),
            schedule: ScheduleConfig::default(),
            seed: 0,
            folder: None,
            start: StartPoint::default(),
            observers: Vec::new(),
            interrupter: Interrupter::new(),
            loss_scale: None,
            evaluator: Box::new(()),
            extension: None,
            communicator: Arc::new(Alone),
            in_common: Vec::new(),
        }
    }

    /// Everything that decides about the training and that the ranks must have in common.
    fn terms(&self, model: &M) -> Result<Vec<Term>, TrainingError> {
        let items = [self.train_loader.num_items(), self.valid_loader.num_items()];
        let mut terms = settings("version", &env!("CARGO_PKG_VERSION"));
        terms.extend(settings("world", &self.communicator.world()));
        terms.extend(settings("training", &self.training));
        terms.extend(settings("optimizer", &self.optimizer));
        terms.extend(settings("schedule", &self.schedule));
        terms.extend(settings("seed", &self.seed));
        terms.extend(settings("first step", &self.start.step()));
        terms.extend(settings("number of training and validation items", &items));
        terms.extend(settings("list of scores", &names_of(self.evaluator.as_ref())));
        terms.extend(self.in_common.iter().cloned());
        terms.push(weights(model)?);
        Ok(terms)
    }
}

/// What a training leaves behind.
#[derive(Debug)]
pub struct Fitted<M> {
    /// The model after the last step, without gradients; the moving average of its weights, where one is kept.
    pub model: M,
    /// Steps done, earlier runs included.
    pub steps: usize,
    /// The newest evaluation, which follows the last step unless the run was interrupted.
    pub evaluation: Option<ValidationLoss>,
    /// The best evaluation.
    pub best: Option<ValidationLoss>,
    /// What the evaluator drew of that last step ([`Evaluator::figures`]); none where it draws nothing or did not see it.
    pub figures: Option<Vec<(String, String)>>,
    /// Whether the run was stopped by its interrupter before its last step.
    pub interrupted: bool,
}

/// Trains `model`, writes what the settings ask for, and returns it.
///
/// One seed, one model and one order of batches give the same weights to the bit on a CPU, also across an interruption
/// that is continued from a checkpoint. The run evaluates and writes a checkpoint after its last step in any case.
///
/// Several ranks with a [`FitInput::communicator`] call it at the same time, each with a model of its own and loaders of all batches. They
/// share the batches of each step and train what one process trains, to the bit on a CPU. Rank 0 alone writes and reports. A rank that
/// fails ends all of them.
///
/// # Errors
/// Fails if a setting is out of its range, a file cannot be read or written, a batch cannot be loaded, or the loss or the
/// norm of the gradients is no longer a finite number. Checkpoints written before stay. Ranks fail if they cannot share the batches of a
/// step, if they did not begin alike, or if one of them has failed or does not answer in time.
pub fn fit<M: Trainable>(model: M, input: FitInput<M>) -> Result<Fitted<M>, TrainingError> {
    let ranks = Ranks::new(input.communicator.clone());
    ranks.tell(fit_on(&ranks, model, input))
}

/// Trains as one of `ranks`.
fn fit_on<M: Trainable>(ranks: &Ranks, model: M, mut input: FitInput<M>) -> Result<Fitted<M>, TrainingError> {
    all_of([
        input.training.validate(),
        input.optimizer.validate(),
        input.optimizer.validate_for(&model),
        input.schedule.validate(),
        freeze::check(&model, &[], &input.training.freeze),
    ])?;
    ranks.check(input.training.gradient_accumulation_steps)?;
    let model = if device_of(&model).is_autodiff() { model } else { model.train() };
    input.training.check_device(&device_of(&model))?;
    input.start.check_seed(input.seed)?;
    let loss_scale = restored(input.loss_scale.clone(), &input.training, &input.start)?;
    let deciding = deciding(&input.evaluator.scores(), &input.training.monitor)?;
    let model = input.start.restore_model(model, &input.optimizer)?;
    let model = freeze::freeze(model, &input.training.freeze)?;
    let model = input.training.recompute.apply(model);
    let shards = input.training.shard_optimizer.then(|| Shards::of(&model, ranks)).flatten();
    let optimizer = input.start.optimizer(&model, &input.optimizer, shards.as_ref())?;
    let ema = input.start.ema(&model, input.training.ema_decay)?;
    if !ranks.are_one() {
        ranks.agree(input.terms(&model)?)?;
    }
    // Burn's metrics, and scores that are not shared, are made of the outputs of all batches, which every rank then computes for itself.
    let evaluating = ranks.evaluating(needs_all(input.evaluator.as_mut()) || input.extension.is_some())?;
    let schedule = input.schedule.over(input.training.steps);

    let stretches = Stretches::new(input.start.step(), &input.training);
    let directory = input.folder.as_ref().map_or(Path::new("."), ModelFolder::path).to_path_buf();
    let run = TrainingLoop {
        trainer: Trainer {
            model: model.clone(),
            optimizer: optimizer.clone(),
            optimizer_config: input.optimizer.clone(),
            schedule: schedule.clone(),
            seed: input.seed,
            accumulate: input.training.gradient_accumulation_steps,
            ranks: ranks.clone(),
            exchange: input.training.exchange,
            shards,
            ema,
            loss_scale,
            done: input.start.step(),
        },
        evaluator: input.evaluator,
        judged: false,
        evaluating,
        deciding,
        early_stopped: false,
        state: input.start.state.of_seed(input.seed),
        training: input.training,
        folder: input.folder.filter(|_| ranks.is_first()),
        observers: Observers(if ranks.is_first() { input.observers } else { Vec::new() }),
    };
    let strategy = Arc::new(StepByStep { run: Mutex::new(Some(run)), outcome: Mutex::new(None) });
    let training = SupervisedTraining::new(directory, input.train_loader, input.valid_loader)
        .with_application_logger(None)
        .with_metric_logger(NoLog)
        .renderer(Box::new(NoRenderer))
        .with_interrupter(input.interrupter)
        .num_epochs(stretches.count()) // for those who show how far it is
        .with_training_strategy(TrainingStrategy::Custom(strategy.clone()));
    let training = match input.extension {
        Some(extend) => extend(training),
        None => training,
    };
    let result = training.launch(Learner::new(model, optimizer, schedule.init(input.optimizer.learning_rate)));

    let outcome = strategy.outcome.lock().ok().and_then(|mut outcome| outcome.take());
    let finished = outcome.unwrap_or_else(|| unreachable!("Burn runs the strategy before it returns"))?;
    match result.error {
        Some(error) => Err(TrainingError::Burn(error)),
        None => Ok(Fitted {
            model: result.model,
            steps: finished.state.step,
            evaluation: finished.state.evaluation,
            best: finished.state.best,
            figures: finished.figures,
            interrupted: finished.interrupted,
        }),
    }
}

/// The scale of the loss, where the run left it.
fn restored(
    scale: Option<LossScale>,
    training: &TrainingConfig,
    start: &StartPoint,
) -> Result<Option<LossScale>, TrainingError> {
    if training.precision == Precision::F16 && scale.is_none() {
        let problem =
            "`training.precision` = f16 needs a scale for the loss: hand that of the task to `FitInput::loss_scale`";
        return Err(InputError::new(problem).into());
    }
    if let (Some(scale), Some(state)) = (&scale, start.state.loss_scale) {
        scale.restore(state);
    }
    Ok(scale)
}

/// Burn's strategy that takes the steps of one run.
struct StepByStep<M: Trainable> {
    run: Mutex<Option<TrainingLoop<M>>>,
    outcome: Mutex<Option<Result<Finished, TrainingError>>>,
}

impl<M: Trainable> SupervisedLearningStrategy<M> for StepByStep<M> {
    fn fit(
        &self,
        mut components: TrainingComponents<M>,
        learner: Learner<M>,
        train_loader: TrainLoader<M>,
        valid_loader: ValidLoader<M>,
        _starting_epoch: usize,
    ) -> (M, SupervisedTrainingEventProcessor<M>) {
        let run = self.run.lock().ok().and_then(|mut run| run.take());
        let mut run = run.unwrap_or_else(|| unreachable!("Burn runs a strategy once"));
        let in_parts = components.checkpointer.is_some() && run.trainer.shards.is_some();
        components.checkpointer = components.checkpointer.filter(|_| run.trainer.ranks.is_first());
        let mut events = Events::new(components, Stretches::new(run.state.step, &run.training));
        drop(learner);
        let outcome = match in_parts {
            true => Err(no_checkpointer().into()),
            false => run.train(&train_loader, &valid_loader, &mut events),
        };
        if let Ok(mut slot) = self.outcome.lock() {
            *slot = Some(outcome);
        }
        (run.trainer.kept(), events.into_processor())
    }
}

/// A checkpointer of Burn's writes the optimiser of the first rank, which has a part of the state.
fn no_checkpointer() -> InputError {
    InputError::new("a checkpointer of Burn's and training.shard_optimizer = true do not go together: it would keep a part of the state")
        .advise("leave one of them out; checkpoints of the run folder hold all of it")
}

#[cfg(test)]
mod tests;
