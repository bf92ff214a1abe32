//! Where a run begins, and how a model and its optimiser are given back what they had there.

use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use burn::module::{Module, ParamId};
use burn::optim::{ModuleOptimizer, OptimizerRecord};
use firelight_storage::{CheckpointFolder, InputError, load_weights, open_file, shortened_reason};

use super::moments::share;
use super::{RunState, ValidationLoss};
use crate::ema::Ema;
use crate::parameter_ids::{ParameterIds, restore_ids};
use crate::ranks::Shards;
use crate::{OptimizerConfig, OptimizerKind, TrainingConfig, TrainingError};

/// Where a run begins: at its first step, or at a checkpoint of an earlier run.
#[derive(Clone, Debug, Default)]
pub struct StartPoint {
    pub(crate) state: RunState,
    pub(super) resumed: Option<Resumed>,
}

/// The files of the checkpoint that is continued.
#[derive(Clone, Debug)]
pub(super) struct Resumed {
    pub(super) folder: CheckpointFolder,
    pub(super) parameters: ParameterIds,
    pub(super) optimizer: OptimizerKind,
    pub(super) optimizer_tensors: usize,
    pub(super) ema: bool,
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
                Err(InputError::new(format!(
                    "the checkpoint `{}` was written by a run of the seed {found}, not {asked}: give the seed as it was, or begin \
                     a run of its own in another folder",
                    folder.state().display()
                ))
                .into())
            }
            _ => Ok(()),
        }
    }

    /// Gives `model` the weights of the checkpoint and builds its optimiser with the state it had, as one process does.
    #[cfg(test)]
    pub(crate) fn restore<M: Module>(
        &self,
        model: M,
        config: &OptimizerConfig,
    ) -> Result<(M, ModuleOptimizer), TrainingError> {
        let model = self.restore_model(model, config)?;
        let optimizer = self.optimizer(&model, config, None)?;
        Ok((model, optimizer))
    }

    /// Gives `model` the weights of the checkpoint, which an optimiser by the same rule must have written.
    pub(crate) fn restore_model<M: Module>(&self, mut model: M, config: &OptimizerConfig) -> Result<M, TrainingError> {
        let Some(Resumed { folder, parameters, optimizer, .. }) = &self.resumed else { return Ok(model) };
        same_optimizer(folder, *optimizer, config.kind())?;
        load_weights(&mut model, folder.weights())?;
        Ok(restore_ids(model, parameters).map_err(|reason| foreign(folder, &reason))?)
    }

    /// The optimiser of `model`, which was restored, with the state that it had; of several ranks that share the state, with that of the
    /// parameters that this one updates.
    pub(crate) fn optimizer<M: Module>(
        &self,
        model: &M,
        config: &OptimizerConfig,
        shards: Option<&Shards>,
    ) -> Result<ModuleOptimizer, TrainingError> {
        let optimizer = config.init(model);
        let Some(Resumed { folder, optimizer_tensors, .. }) = &self.resumed else { return Ok(optimizer) };
        let path = folder.optimizer();
        let record = match shards {
            None => load_record(&path, *optimizer_tensors)?,
            Some(shards) => share(&path, |id| shards.is_own(ParamId::from(id)))?,
        };
        let tensors = record.len();
        // Burn panics where a tensor does not say which parameter it belongs to.
        let optimizer = panic::catch_unwind(AssertUnwindSafe(|| optimizer.load_record(record)))
            .map_err(|_| TrainingError::damaged(&path)("a tensor of it belongs to no parameter"))?;
        // Burn begins anew, without a word, where it cannot rebuild the state of a parameter: count what it has taken.
        count_tensors(&path, optimizer.to_record().len(), tensors)?;
        Ok(optimizer)
    }

    /// The moving average of the weights of `model`: the one of the checkpoint, or one that begins here.
    pub(crate) fn ema<M: Module>(&self, model: &M, decay: f64) -> Result<Option<Ema>, TrainingError> {
        match self.resumed.as_ref().filter(|resumed| resumed.ema && decay > 0.0) {
            Some(resumed) => {
                let mut averages = model.clone();
                load_weights(&mut averages, resumed.folder.ema())?;
                Ok(Ema::new(decay, &averages))
            }
            None => Ok(Ema::new(decay, model)),
        }
    }
}

