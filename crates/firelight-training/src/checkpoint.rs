//! What a run keeps on the way: the weights with the lowest validation loss, and from time to time everything needed to
//! continue. The trainer writes here; [`resume_point`] finds where an interrupted run can go on.

mod moments;
mod resume;
mod start;
mod state;

pub use resume::resume_point;
pub use start::StartPoint;
pub(crate) use state::RunState;
pub use state::ValidationLoss;

use std::path::Path;

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use firelight_storage::{Checkpoint, ModelFolder, save_weights, write_atomic};
use serde::{Deserialize, Serialize};

use crate::parameter_ids::{ParameterIds, ids_of};
use crate::{OptimizerKind, TrainingError};
use moments::State;

/// The content of `state.json` in a resumable checkpoint.
#[derive(Serialize, Deserialize)]
struct Notes {
    #[serde(flatten)]
    state: RunState,
    parameters: ParameterIds,
    /// What wrote the optimiser's state.
    #[serde(default)]
    optimizer: OptimizerKind,
    /// Tensors in the optimiser's state, which some parameters may not have yet.
    optimizer_tensors: usize,
    /// Whether the moving average of the weights lies beside them.
    #[serde(default)]
    ema: bool,
}

/// Writes `checkpoints/step-N`, whole or not at all, and removes all but the newest `keep`; 0 keeps all. Where several ranks share the
/// state of the optimiser, those of the other ranks come in Burn's format.
pub(crate) fn save_step<M: Module>(
    folder: &ModelFolder,
    model: &M,
    ema: Option<&M>,
    (kind, optimizer, others): (OptimizerKind, &ModuleOptimizer, Vec<Vec<u8>>),
    state: &RunState,
    keep: usize,
) -> Result<(), TrainingError> {
    let (parameters, has_ema) = (ids_of(model), ema.is_some());
    folder.write_checkpoint(&Checkpoint::Step(state.step), |files| {
        let path = files.optimizer();
        let moments = State::of(optimizer, others, &parameters).map_err(TrainingError::file("write", &path))?;
        let (optimizer_tensors, state) = (moments.len(), state.clone());
        let notes = Notes { state, parameters, optimizer: kind, optimizer_tensors, ema: has_ema };
        save_weights(model, files.weights())?;
        if let Some(ema) = ema {
            save_weights(ema, files.ema())?;
        }
        moments.save(&path)?;
        write_json(&files.state(), &notes)
    })?;
    if keep > 0 { remove_older(folder, state.step, keep) } else { Ok(()) }
}

/// Writes `checkpoints/best`, whole or not at all.
pub(crate) fn save_best<M: Module>(folder: &ModelFolder, model: &M, state: &RunState) -> Result<(), TrainingError> {
    folder.write_checkpoint(&Checkpoint::Best, |files| {
        save_weights(model, files.weights())?;
        write_json(&files.state(), &state.best)
    })
}

/// The content of the `state.json` beside the last weights.
#[derive(Serialize)]
struct LastState {
    step: usize,
}

/// Writes the weights that a run ends with and, after them, their step. A kill between the two leaves an older step, or none.
pub(crate) fn save_last<M: Module>(folder: &ModelFolder, model: &M, step: usize) -> Result<(), TrainingError> {
    let files = folder.checkpoint_folder(&Checkpoint::Last);
    save_weights(model, files.weights())?;
    write_json(&files.state(), &LastState { step })
}

