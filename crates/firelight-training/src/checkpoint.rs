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
use crate::precision::Scale;
use crate::smoothed::Smoothed;
use crate::{OptimizerConfig, OptimizerKind, TrainingConfig, TrainingError};

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
    /// The seed of the run; checkpoints of older versions have none.
    #[serde(default)]
    pub(crate) seed: Option<u64>,
    /// The newest evaluation.
    pub(crate) evaluation: Option<ValidationLoss>,
    /// The best evaluation.
    pub(crate) best: Option<ValidationLoss>,
    /// What makes it the best: the deciding metric, turned so that lower is better.
    #[serde(default)]
    badness: Option<f64>,
    /// Evaluations since the best one.
    #[serde(default)]
    without_gain: usize,
    /// Where the scale of the loss stands, if there is one.
    #[serde(default)]
    pub(crate) loss_scale: Option<Scale>,
}

impl RunState {
    /// The same in a run of `seed`.
    pub(crate) fn of_seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// Notes an evaluation after the current step and returns whether it is the best so far: the one of lowest `badness`.
    pub(crate) fn note(&mut self, loss: f64, badness: f64) -> bool {
        let evaluation = ValidationLoss { step: self.step, loss };
        let is_best = self.badness.is_none_or(|best| badness < best);
        self.evaluation = Some(evaluation);
        self.without_gain = if is_best { 0 } else { self.without_gain + 1 };
        if is_best {
            (self.best, self.badness) = (Some(evaluation), Some(badness));
        }
        is_best
    }

    /// Whether no step is left to take: all are done, or patience has run out.
    pub(crate) fn ends(&self, training: &TrainingConfig) -> bool {
        self.step >= training.steps || (training.patience > 0 && self.without_gain >= training.patience)
    }

    /// Whether a run that stands here has nothing left to do.
    pub(crate) fn is_finished(&self, training: &TrainingConfig) -> bool {
        self.ends(training) && self.evaluation.is_some_and(|newest| newest.step == self.step)
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
    optimizer: OptimizerKind,
    optimizer_tensors: usize,
    smoothed: bool,
}

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
    smoothed: bool,
}

impl StartPoint {
    /// Steps done already: 0 for a new run. The training batches must begin with the one of the next step.
    pub fn step(&self) -> usize {
        self.state.step
    }

    /// Whether a run by these settings that stands here has nothing left to do.
    pub fn is_finished(&self, training: &TrainingConfig) -> bool {
        self.state.is_finished(training)
    }

    /// The best evaluation so far.
    pub fn best(&self) -> Option<ValidationLoss> {
        self.state.best
    }

    /// Refuses to go on under another seed than the run began with.
    pub(crate) fn check_seed(&self, asked: u64) -> Result<(), TrainingError> {
        match (&self.resumed, self.state.seed) {
            (Some(Resumed { folder, .. }), Some(found)) if found != asked => {
                Err(TrainingError::OtherSeed { path: folder.path().into(), found, asked })
            }
            _ => Ok(()),
        }
    }

    /// Gives `model` the weights of the checkpoint and builds its optimiser with the state it had.
    pub(crate) fn restore<M: Module>(
        &self,
        mut model: M,
        config: &OptimizerConfig,
    ) -> Result<(M, ModuleOptimizer), TrainingError> {
        let Some(Resumed { folder, parameters, optimizer, optimizer_tensors, .. }) = &self.resumed else {
            let optimizer = config.init(&model);
            return Ok((model, optimizer));
        };
        same_optimizer(folder, *optimizer, config.kind())?;
        load_weights(&mut model, folder.weights())?;
        let model = restore_ids(model, parameters)
            .map_err(|parameter| TrainingError::ForeignCheckpoint { path: folder.path().into(), parameter })?;
        let path = folder.optimizer();
        let optimizer = config.init(&model).load_record(load_record(&path, *optimizer_tensors)?);
        // Burn begins anew, without a word, where it cannot rebuild the state of a parameter: count what it has taken.
        count_tensors(&path, optimizer.to_record().len(), *optimizer_tensors)?;
        Ok((model, optimizer))
    }

