//! Trains any Burn model step by step, as a strategy of Burn's `SupervisedTraining`. A task crate calls [`fit()`] with its
//! model and loaders; `training_loop.rs` decides what happens after which step. This file and `events.rs` alone know Burn's
//! `Learner`, whose interfaces change most from version to version.

use std::path::Path;
use std::sync::{Arc, Mutex};

use burn::train::{
    InferenceStep, Interrupter, Learner, LearnerModel, SupervisedLearningStrategy, SupervisedTraining,
    SupervisedTrainingEventProcessor, TrainLoader, TrainStep, TrainingComponents, TrainingStrategy, ValidLoader,
};
use firelight_storage::ModelFolder;

use crate::config::all_of;
use crate::evaluate::device_of;
use crate::events::{Events, NoLog, NoRenderer};
use crate::observer::Observers;
use crate::trainer::Trainer;
use crate::training_loop::{Finished, TrainingLoop};
use crate::validation::Metrics;
use crate::{
    LossOutput, LossScale, Observer, OptimizerConfig, Precision, ScheduleConfig, StartPoint, TrainingConfig,
    TrainingError, ValidationLoss, ValidationMetric,
};

/// A model that [`fit()`] can train: Burn's `LearnerModel` whose steps return [`LossOutput`].
pub trait Trainable: LearnerModel + TrainStep<Output = LossOutput> + InferenceStep<Output = LossOutput> {}

impl<M> Trainable for M where M: LearnerModel + TrainStep<Output = LossOutput> + InferenceStep<Output = LossOutput> {}

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
    /// Who is told about the run.
    pub observers: Vec<Box<dyn Observer>>,
    /// Stops the run after the current step when asked to.
    pub interrupter: Interrupter,
    /// The scale of the loss that the task multiplies with, which `training.precision` = `f16` needs.
    pub loss_scale: Option<LossScale>,
    /// Metrics of the task that are measured at every evaluation, beside the loss.
    pub metrics: Vec<Box<dyn ValidationMetric<M>>>,
    /// Burn's own metrics and renderers, if wanted.
    pub extension: Option<Extension<M>>,
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
            metrics: Vec::new(),
            extension: None,
        }
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
    /// Whether the run was stopped by its interrupter before its last step.
    pub interrupted: bool,
}

