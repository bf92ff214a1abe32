//! Whole trainings of the smallest model: what they learn, tell, keep and continue.

mod burns_outputs;
mod ended;
mod extensions;
mod failures;
mod half_precision;
mod ranks;

use std::fs;

use super::*;
use crate::toy::{Line, PointLoader, alone};
use crate::{EvaluationReport, LossOutput, RunReport, Score, StepReport, resume_point};
use burn::tensor::Device;
use firelight_storage::{Checkpoint, Existing, load_weights};

/// Records what it receives, and stops the run after a step if asked to.
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
        schedule: ScheduleConfig { warmup_steps: 2, steps: Some(20), ..ScheduleConfig::default() },
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
    input.schedule.steps = Some(120);
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
fn a_schedule_without_steps_of_its_own_ends_with_the_training() {
    let _alone = alone();
    let files = [None, Some(6), Some(20)].map(|steps| {
        let (_home, folder) = run_folder();
        let mut input = input(6, StartPoint::default(), Some(&folder));
        input.schedule.steps = steps;
        fit(line(), input).unwrap();
        bytes(&folder, Checkpoint::Last)
    });
    assert!(files[0] == files[1] && files[0] != files[2]);
}

#[test]
fn an_interrupted_run_continues_to_the_bit() {
    let _alone = alone();
    let [(_a, whole), (_b, parts)] = [run_folder(), run_folder()];
    fit(line(), input(11, StartPoint::default(), Some(&whole))).unwrap();

    let mut first = input(11, StartPoint::default(), Some(&parts));
    first.observers = vec![Box::new(Listener { stop: Some((6, first.interrupter.clone())), ..Listener::default() })];
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
        input.training = TrainingConfig { gradient_accumulation_steps: 3, ema_decay: 0.9, ..input.training };
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
    assert_eq!(fs::read(whole.checkpoint_folder(&Checkpoint::Step(9)).ema()).unwrap(), kept);
    assert_eq!(bytes(&whole, Checkpoint::Best), kept, "the last evaluation is the best, and it was the average's");
}

#[test]
fn a_last_group_of_fewer_batches_is_a_step_of_those() {
    let _alone = alone();
    let [(_a, whole), (_b, parts)] = [run_folder(), run_folder()];
    let run = |accumulate, batches: std::ops::Range<usize>, steps, start, folder: &ModelFolder| {
        let mut input = input(steps, start, Some(folder));
        input.training.gradient_accumulation_steps = accumulate;
        input.train_loader = Arc::new(PointLoader::of_steps(batches.start, batches.end));
        fit(Line::new(0.0, 0.0, &Device::default()), input).unwrap()
    };
    assert_eq!(run(3, 0..7, 3, StartPoint::default(), &whole).steps, 3);
    run(3, 0..6, 2, StartPoint::default(), &parts);
    run(1, 6..7, 3, resume_point(&parts).unwrap().unwrap(), &parts);
    assert_eq!(bytes(&whole, Checkpoint::Last), bytes(&parts, Checkpoint::Last));
}

/// A score that gets worse with every evaluation.
struct Worse(f64);

impl Evaluator<Line> for Worse {
    fn scores(&self) -> Vec<Score> {
        vec![Score::higher("accuracy")]
    }

    fn observe(&mut self, _output: &LossOutput) -> Result<(), TrainingError> {
        Ok(())
    }

    fn finish(&mut self, _model: &Line) -> Result<Vec<f64>, TrainingError> {
        self.0 -= 0.125;
        Ok(vec![self.0])
    }
}

#[test]
fn a_named_metric_decides_and_patience_ends_the_run() {
    let _alone = alone();
    let (_home, folder) = run_folder();
    let run = |training: TrainingConfig, start| {
        fit(line(), FitInput { training, evaluator: Box::new(Worse(1.0)), ..input(40, start, Some(&folder)) })
    };
    let training = TrainingConfig {
        steps: 40,
        evaluate_every: 4,
        checkpoint_every: 0,
        monitor: "accuracy".into(),
        patience: 2,
        ..TrainingConfig::default()
    };
    let fitted = run(training.clone(), StartPoint::default()).unwrap();
    assert_eq!((fitted.best.unwrap().step, fitted.steps, fitted.interrupted), (4, 12, false));
    let start = resume_point(&folder).unwrap().unwrap();
    assert!(start.is_finished(&training));
    assert_eq!(run(training.clone(), start).unwrap().steps, 12);

    let error = run(TrainingConfig { monitor: "bleu".into(), ..training }, StartPoint::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`training.monitor` is `bleu`, which this task does not measure: expected one of loss, accuracy"
    );
}