/// The optimiser's state in the file at `path`, which must consist of `tensors` tensors.
pub(super) fn load_record(path: &Path, tensors: usize) -> Result<OptimizerRecord, TrainingError> {
    // Burn words a missing file as it words a damaged one.
    open_file(path)?;
    let record = OptimizerRecord::load(path).map_err(TrainingError::damaged(path))?;
    count_tensors(path, record.len(), tensors)?;
    Ok(record)
}

fn count_tensors(path: &Path, found: usize, expected: usize) -> Result<(), TrainingError> {
    match found == expected {
        true => Ok(()),
        false => Err(TrainingError::damaged(path)(format!(
            "state.json tells of {expected} tensors of state, and it holds {found}"
        ))),
    }
}

/// A checkpoint that a model with other parameters wrote.
fn foreign(folder: &CheckpointFolder, reason: &str) -> InputError {
    let (path, reason) = (folder.state(), shortened_reason(reason));
    let problem = format!("the checkpoint `{}` does not fit the model: {reason}", path.display());
    InputError::new(problem).advise("resume with the model that wrote it")
}

/// A state means nothing to another kind of optimizer.
fn same_optimizer(folder: &CheckpointFolder, found: OptimizerKind, asked: OptimizerKind) -> Result<(), InputError> {
    match found == asked {
        true => Ok(()),
        false => Err(InputError::new(format!(
            "the checkpoint `{}` was written with optimizer.kind = \"{}\", not \"{}\": set the kind as it was, or begin the run anew \
             with --force",
            folder.state().display(),
            found.name(),
            asked.name()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::resume_point;
    use super::super::tests::{run_folder, save_trained, save_trained_by};
    use super::*;
    use crate::{AdafactorConfig, AdamConfig, LionConfig, MuonConfig, ParameterGroup, UpdateRule};
    use std::fs;

    #[test]
    fn a_state_that_lacks_parameters_is_refused() {
        let (_home, folder) = run_folder();
        let (model, files) = save_trained(&folder, 5);
        let start = resume_point(&folder).unwrap().unwrap();
        OptimizerConfig::default().init(&model).save(files.optimizer()).unwrap();
        let error = start.restore(model, &OptimizerConfig::default()).err().unwrap();
        assert!(
            error.to_string().ends_with("is damaged: state.json tells of 4 tensors of state, and it holds 0"),
            "{error}"
        );
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
    fn a_matrix_whose_state_is_that_of_another_rule_is_noticed() {
        let slope = ParameterGroup { parameters: "slope".into(), ..ParameterGroup::default() };
        let of_muon = ParameterGroup { muon: Some(true), ..slope.clone() };
        let undecayed = ParameterGroup { weight_decay: Some(0.0), ..slope };
        let config = |groups| OptimizerConfig { groups, ..UpdateRule::Muon(MuonConfig::default()).into() };
        let (_home, folder) = run_folder();
        let (model, files) = save_trained_by(&config(vec![of_muon.clone()]), &folder, 5);
        let start = resume_point(&folder).unwrap().unwrap();
        start.restore(model.clone(), &config(vec![of_muon, undecayed])).unwrap();

        // AdamW finds its own state of the vector, and none of the matrix.
        let text = fs::read_to_string(files.state()).unwrap();
        fs::write(files.state(), text.replace("\"muon\"", "\"adamw\"")).unwrap();
        let start = resume_point(&folder).unwrap().unwrap();
        let error = start.restore(model, &OptimizerConfig::default()).err().unwrap();
        assert!(
            error.to_string().ends_with("is damaged: state.json tells of 3 tensors of state, and it holds 2"),
            "{error}"
        );
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
    fn moments_that_belong_to_no_parameter_are_damage() {
        let (_home, folder) = run_folder();
        let (model, files) = save_trained(&folder, 5);
        let start = resume_point(&folder).unwrap().unwrap();
        let (path, field) = (files.optimizer(), b"param_id"); // by which the file says whose a tensor is
        let mut bytes = fs::read(&path).unwrap();
        let place = bytes.windows(field.len()).position(|part| part == field).unwrap();
        bytes[place..place + field.len()].fill(b'x');
        fs::write(&path, bytes).unwrap();
        let error = start.restore(model, &OptimizerConfig::default()).err().unwrap();
        let expected = format!("the file `{}` is damaged: a tensor of it belongs to no parameter", path.display());
        assert!(error.is_user_error() && error.to_string().starts_with(&expected), "{error}");
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
        let expected = "step-5/state.json` was written by a run of the seed 18446744073709551615, not 8: give the seed";
        assert!(error.to_string().contains(expected) && error.is_user_error(), "{error}");
    }
}