/// Removes all but the newest `keep` resumable checkpoints up to `step`.
fn remove_older(folder: &ModelFolder, step: usize, keep: usize) -> Result<(), TrainingError> {
    let mut steps = steps_in(folder)?;
    steps.retain(|&other| other <= step);
    let mut old = steps.into_iter().rev().skip(keep);
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
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), TrainingError> {
    let mut text = serde_json::to_string_pretty(value).map_err(TrainingError::file("write", path))?;
    text.push('\n');
    Ok(write_atomic(path, text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OptimizerConfig;
    use crate::toy::{Line, Points};
    use burn::tensor::Device;
    use burn::train::TrainStep;
    use firelight_storage::{CheckpointFolder, Existing};
    use std::fs;

    pub(super) fn run_folder() -> (tempfile::TempDir, ModelFolder) {
        let home = tempfile::tempdir().unwrap();
        let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
        (home, folder)
    }

    fn save(folder: &ModelFolder, step: usize) -> Line {
        let model = Line::new(step as f32, 0.0, &Device::default());
        let state = RunState { step, ..RunState::default() };
        let optimizer = OptimizerConfig::default().init(&model);
        save_step(folder, &model, None, (OptimizerKind::AdamW, &optimizer, Vec::new()), &state, 2).unwrap();
        model
    }

    /// Takes a step, so that the optimiser has a state, and saves it as the checkpoint of `step`.
    pub(super) fn save_trained(folder: &ModelFolder, step: usize) -> (Line, CheckpointFolder) {
        save_trained_by(&OptimizerConfig::default(), folder, step)
    }

    pub(super) fn save_trained_by(
        config: &OptimizerConfig,
        folder: &ModelFolder,
        step: usize,
    ) -> (Line, CheckpointFolder) {
        let device = Device::default().autodiff();
        let model = Line::new(1.0, 0.0, &device);
        let mut optimizer = config.init(&model);
        let output = TrainStep::step(&model, Points::new(vec![(1.0, 2.0)], &device));
        let model = optimizer.step(0.1, model, output.grads);
        let state = RunState { step, ..RunState::default() };
        save_step(folder, &model, Some(&model), (config.kind(), &optimizer, Vec::new()), &state, 2).unwrap();
        (model, folder.checkpoint_folder(&Checkpoint::Step(step)))
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
    fn a_checkpoint_that_cannot_be_written_leaves_the_one_before_it() {
        let (_home, folder) = run_folder();
        let model = Line::new(1.0, 0.0, &Device::default());
        let save = |step: usize| {
            let state = RunState { step, ..RunState::default() };
            let optimizer = OptimizerConfig::default().init(&model);
            save_step(&folder, &model, None, (OptimizerKind::AdamW, &optimizer, Vec::new()), &state, 1)
        };
        save(5).unwrap();
        let in_the_way = folder.path().join("checkpoints/.step-10.staging");
        fs::write(&in_the_way, "a file where the folder is to be").unwrap();
        assert!(save(10).unwrap_err().to_string().contains(".step-10.staging"));
        assert_eq!(resume_point(&folder).unwrap().unwrap().step(), 5);
        fs::remove_file(in_the_way).unwrap();
        save(10).unwrap();
        assert_eq!(steps_in(&folder).unwrap(), [10]);
    }

    #[test]
    fn a_damaged_checkpoint_of_a_later_step_takes_the_place_of_no_whole_one() {
        let (_home, folder) = run_folder();
        for step in [10, 20] {
            save(&folder, step);
        }
        fs::write(folder.checkpoint_folder(&Checkpoint::Step(20)).state(), "{").unwrap();
        assert_eq!(resume_point(&folder).unwrap().unwrap().step(), 10);
        save(&folder, 12);
        assert_eq!(steps_in(&folder).unwrap(), [10, 12, 20]);
    }

    #[test]
    fn all_checkpoints_stay_if_so_asked() {
        let (_home, folder) = run_folder();
        let model = Line::new(0.0, 0.0, &Device::default());
        for step in 1..=4 {
            let state = RunState { step, ..RunState::default() };
            let optimizer = OptimizerConfig::default().init(&model);
            save_step(&folder, &model, None, (OptimizerKind::AdamW, &optimizer, Vec::new()), &state, 0).unwrap();
        }
        assert_eq!(steps_in(&folder).unwrap(), [1, 2, 3, 4]);
    }
}