/// Trains `model`, writes what the settings ask for, and returns it.
///
/// One seed, one model and one order of batches give the same weights to the bit on a CPU, also across an interruption
/// that is continued from a checkpoint. The run evaluates and writes a checkpoint after its last step in any case.
///
/// # Errors
/// Fails if a setting is out of its range, a file cannot be read or written, a batch cannot be loaded, or the loss or the
/// norm of the gradients is no longer a finite number. Checkpoints written before stay.
pub fn fit<M: Trainable>(model: M, input: FitInput<M>) -> Result<Fitted<M>, TrainingError> {
    all_of([
        input.training.validate(),
        input.optimizer.validate(),
        input.optimizer.validate_for(&model),
        input.schedule.validate(),
    ])?;
    let model = if device_of(&model).is_autodiff() { model } else { model.train() };
    input.training.check_device(&device_of(&model))?;
    let loss_scale = restored(input.loss_scale, &input.training, &input.start)?;
    let metrics = Metrics::new(input.metrics, &input.training.best_by)?;
    let (model, optimizer) = input.start.restore(model, &input.optimizer)?;
    let model = input.training.recompute.apply(model);

    let run = TrainingLoop {
        trainer: Trainer {
            model: model.clone(),
            optimizer: optimizer.clone(),
            optimizer_config: input.optimizer.clone(),
            schedule: input.schedule.clone(),
            seed: input.seed,
            accumulate: input.training.accumulate,
            smoothed: input.start.smoothed(&model, input.training.smoothing)?,
            loss_scale,
            done: input.start.step(),
        },
        metrics,
        stopped: false,
        state: input.start.state,
        training: input.training,
        folder: input.folder,
        observers: Observers(input.observers),
    };
    let directory = run.folder.as_ref().map_or(Path::new("."), ModelFolder::path).to_path_buf();
    let strategy = Arc::new(StepByStep { run: Mutex::new(Some(run)), outcome: Mutex::new(None) });
    let training = SupervisedTraining::new(directory, input.train_loader, input.valid_loader)
        .with_application_logger(None)
        .with_metric_logger(NoLog)
        .renderer(Box::new(NoRenderer))
        .with_interrupter(input.interrupter)
        .with_training_strategy(TrainingStrategy::Custom(strategy.clone()));
    let training = match input.extension {
        Some(extend) => extend(training),
        None => training,
    };
    let schedule = input.schedule.init(input.optimizer.learning_rate);
    let result = training.launch(Learner::new(model, optimizer, schedule));

    let outcome = strategy.outcome.lock().ok().and_then(|mut outcome| outcome.take());
    let finished = outcome.unwrap_or_else(|| unreachable!("Burn runs the strategy before it returns"))?;
    match result.error {
        Some(error) => Err(TrainingError::Burn(error)),
        None => Ok(Fitted {
            model: result.model,
            steps: finished.state.step,
            evaluation: finished.state.evaluation,
            best: finished.state.best,
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
        return Err(TrainingError::NoLossScale);
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
        components: TrainingComponents<M>,
        learner: Learner<M>,
        train_loader: TrainLoader<M>,
        valid_loader: ValidLoader<M>,
        _starting_epoch: usize,
    ) -> (M, SupervisedTrainingEventProcessor<M>) {
        let mut events = Events::new(components);
        let run = self.run.lock().ok().and_then(|mut run| run.take());
        let mut run = run.unwrap_or_else(|| unreachable!("Burn runs a strategy once"));
        drop(learner);
        let outcome = run.train(&train_loader, &valid_loader, &mut events);
        if let Ok(mut slot) = self.outcome.lock() {
            *slot = Some(outcome);
        }
        (run.trainer.kept(), events.into_processor())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::metrics::Perplexity;
    use crate::toy::{Line, PointLoader, alone};
    use crate::{EvaluationReport, RunReport, StepReport, resume_point};
    use burn::tensor::Device;
    use burn::train::checkpoint::FileCheckpointer;
    use burn::train::logger::FileMetricLogger;
    use burn::train::metric::LossMetric;
    use burn::train::metric::store::{Aggregate, Direction, Split as BurnSplit};
    use burn::train::{MetricEarlyStoppingStrategy, StoppingCondition};
    use firelight_storage::{Checkpoint, Existing};

    /// Remembers what it is told, and stops the run after a step if asked to.
    #[derive(Clone, Default)]
    struct Listener {
        heard: Arc<Mutex<Vec<String>>>,
        stop: Option<(usize, Interrupter)>,
    }

    impl Listener {
        fn hear(&self, what: String) -> Result<(), TrainingError> {
            self.heard.lock().unwrap().push(what);
            Ok(())
        }
    }

    impl Observer for Listener {
        fn started(&mut self, run: &RunReport) -> Result<(), TrainingError> {
            self.hear(format!("started {}/{}", run.done, run.steps))
        }

        fn step(&mut self, report: &StepReport) -> Result<(), TrainingError> {
            if let Some((_, interrupter)) = self.stop.as_ref().filter(|(step, _)| *step == report.step) {
                interrupter.stop(None);
            }
            self.hear(format!("step {}", report.step))
        }

        fn evaluation(&mut self, report: &EvaluationReport) -> Result<(), TrainingError> {
            self.hear(format!("evaluation {}", report.step))
        }

        fn finished(&mut self) -> Result<(), TrainingError> {
            self.hear("finished".into())
        }
    }

    fn line() -> Line {
        Line::new(0.0, 0.0, &Device::default().autodiff()).with_dropout(0.3)
    }

    /// `steps` steps with an evaluation and a checkpoint every four, from `start` on.
    fn input(steps: usize, start: StartPoint, folder: Option<&ModelFolder>) -> FitInput<Line> {
        let train_loader = Arc::new(PointLoader::of_steps(start.step(), steps.max(start.step())));
        FitInput {
            training: TrainingConfig { steps, evaluate_every: 4, checkpoint_every: 4, ..TrainingConfig::default() },
            optimizer: OptimizerConfig { learning_rate: 0.1, ..OptimizerConfig::default() },
            schedule: ScheduleConfig { warmup_steps: 2, steps: 20, ..ScheduleConfig::default() },
            seed: 7,
            folder: folder.cloned(),
            start,
            ..FitInput::new(train_loader, Arc::new(PointLoader::of_steps(0, 3)))
        }
    }

    fn run_folder() -> (tempfile::TempDir, ModelFolder) {
        let home = tempfile::tempdir().unwrap();
        let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
        (home, folder)
    }

    fn bytes(folder: &ModelFolder, checkpoint: Checkpoint) -> Vec<u8> {
        fs::read(folder.weights(&checkpoint).unwrap()).unwrap()
    }

    #[test]
    fn a_line_is_learnt() {
        let _alone = alone();
        let mut input = input(120, StartPoint::default(), None);
        input.schedule.steps = 120;
        input.optimizer.weight_decay = 0.0;
        let fitted = fit(Line::new(0.0, 0.0, &Device::default()), input).unwrap();
        assert!((fitted.model.slope() - 3.0).abs() < 0.1, "{}", fitted.model.slope());
        assert!(fitted.best.unwrap().loss < 1e-3);
        assert_eq!((fitted.steps, fitted.interrupted), (120, false));
    }

    #[test]
    fn one_seed_gives_one_file_and_another_seed_another() {
        let _alone = alone();
        let files = [7, 7, 8].map(|seed| {
            let (_home, folder) = run_folder();
            fit(line(), FitInput { seed, ..input(6, StartPoint::default(), Some(&folder)) }).unwrap();
            bytes(&folder, Checkpoint::Last)
        });
        assert_eq!(files[0], files[1]);
        assert_ne!(files[0], files[2]);
    }

    #[test]
    fn an_interrupted_run_continues_to_the_bit() {
        let _alone = alone();
        let [(_a, whole), (_b, parts)] = [run_folder(), run_folder()];
        fit(line(), input(11, StartPoint::default(), Some(&whole))).unwrap();

        let mut first = input(11, StartPoint::default(), Some(&parts));
        first.observers =
            vec![Box::new(Listener { stop: Some((6, first.interrupter.clone())), ..Listener::default() })];
        let fitted = fit(line(), first).unwrap();
        assert_eq!((fitted.steps, fitted.interrupted), (6, true));
        assert_eq!(fitted.evaluation.unwrap().step, 4);

        let start = resume_point(&parts).unwrap().unwrap();
        assert_eq!(start.step(), 6);
        // The initial weights of the second model must not matter.
        let model = Line::new(5.0, 5.0, &Device::default().autodiff()).with_dropout(0.3);
        let fitted = fit(model, input(11, start, Some(&parts))).unwrap();
        assert_eq!((fitted.steps, fitted.interrupted), (11, false));
        for checkpoint in [Checkpoint::Last, Checkpoint::Best, Checkpoint::Step(8), Checkpoint::Step(11)] {
            assert_eq!(bytes(&whole, checkpoint), bytes(&parts, checkpoint), "{checkpoint}");
        }
    }

    #[test]
    fn averaged_weights_and_groups_of_batches_continue_to_the_bit_too() {
        let _alone = alone();
        let [(_a, whole), (_b, parts)] = [run_folder(), run_folder()];
        let input = |steps, start: StartPoint, folder: &ModelFolder| {
            let from = 3 * start.step();
            let mut input = input(steps, start, Some(folder));
            input.training = TrainingConfig { accumulate: 3, smoothing: 0.9, ..input.training };
            input.train_loader = Arc::new(PointLoader::of_steps(from, 3 * steps));
            input
        };
        fit(line(), input(9, StartPoint::default(), &whole)).unwrap();
        fit(line(), input(5, StartPoint::default(), &parts)).unwrap();
        let start = resume_point(&parts).unwrap().unwrap();
        fit(line(), input(9, start, &parts)).unwrap();
        for checkpoint in [Checkpoint::Last, Checkpoint::Best, Checkpoint::Step(9)] {
            assert_eq!(bytes(&whole, checkpoint), bytes(&parts, checkpoint), "{checkpoint}");
        }
        let [kept, trained] = [Checkpoint::Last, Checkpoint::Step(9)].map(|checkpoint| bytes(&whole, checkpoint));
        assert_ne!(kept, trained, "the average is not the newest weights");
        assert_eq!(fs::read(whole.checkpoint_folder(&Checkpoint::Step(9)).smoothed()).unwrap(), kept);
    }

    /// A metric that gets worse with every evaluation.
    struct Worse(f64);

    impl ValidationMetric<Line> for Worse {
        fn name(&self) -> &str {
            "accuracy"
        }

        fn higher_is_better(&self) -> bool {
            true
        }

        fn measure(&mut self, _model: &Line) -> Result<f64, TrainingError> {
            self.0 -= 0.125;
            Ok(self.0)
        }
    }

    #[test]
    fn a_named_metric_decides_and_patience_ends_the_run() {
        let _alone = alone();
        let (_home, folder) = run_folder();
        let run = |training: TrainingConfig, start| {
            let metrics: Vec<Box<dyn ValidationMetric<Line>>> = vec![Box::new(Worse(1.0))];
            fit(line(), FitInput { training, metrics, ..input(40, start, Some(&folder)) })
        };
        let training = TrainingConfig {
            steps: 40,
            evaluate_every: 4,
            checkpoint_every: 0,
            best_by: "accuracy".into(),
            patience: 2,
            ..TrainingConfig::default()
        };
        let fitted = run(training.clone(), StartPoint::default()).unwrap();
        assert_eq!((fitted.best.unwrap().step, fitted.steps, fitted.interrupted), (4, 12, false));
        let start = resume_point(&folder).unwrap().unwrap();
        assert!(start.is_finished(&training));
        assert_eq!(run(training.clone(), start).unwrap().steps, 12);

        let error = run(TrainingConfig { best_by: "bleu".into(), ..training }, StartPoint::default()).unwrap_err();
        assert_eq!(error.to_string(), "`training.best_by` is `bleu`, which nobody measures: known are loss, accuracy");
    }

    #[test]
    fn checkpointers_and_early_stopping_of_burn_are_served() {
        let _alone = alone();
        let home = tempfile::tempdir().unwrap();
        let stop = MetricEarlyStoppingStrategy::new(
            &LossMetric::new(),
            Aggregate::Mean,
            Direction::Highest, // the loss falls, so the first evaluation stays the best
            BurnSplit::Valid,
            StoppingCondition::NoImprovementSince { n_epochs: 2 },
        );
        let log = FileMetricLogger::new(home.path());
        let checkpoints = home.path().join("checkpoint");
        let [model, optimizer, schedule] =
            ["model", "optim", "scheduler"].map(|name| FileCheckpointer::new(&checkpoints, name));
        let extend: Extension<Line> = Box::new(|training| {
            training
                .with_metric_logger(log)
                .metrics((LossMetric::new(),))
                .with_custom_checkpointers(model, optimizer, schedule)
                .early_stopping(stop)
        });
        let fitted =
            fit(line(), FitInput { extension: Some(extend), ..input(40, StartPoint::default(), None) }).unwrap();
        assert_eq!(fitted.steps, 12);
        let files: Vec<_> = fs::read_dir(&checkpoints).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert!(files.iter().any(|name| name.to_string_lossy().contains("12")), "{files:?}");
    }

    #[test]
    fn a_finished_run_has_nothing_left_to_do() {
        let _alone = alone();
        let (_home, folder) = run_folder();
        fit(line(), input(4, StartPoint::default(), Some(&folder))).unwrap();
        let before = bytes(&folder, Checkpoint::Last);
        let listener = Listener::default();
        let mut again = input(4, resume_point(&folder).unwrap().unwrap(), Some(&folder));
        again.observers = vec![Box::new(listener.clone())];
        assert_eq!(fit(line(), again).unwrap().steps, 4);
        assert_eq!(*listener.heard.lock().unwrap(), ["started 4/4", "finished"]);
        assert_eq!(bytes(&folder, Checkpoint::Last), before);
    }

    #[test]
    fn observers_hear_of_everything_in_order() {
        let _alone = alone();
        let listener = Listener::default();
        let mut input = input(5, StartPoint::default(), None);
        input.observers = vec![Box::new(listener.clone())];
        fit(line(), input).unwrap();
        let heard = listener.heard.lock().unwrap().join(", ");
        assert_eq!(heard, "started 0/5, step 1, step 2, step 3, step 4, evaluation 4, step 5, evaluation 5, finished");
    }

    #[test]
    fn metrics_of_burn_join() {
        let _alone = alone();
        let home = tempfile::tempdir().unwrap();
        let log = FileMetricLogger::new(home.path());
        let extend: Extension<Line> =
            Box::new(|training| training.with_metric_logger(log).metrics((LossMetric::new(), Perplexity::new())));
        fit(line(), FitInput { extension: Some(extend), ..input(5, StartPoint::default(), None) }).unwrap();
        for file in ["train/epoch-1/Loss.log", "valid/epoch-1/Perplexity.log", "train/epoch-2/Perplexity.log"] {
            assert!(home.path().join(file).is_file(), "{file}");
        }
    }

    #[test]
    fn bad_settings_are_all_listed_before_anything_is_done() {
        let mut input = input(0, StartPoint::default(), None);
        input.optimizer.clip_norm = -1.0;
        let error = fit(line(), input).unwrap_err();
        assert_eq!(
            error.to_string(),
            "training.steps = 0 must be at least 1; optimizer.clip_norm = -1 must be at least 0 and finite"
        );
    }

    #[test]
    fn too_few_batches_and_numbers_that_overflow_stop_the_run() {
        let _alone = alone();
        let mut short = input(5, StartPoint::default(), None);
        short.train_loader = Arc::new(PointLoader::of_steps(0, 3));
        let error = fit(line(), short).unwrap_err();
        assert!(error.to_string().starts_with("the training data ended before step 4 of 5"), "{error}");

        let (_home, folder) = run_folder();
        let mut wild = input(12, StartPoint::default(), Some(&folder));
        wild.optimizer.learning_rate = 1e30;
        wild.schedule = ScheduleConfig { warmup_steps: 0, ..wild.schedule };
        let error = fit(line(), wild).unwrap_err();
        assert!(error.to_string().starts_with("step 2, batch 2: the loss is inf"), "{error}");
        assert!(error.is_user_error() && resume_point(&folder).unwrap().is_none());
    }
}
