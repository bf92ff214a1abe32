//! A run that ends before its last step, whichever that is and however it ends, and is resumed, is the run that never ended: its
//! metrics, its best weights and its last ones.

use serde_json::Value;

use firelight_storage::InputError;

use super::*;
use crate::MetricsLog;

const STEPS: usize = 13;

/// How a run ends before its last step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// By an interruption, after which everything is saved.
    Interrupted,
    /// By a failure after the report of the step, after which nothing more is written, as after a kill.
    FailedAfterStep,
    /// By a failure after the report of the evaluation that follows the step.
    FailedAfterEvaluation,
}

/// Ends a run at a step.
struct Ending {
    step: usize,
    end: End,
    interrupter: Interrupter,
}

impl Ending {
    fn fail(&self, step: usize, end: End) -> Result<(), TrainingError> {
        match (step, end) == (self.step, self.end) {
            true => Err(InputError::new("ended").into()),
            false => Ok(()),
        }
    }
}

impl Observer for Ending {
    fn step(&mut self, report: &StepReport) -> Result<(), TrainingError> {
        if (report.step, End::Interrupted) == (self.step, self.end) {
            self.interrupter.stop(None);
        }
        self.fail(report.step, End::FailedAfterStep)
    }

    fn evaluation(&mut self, report: &EvaluationReport) -> Result<(), TrainingError> {
        self.fail(report.step, End::FailedAfterEvaluation)
    }
}

/// A score that rises and falls while the slope goes its way.
struct Wave;

impl Evaluator<Line> for Wave {
    fn scores(&self) -> Vec<Score> {
        vec![Score::higher("wave")]
    }

    fn observe(&mut self, _output: &LossOutput) -> Result<(), TrainingError> {
        Ok(())
    }

    fn finish(&mut self, model: &Line) -> Result<Vec<f64>, TrainingError> {
        Ok(vec![(9.0 * f64::from(model.slope())).sin()])
    }
}

/// Begins the run in the folder, or resumes it, and returns whether it came to its last step.
fn train(folder: &ModelFolder, ending: Option<(usize, End)>, patience: usize) -> bool {
    let start = resume_point(folder).unwrap().unwrap_or_default();
    let log = match start.step() {
        0 => MetricsLog::create(folder.metrics()),
        done => MetricsLog::resume(folder.metrics(), done),
    };
    let mut input = input(STEPS, start, Some(folder));
    let training = TrainingConfig { ema_decay: 0.5, checkpoint_every: 3, patience, ..input.training };
    input.training = TrainingConfig { monitor: "wave".into(), ..training };
    input.evaluator = Box::new(Wave);
    input.observers = vec![Box::new(log.unwrap())];
    let interrupter = input.interrupter.clone();
    let ending = ending.map(|(step, end)| Ending { step, end, interrupter });
    input.observers.extend(ending.map(|ending| Box::new(ending) as Box<dyn Observer>));
    fit(line(), input).is_ok_and(|fitted| !fitted.interrupted)
}

/// What a run leaves behind: each file, or the part of it that does not tell the time or the drawn ids of the parameters.
pub(super) fn left(folder: &ModelFolder) -> Vec<Vec<u8>> {
    let line = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        line.as_object_mut().unwrap().remove("tokens_per_second");
        line.to_string()
    };
    let metrics: Vec<String> = fs::read_to_string(folder.metrics()).unwrap().lines().map(line).collect();
    let newest = folder.checkpoints().unwrap().into_iter().max().unwrap();
    let (best, newest) = (folder.checkpoint_folder(&Checkpoint::Best), folder.checkpoint_folder(&newest));
    let mut state: Value = serde_json::from_slice(&fs::read(newest.state()).unwrap()).unwrap();
    state.as_object_mut().unwrap().remove("parameters");
    let last = folder.checkpoint_folder(&Checkpoint::Last);
    let files = [best.weights(), best.state(), newest.weights(), newest.ema(), last.weights(), last.state()];
    let files = files.map(|file| fs::read(file).unwrap());
    [metrics.join("\n").into_bytes(), state.to_string().into_bytes()].into_iter().chain(files).collect()
}

fn uninterrupted(patience: usize) -> Vec<Vec<u8>> {
    let (_home, folder) = run_folder();
    assert!(train(&folder, None, patience));
    left(&folder)
}

#[test]
fn a_run_that_ended_at_any_step_and_was_resumed_leaves_what_it_would_have_left_behind() {
    let _alone = alone();
    let mut cases = 0;
    for (patience, steps) in [(0, STEPS), (1, 8)] {
        let expected = uninterrupted(patience);
        let text = String::from_utf8(expected[0].clone()).unwrap();
        assert_eq!(text.lines().count(), steps + steps.div_ceil(4), "a line for each step and each evaluation: {text}");
        for end in [End::Interrupted, End::FailedAfterStep, End::FailedAfterEvaluation] {
            for step in (1..=steps).filter(|step| end != End::FailedAfterEvaluation || [4, 8, 12, 13].contains(step)) {
                let (_home, folder) = run_folder();
                let is_done = train(&folder, Some((step, end)), patience);
                assert_eq!(is_done, end == End::Interrupted && step == steps, "{end:?} at step {step}");
                assert!(train(&folder, None, patience));
                for (file, (found, expected)) in left(&folder).iter().zip(&expected).enumerate() {
                    assert!(found == expected, "file {file} of a run that ended by {end:?} at step {step}");
                }
                cases += 1;
            }
        }
    }
    assert_eq!(cases, 2 * STEPS + 4 + 2 * 8 + 2);
}

#[test]
fn a_run_that_ended_twice_between_two_checkpoints_is_the_same_too() {
    let _alone = alone();
    let (expected, (_home, folder)) = (uninterrupted(0), run_folder());
    let ends = [(2, End::FailedAfterStep), (4, End::Interrupted), (5, End::FailedAfterStep), (8, End::Interrupted)];
    for (step, end) in [ends[0], ends[1], ends[2], ends[2], ends[3], (8, End::FailedAfterEvaluation)] {
        train(&folder, Some((step, end)), 0);
    }
    assert!(train(&folder, None, 0));
    assert!(left(&folder) == expected);
}