    /// The moving average of the weights of `model`: the one of the checkpoint, or one that begins here.
    pub(crate) fn smoothed<M: Module>(&self, model: &M, decay: f64) -> Result<Option<Smoothed>, TrainingError> {
        match self.resumed.as_ref().filter(|resumed| resumed.smoothed && decay > 0.0) {
            Some(resumed) => {
                let mut averages = model.clone();
                load_weights(&mut averages, resumed.folder.smoothed())?;
                Ok(Smoothed::new(decay, &averages))
            }
            None => Ok(Smoothed::new(decay, model)),
        }
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

/// Writes `checkpoints/step-N`, whole or not at all, and removes all but the newest `keep`; 0 keeps all.
pub(crate) fn save_step<M: Module>(
    folder: &ModelFolder,
    model: &M,
    smoothed: Option<&M>,
    (kind, optimizer): (OptimizerKind, &ModuleOptimizer),
    state: &RunState,
    keep: usize,
) -> Result<(), TrainingError> {
    let record = optimizer.to_record();
    let (parameters, optimizer_tensors) = (ids_of(model), record.len());
    let smooth = smoothed.is_some();
    let notes = Notes { state: state.clone(), parameters, optimizer: kind, optimizer_tensors, smoothed: smooth };
    folder.write_checkpoint(&Checkpoint::Step(state.step), |files| {
        save_weights(model, files.weights())?;
        if let Some(smoothed) = smoothed {
            save_weights(smoothed, files.smoothed())?;
        }
        let path = files.optimizer();
        record.save(&path).map_err(TrainingError::file("write", &path))?;
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

/// Reads a checkpoint through and makes sure that all of it is there.
fn read(folder: CheckpointFolder) -> Result<StartPoint, TrainingError> {
    let path = folder.state();
    let text = fs::read(&path).map_err(StorageError::io("read", &path))?;
    let Notes { state, parameters, optimizer, optimizer_tensors, smoothed } =
        serde_json::from_slice(&text).map_err(TrainingError::damaged(&path))?;
    check_weights(folder.weights())?;
    if smoothed {
        check_weights(folder.smoothed())?;
    }
    load_record(&folder.optimizer(), optimizer_tensors)?;
    Ok(StartPoint { state, resumed: Some(Resumed { folder, parameters, optimizer, optimizer_tensors, smoothed }) })
}

/// The optimiser's state in the file at `path`, which must consist of `tensors` tensors.
fn load_record(path: &Path, tensors: usize) -> Result<OptimizerRecord, TrainingError> {
    // Burn words a missing file as it words a damaged one.
    File::open(path).map_err(StorageError::io("read", path))?;
    let record = OptimizerRecord::load(path).map_err(TrainingError::damaged(path))?;
    count_tensors(path, record.len(), tensors)?;
    Ok(record)
}

fn count_tensors(path: &Path, found: usize, expected: usize) -> Result<(), TrainingError> {
    match found == expected {
        true => Ok(()),
        false => Err(TrainingError::damaged(path)(format!("expected {expected} tensors of state, found {found}"))),
    }
}

/// A state means nothing to another kind of optimizer.
fn same_optimizer(folder: &CheckpointFolder, found: OptimizerKind, asked: OptimizerKind) -> Result<(), TrainingError> {
    match found == asked {
        true => Ok(()),
        false => {
            Err(TrainingError::OtherOptimizer { path: folder.path().into(), found: found.name(), asked: asked.name() })
        }
    }
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
fn write_json(path: &Path, value: &impl Serialize) -> Result<(), TrainingError> {
    let mut text = serde_json::to_string_pretty(value).map_err(TrainingError::file("write", path))?;
    text.push('\n');
    Ok(write_atomic(path, text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::{Line, Points};
    use crate::{AdafactorConfig, AdamConfig, LionConfig, MuonConfig, ParameterGroup, UpdateRule};
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
        let optimizer = OptimizerConfig::default().init(&model);
        save_step(folder, &model, None, (OptimizerKind::AdamW, &optimizer), &state, 2).unwrap();
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
        save_trained_by(&OptimizerConfig::default(), folder, step)
    }

    fn save_trained_by(config: &OptimizerConfig, folder: &ModelFolder, step: usize) -> (Line, CheckpointFolder) {
        let device = Device::default().autodiff();
        let model = Line::new(1.0, 0.0, &device);
        let mut optimizer = config.init(&model);
        let output = TrainStep::step(&model, Points::new(vec![(1.0, 2.0)], &device));
        let model = optimizer.step(0.1, model, output.grads);
        let state = RunState { step, ..RunState::default() };
        save_step(folder, &model, Some(&model), (config.kind(), &optimizer), &state, 2).unwrap();
        (model, folder.checkpoint_folder(&Checkpoint::Step(step)))
    }

    #[test]
    fn a_damaged_checkpoint_is_passed_over_whichever_file_it_is() {
        let (_home, folder) = run_folder();
        save_trained(&folder, 5);
        let (_, newest) = save_trained(&folder, 10);
        for file in [newest.weights(), newest.smoothed(), newest.optimizer(), newest.state()] {
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
    fn a_checkpoint_is_continued_by_the_kind_that_wrote_it_alone() {
        let slope = ParameterGroup { parameters: "slope".into(), muon: Some(true), ..ParameterGroup::default() };
        let muon = OptimizerConfig { groups: vec![slope], ..UpdateRule::Muon(MuonConfig::default()).into() };
        let kinds = [
            OptimizerConfig::default(),
            UpdateRule::Adam(AdamConfig::vaswani()).into(),
            UpdateRule::Lion(LionConfig::default()).into(),
            UpdateRule::Adafactor(AdafactorConfig::default()).into(),
            muon,
        ];
        for (config, tensors) in kinds.iter().zip([4, 4, 2, 3, 3]) {
            let (_home, folder) = run_folder();
            let (model, _) = save_trained_by(config, &folder, 5);
            let start = resume_point(&folder).unwrap().unwrap();
            for other in &kinds {
                match start.restore(model.clone(), other) {
                    Ok((_, optimizer)) => assert_eq!((other, optimizer.to_record().len()), (config, tensors)),
                    Err(error) => {
                        let [found, asked] = [config, other].map(|config| config.kind().name());
                        let expected = format!("with optimizer.kind = \"{found}\", not \"{asked}\"");
                        assert!(error.to_string().contains(&expected) && error.is_user_error(), "{error}");
                        assert_ne!(found, asked);
                    }
                }
            }
        }
    }

    #[test]
    fn a_matrix_that_has_gone_from_one_rule_to_the_other_is_noticed() {
        let group = |muon| ParameterGroup { parameters: "slope".into(), muon: Some(muon), ..ParameterGroup::default() };
        let config = |groups| OptimizerConfig { groups, ..UpdateRule::Muon(MuonConfig::default()).into() };
        let (_home, folder) = run_folder();
        let (model, _) = save_trained_by(&config(vec![group(true)]), &folder, 5);
        let start = resume_point(&folder).unwrap().unwrap();
        let offset =
            ParameterGroup { parameters: "slope".into(), weight_decay: Some(0.0), ..ParameterGroup::default() };
        start.restore(model.clone(), &config(vec![group(true), offset])).unwrap();
        let error = start.restore(model, &OptimizerConfig { groups: vec![], ..OptimizerConfig::default() }).err();
        assert!(error.is_some());
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
    fn a_run_goes_on_under_its_own_seed_alone_and_an_old_checkpoint_under_any() {
        let (_home, folder) = run_folder();
        let (_, files) = save_trained(&folder, 5);
        let text = fs::read_to_string(files.state()).unwrap();
        assert!(text.contains("\"seed\": null"), "{text}");
        let resumed = |seed: &str| {
            fs::write(files.state(), text.replace("  \"seed\": null,\n", seed)).unwrap();
            resume_point(&folder).unwrap().unwrap()
        };
        resumed("").check_seed(8).unwrap(); // as older versions wrote it
        let start = resumed("  \"seed\": 18446744073709551615,\n");
        start.check_seed(u64::MAX).unwrap();
        let error = start.check_seed(8).unwrap_err();
        let expected = "step-5` was written by a run of the seed 18446744073709551615, not 8: give the seed";
        assert!(error.to_string().contains(expected) && error.is_user_error(), "{error}");
    }

    #[test]
    fn a_checkpoint_that_cannot_be_written_leaves_the_one_before_it() {
        let (_home, folder) = run_folder();
        let model = Line::new(1.0, 0.0, &Device::default());
        let save = |step: usize| {
            let state = RunState { step, ..RunState::default() };
            let optimizer = OptimizerConfig::default().init(&model);
            save_step(&folder, &model, None, (OptimizerKind::AdamW, &optimizer), &state, 1)
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
    fn all_checkpoints_stay_if_so_asked() {
        let (_home, folder) = run_folder();
        let model = Line::new(0.0, 0.0, &Device::default());
        for step in 1..=4 {
            let state = RunState { step, ..RunState::default() };
            let optimizer = OptimizerConfig::default().init(&model);
            save_step(&folder, &model, None, (OptimizerKind::AdamW, &optimizer), &state, 0).unwrap();
        }
        assert_eq!(steps_in(&folder).unwrap(), [1, 2, 3, 4]);
    }

    #[test]
    fn only_a_lower_badness_is_better() {
        let mut state = RunState { step: 1, ..RunState::default() };
        assert!(state.note(2.0, 0.5));
        state.step = 2;
        assert!(!state.note(1.0, 0.5));
        assert_eq!(state.evaluation, Some(ValidationLoss { step: 2, loss: 1.0 }));
        assert_eq!(state.best, Some(ValidationLoss { step: 1, loss: 2.0 }));
    }

    #[test]
    fn a_run_ends_at_its_last_step_or_when_patience_runs_out() {
        let training = TrainingConfig { steps: 10, patience: 2, ..TrainingConfig::default() };
        let mut state = RunState { step: 4, ..RunState::default() };
        for (badness, ends) in [(2.0, false), (2.0, false), (1.0, false), (3.0, false), (1.5, true)] {
            state.note(badness, badness);
            assert_eq!(state.ends(&training), ends, "{badness}");
        }
        assert!(state.is_finished(&training));
        assert!(!state.is_finished(&TrainingConfig { patience: 0, ..training.clone() }));
        state.step = 10;
        assert!(state.ends(&training) && !state.is_finished(&training), "its last step was not evaluated");
    }
}
