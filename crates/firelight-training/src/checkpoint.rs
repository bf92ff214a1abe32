//! What a run keeps on the way: the weights with the lowest validation loss, and from time to time everything needed to
//! continue. The trainer writes here; [`resume_point`] finds where an interrupted run can go on.

use std::fs::{self, File};
use std::path::Path;

use burn::module::Module;
use burn::optim::{ModuleOptimizer, OptimizerRecord};
use firelight_storage::{
    Checkpoint, CheckpointFolder, ModelFolder, StorageError, check_weights, load_weights, save_weights, write_atomic,
};
use serde::{Deserialize, Serialize};

use crate::parameter_ids::{ParameterIds, ids_of, restore_ids};
use crate::{OptimizerConfig, TrainingError};

/// Resumable checkpoints that are kept, the newest ones.
const KEPT: usize = 2;

/// A validation loss and when it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidationLoss {
    /// The number of steps done before the evaluation.
    pub step: usize,
    /// The mean loss in nats per target.
    pub loss: f64,
}

/// Where a run stands: `state.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunState {
    /// Steps done.
    pub(crate) step: usize,
    /// The newest evaluation.
    pub(crate) evaluation: Option<ValidationLoss>,
    /// The evaluation with the lowest loss.
    pub(crate) best: Option<ValidationLoss>,
}

impl RunState {
    /// Notes an evaluation after the current step and returns whether it is the best so far.
    pub(crate) fn note(&mut self, loss: f64) -> bool {
        let evaluation = ValidationLoss { step: self.step, loss };
        let is_best = self.best.is_none_or(|best| loss < best.loss);
        self.evaluation = Some(evaluation);
        if is_best {
            self.best = Some(evaluation);
        }
        is_best
    }
}

/// Where a run begins: at its first step, or at a checkpoint of an earlier run.
#[derive(Clone, Debug, Default)]
pub struct StartPoint {
    pub(crate) state: RunState,
    resumed: Option<Resumed>,
}

/// The files of the checkpoint that is continued.
#[derive(Clone, Debug)]
struct Resumed {
    folder: CheckpointFolder,
    parameters: ParameterIds,
    optimizer_tensors: usize,
}

/// The content of `state.json` in a resumable checkpoint.
#[derive(Serialize, Deserialize)]
struct Notes {
    #[serde(flatten)]
    state: RunState,
    parameters: ParameterIds,
    /// Tensors in the optimiser's state, which some parameters may not have yet.
    optimizer_tensors: usize,
}

impl StartPoint {
    /// Steps done already: 0 for a new run. The training batches must begin with the one of the next step.
    pub fn step(&self) -> usize {
        self.state.step
    }

    /// Gives `model` the weights of the checkpoint and builds its optimiser with the state it had.
    pub(crate) fn restore<M: Module>(
        &self,
        mut model: M,
        config: &OptimizerConfig,
    ) -> Result<(M, ModuleOptimizer), TrainingError> {
        let Some(Resumed { folder, parameters, optimizer_tensors }) = &self.resumed else {
            let optimizer = config.init(&model);
            return Ok((model, optimizer));
        };
        load_weights(&mut model, folder.weights())?;
        let model = restore_ids(model, parameters)
            .map_err(|parameter| TrainingError::ForeignCheckpoint { path: folder.path().into(), parameter })?;
        let optimizer = load_optimizer(config.init(&model), &folder.optimizer(), *optimizer_tensors)?;
        Ok((model, optimizer))
    }
}

/// The newest checkpoint of a run that is whole; none if the run has no checkpoints yet.
///
/// Every file is read before it counts as whole. A damaged checkpoint is passed over with a warning in the log.
///
/// # Errors
/// Fails if the folder cannot be read, or if there are checkpoints but none is whole.
pub fn resume_point(folder: &ModelFolder) -> Result<Option<StartPoint>, TrainingError> {
    let mut newest_error = None;
    for step in steps_in(folder)?.into_iter().rev() {
        match read(folder.checkpoint_folder(&Checkpoint::Step(step))) {
            Ok(start) => return Ok(Some(start)),
            Err(error) => {
                log::warn!("passing over the checkpoint of step {step}: {error}");
                newest_error.get_or_insert(error);
            }
        }
    }
    let unresumable = |cause| TrainingError::NoWholeCheckpoint { path: folder.path().into(), cause: Box::new(cause) };
    newest_error.map_or(Ok(None), |cause| Err(unresumable(cause)))
}