#[test]
fn the_best_metric_is_remembered_over_an_interruption() {
    let _alone = alone();
    let (_home, folder) = run_folder();
    let input = |start, first: f64| {
        let mut input = FitInput { evaluator: Box::new(Worse(first)), ..input(12, start, Some(&folder)) };
        input.training.monitor = "accuracy".into();
        input
    };
    let mut first = input(StartPoint::default(), 1.0);
    first.observers = vec![Box::new(Listener { stop: Some((6, first.interrupter.clone())), ..Listener::default() })];
    assert_eq!(fit(line(), first).unwrap().best.unwrap().step, 4);
    let best = bytes(&folder, Checkpoint::Best);

    // The first evaluation after the interruption finds a worse metric than the one before it, and a lower loss.
    let fitted = fit(line(), input(resume_point(&folder).unwrap().unwrap(), 0.5)).unwrap();
    assert_eq!((fitted.steps, fitted.best.unwrap().step), (12, 4));
    assert!(fitted.evaluation.unwrap().loss < fitted.best.unwrap().loss);
    assert!(bytes(&folder, Checkpoint::Best) == best);
}

#[test]
fn another_seed_cannot_continue_a_run() {
    let _alone = alone();
    let (_home, folder) = run_folder();
    fit(line(), input(4, StartPoint::default(), Some(&folder))).unwrap();
    let start = resume_point(&folder).unwrap().unwrap();
    let other = FitInput { seed: 8, ..input(8, start.clone(), Some(&folder)) };
    let error = fit(line(), other).unwrap_err();
    assert!(error.to_string().contains("was written by a run of the seed 7, not 8"), "{error}");
    assert_eq!(fit(line(), input(8, start, Some(&folder))).unwrap().steps, 8);
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
fn a_run_of_no_steps_writes_the_initial_weights_and_can_go_on() {
    let _alone = alone();
    let (_home, folder) = run_folder();
    let begun = || Line::new(0.25, -0.5, &Device::default().autodiff());
    let fitted = fit(begun(), input(0, StartPoint::default(), Some(&folder))).unwrap();
    assert_eq!((fitted.steps, fitted.evaluation.unwrap().step, fitted.interrupted), (0, 0, false));
    let mut found = Line::new(0.0, 0.0, &Device::default());
    load_weights(&mut found, folder.weights(&Checkpoint::Last).unwrap()).unwrap();
    assert_eq!((found.slope(), found.offset()), (0.25, -0.5));
    assert_eq!(folder.find(&Checkpoint::Last).unwrap().step, Some(0));

    fit(begun(), input(6, resume_point(&folder).unwrap().unwrap(), Some(&folder))).unwrap();
    let (_home, whole) = run_folder();
    fit(begun(), input(6, StartPoint::default(), Some(&whole))).unwrap();
    assert!(bytes(&folder, Checkpoint::Last) == bytes(&whole, Checkpoint::Last));
}

#[test]
fn the_newest_weights_of_a_killed_run_are_those_of_its_checkpoints() {
    let _alone = alone();
    let (_home, folder) = run_folder();
    let found = |folder: &ModelFolder| folder.find(&Checkpoint::Last).unwrap().step;
    let mut first = input(40, StartPoint::default(), Some(&folder));
    first.observers = vec![Box::new(Listener { stop: Some((6, first.interrupter.clone())), ..Listener::default() })];
    fit(line(), first).unwrap();
    assert_eq!(found(&folder), Some(6));

    let mut killed = input(40, resume_point(&folder).unwrap().unwrap(), Some(&folder));
    killed.train_loader = Arc::new(PointLoader::of_steps(6, 10)); // it ends in an error at step 11
    fit(line(), killed).unwrap_err();
    assert_eq!(found(&folder), Some(8));
    assert!(bytes(&folder, Checkpoint::Last) == bytes(&folder, Checkpoint::Step(8)));
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
fn one_checkpoint_stays_if_so_asked() {
    let _alone = alone();
    let (_home, folder) = run_folder();
    let mut input = input(10, StartPoint::default(), Some(&folder));
    input.training.keep_checkpoints = 1;
    fit(line(), input).unwrap();
    let mut kept = folder.checkpoints().unwrap();
    kept.retain(|checkpoint| matches!(checkpoint, Checkpoint::Step(_)));
    assert_eq!(kept, [Checkpoint::Step(10)]);
}
