//! Which weights of a run are the newest. A training writes `model.safetensors` when it ends or is interrupted. One that was
//! resumed and then killed has newer weights in its checkpoints; one that was killed in its first session has only those.

use std::cmp::Reverse;
use std::path::PathBuf;

use serde::Deserialize;

use super::ModelFolder;
use crate::{Checkpoint, StorageError, check_weights};

/// Weights of a run that are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundWeights {
    /// The file.
    pub path: PathBuf,
    /// The steps after which they were written; none where nobody noted it, as for an average.
    pub step: Option<usize>,
}

/// What `state.json` says of the weights beside it.
#[derive(Deserialize)]
struct Noted {
    step: usize,
}

impl ModelFolder {
    /// The weights of a checkpoint with the step they are of. [`Checkpoint::Last`] are the newest whole weights of the run, in
    /// whichever file they lie.
    ///
    /// # Errors
    /// Fails if the folder has no such checkpoint; the message lists those it has.
    pub fn find(&self, checkpoint: &Checkpoint) -> Result<FoundWeights, StorageError> {
        let found = match checkpoint {
            Checkpoint::Last => self.newest(),
            other => self.at(other, self.weights_path(other)),
        };
        found.ok_or_else(|| self.missing(checkpoint))
    }

    /// The newest whole weights. Those in `model.safetensors` count as the newest where their step is not known: a model that was
    /// copied, merged or written by another program.
    pub(super) fn newest(&self) -> Option<FoundWeights> {
        let last = self.at(&Checkpoint::Last, self.weights_path(&Checkpoint::Last));
        let step = match &last {
            Some(FoundWeights { step: None, .. }) => return last,
            Some(FoundWeights { step, .. }) => *step,
            None => None,
        };
        let mut newer = self.kept();
        newer.retain(|found| found.step > step);
        newer.sort_by_key(|found| Reverse(found.step));
        newer.into_iter().find(is_whole).or(last)
    }

    /// What the checkpoints keep of the model that is evaluated: its moving average, where there is one. Without those whose step
    /// is not known.
    fn kept(&self) -> Vec<FoundWeights> {
        let evaluated = |checkpoint: &Checkpoint| {
            let ema = self.checkpoint_folder(checkpoint).ema();
            if ema.is_file() { ema } else { self.weights_path(checkpoint) }
        };
        let found = self.named().into_iter().filter_map(|checkpoint| self.at(&checkpoint, evaluated(&checkpoint)));
        found.filter(|found| found.step.is_some()).collect()
    }

    /// The file at `path` with the step of `checkpoint`, if it is there.
    fn at(&self, checkpoint: &Checkpoint, path: PathBuf) -> Option<FoundWeights> {
        let step = match checkpoint {
            Checkpoint::Step(step) => Some(*step),
            other => self.noted(other),
        };
        path.is_file().then_some(FoundWeights { path, step })
    }

    fn noted(&self, checkpoint: &Checkpoint) -> Option<usize> {
        let text = self.checkpoint_folder(checkpoint).read_state().ok()?;
        serde_json::from_slice(&text).ok().map(|Noted { step }| step)
    }
}

fn is_whole(found: &FoundWeights) -> bool {
    let checked = check_weights(&found.path);
    if let Err(error) = &checked {
        log::warn!("passing over newer weights: {error}");
    }
    checked.is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{Existing, save_weights};
    use burn::module::{Module, Param};
    use burn::tensor::{Device, Tensor};

    #[derive(Module, Debug)]
    struct Layer {
        weight: Param<Tensor<1>>,
    }

    /// A run with whole weights in these files of its folder, and these notes.
    fn run(weights: &[&str], notes: &[(&str, &str)]) -> (tempfile::TempDir, ModelFolder) {
        let home = tempfile::tempdir().unwrap();
        let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
        let place = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        };
        let layer = Layer { weight: Param::from_tensor(Tensor::ones([1], &Device::default())) };
        weights.iter().for_each(|name| save_weights(&layer, place(name)).unwrap());
        notes.iter().for_each(|(name, text)| fs::write(place(name), text).unwrap());
        (home, folder)
    }

    fn newest(folder: &ModelFolder) -> (String, Option<usize>) {
        let FoundWeights { path, step } = folder.find(&Checkpoint::Last).unwrap();
        (path.strip_prefix(folder.path()).unwrap().display().to_string().replace('\\', "/"), step)
    }

    #[test]
    fn weights_of_a_later_checkpoint_are_newer_than_those_of_an_interruption() {
        let files =
            ["model.safetensors", "checkpoints/step-46/model.safetensors", "checkpoints/step-80/model.safetensors"];
        let (_home, folder) = run(&files, &[("state.json", "{\"step\": 46}")]);
        assert_eq!(newest(&folder), (files[2].into(), Some(80)));
        assert_eq!(folder.weights(&Checkpoint::Last).unwrap(), folder.path().join(files[2]));

        fs::write(folder.path().join(files[2]), "cut short").unwrap();
        assert_eq!(newest(&folder), (files[0].into(), Some(46)), "not the checkpoint of the same step");
        fs::write(folder.path().join("state.json"), "{\"step\": 90}").unwrap();
        assert_eq!(newest(&folder), (files[0].into(), Some(90)));
        fs::remove_file(folder.path().join("state.json")).unwrap();
        assert_eq!(newest(&folder), (files[0].into(), None), "whoever put them there");
    }

    #[test]
    fn a_run_that_was_killed_before_its_end_has_the_weights_of_its_checkpoints() {
        let files = ["checkpoints/best/model.safetensors", "checkpoints/step-5/model.safetensors"];
        let (_home, folder) = run(&files, &[("checkpoints/best/state.json", "{\"step\": 8, \"loss\": 1.5}")]);
        assert_eq!(newest(&folder), (files[0].into(), Some(8)));
        assert_eq!(folder.checkpoints().unwrap(), [Checkpoint::Last, Checkpoint::Best, Checkpoint::Step(5)]);
        assert_eq!(folder.find(&Checkpoint::Best).unwrap().step, Some(8));

        let (_home, empty) = run(&[], &[]);
        assert!(empty.find(&Checkpoint::Last).unwrap_err().to_string().contains("there are none yet"));
        assert!(empty.checkpoints().unwrap().is_empty());
    }

    #[test]
    fn the_moving_average_is_what_a_checkpoint_keeps_of_the_model() {
        let files = ["checkpoints/step-5/model.safetensors", "checkpoints/step-5/ema.safetensors"];
        let (_home, folder) = run(&files, &[]);
        assert_eq!(newest(&folder), (files[1].into(), Some(5)));
        assert_eq!(folder.weights(&Checkpoint::Step(5)).unwrap(), folder.path().join(files[0]));
    }
}