/// Writes `checkpoints/step-N`, whole or not at all, and removes the older ones that are no longer needed.
pub(crate) fn save_step<M: Module>(
    folder: &ModelFolder,
    model: &M,
    optimizer: &ModuleOptimizer,
    state: &RunState,
) -> Result<(), TrainingError> {
    let record = optimizer.to_record();
    let notes = Notes { state: state.clone(), parameters: ids_of(model), optimizer_tensors: record.len() };
    folder.write_checkpoint(&Checkpoint::Step(state.step), |files| {
        save_weights(model, files.weights())?;
        let path = files.optimizer();
        record.save(&path).map_err(TrainingError::file("write", &path))?;
        write_json(&files.state(), &notes)
    })?;
    remove_older(folder, state.step)
}

/// Writes `checkpoints/best`, whole or not at all.
pub(crate) fn save_best<M: Module>(folder: &ModelFolder, model: &M, state: &RunState) -> Result<(), TrainingError> {
    folder.write_checkpoint(&Checkpoint::Best, |files| {
        save_weights(model, files.weights())?;
        write_json(&files.state(), &state.best)
    })
}

/// Reads a checkpoint through and makes sure that all of it is there.
fn read(folder: CheckpointFolder) -> Result<StartPoint, TrainingError> {
    let path = folder.state();
    let text = fs::read(&path).map_err(StorageError::io("read", &path))?;
    let Notes { state, parameters, optimizer_tensors } =
        serde_json::from_slice(&text).map_err(TrainingError::damaged(&path))?;
    check_weights(folder.weights())?;
    // A state is rebuilt without the model, and dropped again.
    load_optimizer(OptimizerConfig::default().without_groups(), &folder.optimizer(), optimizer_tensors)?;
    Ok(StartPoint { state, resumed: Some(Resumed { folder, parameters, optimizer_tensors }) })
}

/// Gives `optimizer` the state in the file at `path`, which must consist of `tensors` tensors.
fn load_optimizer(optimizer: ModuleOptimizer, path: &Path, tensors: usize) -> Result<ModuleOptimizer, TrainingError> {
    // Burn words a missing file as it words a damaged one.
    File::open(path).map_err(StorageError::io("read", path))?;
    let record = OptimizerRecord::load(path).map_err(TrainingError::damaged(path))?;
    let optimizer = optimizer.load_record(record);
    // Burn begins anew, without a word, where it cannot rebuild the state of a parameter: count what it has taken.
    match optimizer.to_record().len() {
        found if found == tensors => Ok(optimizer),
        found => Err(TrainingError::damaged(path)(format!("expected {tensors} tensors of state, found {found}"))),
    }
}

/// Removes all but the newest resumable checkpoints up to `step`.
fn remove_older(folder: &ModelFolder, step: usize) -> Result<(), TrainingError> {
    let mut steps = steps_in(folder)?;
    steps.retain(|&other| other <= step);
    let mut old = steps.into_iter().rev().skip(KEPT);
    Ok(old.try_for_each(|step| folder.remove_checkpoint(&Checkpoint::Step(step)))?)
}

/// The steps whose checkpoints are there, in order.
fn steps_in(folder: &ModelFolder) -> Result<Vec<usize>, TrainingError> {
    let steps = folder.checkpoints()?.into_iter().filter_map(|checkpoint| match checkpoint {
        Checkpoint::Step(step) => Some(step),
        _ => None,
    });
    Ok(steps.collect())
}

