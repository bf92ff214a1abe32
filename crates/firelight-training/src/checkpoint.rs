//! What a run keeps on the way: the weights with the lowest validation loss, and from time to time everything needed to
//! continue. The trainer writes here; [`resume_point`] finds where an interrupted run can go on.

use std::fs;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use firelight_storage::{Checkpoint, ModelFolder, load_weights, save_weights, write_atomic};
use serde::{Deserialize, Serialize};

use crate::parameter_ids::{ParameterIds, ids_of, restore_ids};
use crate::{OptimizerConfig, TrainingError};

// The names that `ModelFolder` documents; it finds the weights by the first.
const WEIGHTS: &str = "model.safetensors";
const OPTIMIZER: &str = "optimizer.bpk";
const STATE: &str = "state.json";

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
    folder: PathBuf,
    parameters: ParameterIds,
}

/// The content of `state.json` in a resumable checkpoint.
#[derive(Serialize, Deserialize)]
struct Notes {
    #[serde(flatten)]
    state: RunState,
    parameters: ParameterIds,
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
        let Some(Resumed { folder, parameters }) = &self.resumed else {
            let optimizer = config.init(&model);
            return Ok((model, optimizer));
        };
        load_weights(&mut model, folder.join(WEIGHTS))?;
        let model = restore_ids(model, parameters)
            .map_err(|parameter| TrainingError::ForeignCheckpoint { path: folder.clone(), parameter })?;
        let path = folder.join(OPTIMIZER);
        let optimizer = config.init(&model).load(&path).map_err(TrainingError::file("read", &path))?;
        Ok((model, optimizer))
    }
}

/// The newest checkpoint of a run that is whole; none if there is no such checkpoint.
///
/// # Errors
/// Fails if the folder cannot be read. A damaged checkpoint is passed over with a warning in the log.
pub fn resume_point(folder: &ModelFolder) -> Result<Option<StartPoint>, TrainingError> {
    for step in steps_in(folder)?.into_iter().rev() {
        let path = folder.checkpoint_folder(&Checkpoint::Step(step));
        match read(&path) {
            Ok(start) => return Ok(Some(start)),
            Err(error) => log::warn!("passing over a damaged checkpoint: {error}"),
        }
    }
    Ok(None)
}

/// Writes `checkpoints/step-N`, whole or not at all, and removes the older ones that are no longer needed.
pub(crate) fn save_step<M: Module>(
    folder: &ModelFolder,
    model: &M,
    optimizer: &ModuleOptimizer,
    state: &RunState,
) -> Result<(), TrainingError> {
    let notes = Notes { state: state.clone(), parameters: ids_of(model) };
    publish(&folder.checkpoint_folder(&Checkpoint::Step(state.step)), |staging| {
        save_weights(model, staging.join(WEIGHTS))?;
        let path = staging.join(OPTIMIZER);
        optimizer.save(&path).map_err(TrainingError::file("write", &path))?;
        write_json(&staging.join(STATE), &notes)
    })?;
    remove_older(folder, state.step)
}

/// Writes `checkpoints/best`, whole or not at all.
pub(crate) fn save_best<M: Module>(folder: &ModelFolder, model: &M, state: &RunState) -> Result<(), TrainingError> {
    publish(&folder.checkpoint_folder(&Checkpoint::Best), |staging| {
        save_weights(model, staging.join(WEIGHTS))?;
        write_json(&staging.join(STATE), &state.best)
    })
}

/// Reads the notes of the checkpoint at `path` and makes sure that its files are there.
fn read(path: &Path) -> Result<StartPoint, TrainingError> {
    for file in [WEIGHTS, OPTIMIZER, STATE].map(|name| path.join(name)) {
        fs::metadata(&file).map_err(TrainingError::file("read", &file))?;
    }
    let file = path.join(STATE);
    let text = fs::read_to_string(&file).map_err(TrainingError::file("read", &file))?;
    let Notes { state, parameters } = serde_json::from_str(&text).map_err(TrainingError::file("read", &file))?;
    Ok(StartPoint { state, resumed: Some(Resumed { folder: path.into(), parameters }) })
}

/// Lets `fill` write into a folder beside `target` and gives it the name `target` when it is complete.
fn publish(target: &Path, fill: impl FnOnce(&Path) -> Result<(), TrainingError>) -> Result<(), TrainingError> {
    let [staging, replaced] = ["staging", "replaced"].map(|role| beside(target, role));
    remove(&staging)?;
    fs::create_dir_all(&staging).map_err(TrainingError::file("create", &staging))?;
    fill(&staging)?;
    if target.exists() {
        // A folder cannot be renamed over one that holds files: the old one steps aside for a moment.
        remove(&replaced)?;
        fs::rename(target, &replaced).map_err(TrainingError::file("replace", target))?;
    }
    fs::rename(&staging, target).map_err(TrainingError::file("write", target))?;
    remove(&replaced)
}

/// A hidden name in the folder of `target`.
fn beside(target: &Path, role: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.{role}"))
}

/// Removes a folder, if it is there.
fn remove(path: &Path) -> Result<(), TrainingError> {
    if path.exists() { fs::remove_dir_all(path).map_err(TrainingError::file("remove", path)) } else { Ok(()) }
}

/// Removes all but the newest resumable checkpoints up to `step`.
fn remove_older(folder: &ModelFolder, step: usize) -> Result<(), TrainingError> {
    let mut steps = steps_in(folder)?;
    steps.retain(|&other| other <= step);
    steps.iter().rev().skip(KEPT).try_for_each(|&old| remove(&folder.checkpoint_folder(&Checkpoint::Step(old))))
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

    #[test]
    fn a_checkpoint_is_replaced_and_leaves_nothing_beside_it() {
        let (_home, folder) = run_folder();
        save(&folder, 5);
        save(&folder, 5);
        assert_eq!(fs::read_dir(folder.path().join("checkpoints")).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_checkpoint_is_passed_over() {
        let (_home, folder) = run_folder();
        save(&folder, 5);
        save(&folder, 10);
        fs::write(folder.checkpoint_folder(&Checkpoint::Step(10)).join(STATE), "{").unwrap();
        assert_eq!(resume_point(&folder).unwrap().unwrap().step(), 5);
    }

    #[test]
    fn files_that_do_not_fit_the_model_are_named() {
        let (_home, folder) = run_folder();
        let device = Device::default().autodiff();
        let model = Line::new(1.0, 0.0, &device);
        let mut optimizer = OptimizerConfig::default().init(&model);
        let output = TrainStep::step(&model, Points::new(vec![(1.0, 2.0)], &device));
        let model = optimizer.step(0.1, model, output.grads);
        save_step(&folder, &model, &optimizer, &RunState { step: 5, ..RunState::default() }).unwrap();
        let mut start = resume_point(&folder).unwrap().unwrap();

        let path = folder.checkpoint_folder(&Checkpoint::Step(5)).join(OPTIMIZER);
        let bytes = fs::read(&path).unwrap();
        for length in [0, 10, bytes.len() / 2, bytes.len() - 1] {
            fs::write(&path, &bytes[..length]).unwrap();
            let error = start.restore(model.clone(), &OptimizerConfig::default()).err().unwrap().to_string();
            assert!(error.starts_with(&format!("cannot read `{}`: ", path.display())), "{error}");
            assert!(!error.contains('\n'), "{error}");
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