/// Writes `value` as readable JSON.
fn write_json(path: &Path, value: &impl Serialize) -> Result<(), TrainingError> {
    let mut text = serde_json::to_string_pretty(value).map_err(TrainingError::file("write", path))?;
    text.push('\n');
    Ok(write_atomic(path, text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::{Line, Points};
    use burn::tensor::Device;
    use burn::train::TrainStep;
    use firelight_storage::Existing;

    fn run_folder() -> (tempfile::TempDir, ModelFolder) {
        let home = tempfile::tempdir().unwrap();
        let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
        (home, folder)
    }

    fn save(folder: &ModelFolder, step: usize) -> Line {
        let model = Line::new(step as f32, 0.0, &Device::default());
        let state = RunState { step, ..RunState::default() };
        save_step(folder, &model, &OptimizerConfig::default().init(&model), &state).unwrap();
        model
    }

    #[test]
    fn the_newest_checkpoints_stay_and_the_last_one_is_resumed() {
        let (_home, folder) = run_folder();
        assert!(resume_point(&folder).unwrap().is_none());
        let saved = [5, 10, 15].map(|step| save(&folder, step));
        assert_eq!(steps_in(&folder).unwrap(), [10, 15]);

        let start = resume_point(&folder).unwrap().unwrap();
        assert_eq!(start.step(), 15);
        let (model, _) = start.restore(Line::new(0.0, 0.0, &Device::default()), &OptimizerConfig::default()).unwrap();
        assert_eq!(ids_of(&model), ids_of(&saved[2]));
        assert_eq!(model.slope(), 15.0);
    }

    /// Takes a step, so that the optimiser has a state, and saves it as the checkpoint of `step`.
    fn save_trained(folder: &ModelFolder, step: usize) -> (Line, CheckpointFolder) {
        let device = Device::default().autodiff();
        let model = Line::new(1.0, 0.0, &device);
        let mut optimizer = OptimizerConfig::default().init(&model);
        let output = TrainStep::step(&model, Points::new(vec![(1.0, 2.0)], &device));
        let model = optimizer.step(0.1, model, output.grads);
        save_step(folder, &model, &optimizer, &RunState { step, ..RunState::default() }).unwrap();
        (model, folder.checkpoint_folder(&Checkpoint::Step(step)))
    }

    #[test]
    fn a_damaged_checkpoint_is_passed_over_whichever_file_it_is() {
        let (_home, folder) = run_folder();
        save_trained(&folder, 5);
        let (_, newest) = save_trained(&folder, 10);
        for file in [newest.weights(), newest.optimizer(), newest.state()] {
            let whole = fs::read(&file).unwrap();
            for length in [0, 10, whole.len() / 2, whole.len() - 3] {
                fs::write(&file, &whole[..length]).unwrap();
                assert_eq!(resume_point(&folder).unwrap().unwrap().step(), 5, "{} of {length} bytes", file.display());
            }
            fs::remove_file(&file).unwrap();
            assert_eq!(resume_point(&folder).unwrap().unwrap().step(), 5, "no {}", file.display());
            fs::write(&file, whole).unwrap();
        }
        assert_eq!(resume_point(&folder).unwrap().unwrap().step(), 10);
    }

    #[test]
    fn a_run_without_a_whole_checkpoint_does_not_silently_begin_anew() {
        let (_home, folder) = run_folder();
        let (_, only) = save_trained(&folder, 5);
        fs::write(only.state(), "{").unwrap();
        let error = resume_point(&folder).unwrap_err();
        assert!(error.to_string().contains("none of its checkpoints is whole: the file `"), "{error}");
        assert!(error.to_string().contains("state.json` is damaged: EOF") && error.is_user_error(), "{error}");
    }

    #[test]
    fn a_state_that_lacks_parameters_is_refused() {
        let (_home, folder) = run_folder();
        let (model, files) = save_trained(&folder, 5);
        let start = resume_point(&folder).unwrap().unwrap();
        OptimizerConfig::default().init(&model).save(files.optimizer()).unwrap();
        let error = start.restore(model, &OptimizerConfig::default()).err().unwrap();
        assert!(error.to_string().ends_with("is damaged: expected 4 tensors of state, found 0"), "{error}");
        assert!(error.is_user_error() && resume_point(&folder).is_err());
    }

    #[test]
    fn files_that_do_not_fit_the_model_are_named() {
        let (_home, folder) = run_folder();
        let (model, files) = save_trained(&folder, 5);
        let mut start = resume_point(&folder).unwrap().unwrap();

        let path = files.optimizer();
        let bytes = fs::read(&path).unwrap();
        for length in [0, 10, bytes.len() / 2, bytes.len() - 1] {
            fs::write(&path, &bytes[..length]).unwrap();
            let error = start.restore(model.clone(), &OptimizerConfig::default()).err().unwrap();
            assert!(error.to_string().starts_with(&format!("the file `{}` is damaged: ", path.display())), "{error}");
            assert!(!error.to_string().contains('\n') && error.is_user_error(), "{error}");
        }

        start.resumed.as_mut().unwrap().parameters.remove("slope");
        let error = start.restore(model, &OptimizerConfig::default()).err().unwrap();
        assert!(error.to_string().contains("does not fit the model: it has no parameter `slope`"), "{error}");
    }

    #[test]
    fn only_a_lower_loss_is_better() {
        let mut state = RunState { step: 1, ..RunState::default() };
        assert!(state.note(2.0));
        state.step = 2;
        assert!(!state.note(2.0));
        assert_eq!(state.evaluation, Some(ValidationLoss { step: 2, loss: 2.0 }));
        assert_eq!(state.best, Some(ValidationLoss { step: 1, loss: 2.0 }));
    }
}
