//! The run folder: everything one training run leaves behind and a model is loaded from. Trainers create it, every other
//! command opens it; this crate alone knows its layout (layout.rs).

mod existing;
mod layout;
mod newest;
pub(crate) mod quantization;
mod whole;

pub use existing::Existing;
pub use newest::FoundWeights;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use self::existing::{check, has_checkpoint, remove_temporaries};
use self::layout::{CHECKPOINTS, CONFIG, remove_run};
use crate::checkpoint_folder::{checkpoint_of, name_of, publish, recover, remove};
use crate::error::list;
use crate::listing::names_in;
use crate::lock::Lock;
use crate::{Checkpoint, CheckpointFolder, InputError, StorageError, config};

/// The folder of one run. Holding one means that the folder exists, not that every file in it does.
///
/// One that was made or continued by [`create`](Self::create) or [`next_free`](Self::next_free) belongs to this process, as
/// long as it or a clone of it lives; one that was [`open`](Self::open)ed is only read.
#[derive(Clone, Debug)]
pub struct ModelFolder {
    path: PathBuf,
    _lock: Option<Arc<Lock>>,
}

impl ModelFolder {
    /// Makes the folder of a run, with the folders above it.
    ///
    /// Call it after everything else about the run has been checked: [`Existing::Force`] removes the old run at once.
    ///
    /// # Errors
    /// Fails if the folder is not empty ([`Existing::Refuse`]), holds no run ([`Existing::Force`], [`Existing::Resume`],
    /// [`Existing::Continue`]), is in use by another process, or cannot be made.
    pub fn create(path: impl AsRef<Path>, existing: Existing) -> Result<Self, StorageError> {
        let path = path.as_ref();
        check(path, existing)?;
        fs::create_dir_all(path).map_err(StorageError::io("create the folder", path))?;
        let folder = Self::locked(path)?;
        // Another process may have come first.
        check(path, existing)?;
        remove_temporaries(path)?;
        match existing {
            Existing::Resume | Existing::Continue => recover(&path.join(CHECKPOINTS))?,
            Existing::Force => remove_run(path)?,
            Existing::Refuse => {}
        }
        Ok(folder)
    }

    fn locked(path: &Path) -> Result<Self, StorageError> {
        Ok(Self { path: path.into(), _lock: Some(Arc::new(Lock::take(path)?)) })
    }

    /// Makes `<parent>/<name>-<n>` with the lowest `n` from 1 on that is free. Safe when several runs start at once.
    ///
    /// # Errors
    /// Fails if the folder cannot be made.
    pub fn next_free(parent: impl AsRef<Path>, name: &str) -> Result<Self, StorageError> {
        let parent = parent.as_ref();
        fs::create_dir_all(parent).map_err(StorageError::io("create the folder", parent))?;
        let mut n = 1;
        loop {
            let path = parent.join(format!("{name}-{n}"));
            match fs::create_dir(&path) {
                Ok(()) => return Self::locked(&path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => n += 1,
                Err(error) => return Err(StorageError::io("create the folder", &path)(error)),
            }
        }
    }

    /// Opens the folder of a trained model, or of a training without a recipe, which has checkpoints alone.
    ///
    /// # Errors
    /// Fails if there is no such folder, or if it holds neither `config.json` nor a checkpoint.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StorageError> {
        let path = path.as_ref();
        if !path.exists() {
            let problem = format!("there is no folder `{}`: expected the folder of a trained model", path.display());
            return Err(InputError::new(problem + ", such as `runs/stories-1`").into());
        }
        let names = names_in(path)?;
        if !names.iter().any(|name| name == CONFIG) && !has_checkpoint(path) {
            let found = if names.is_empty() { "an empty folder".into() } else { list(&names) };
            let problem = format!("is no model folder: expected it to hold config.json, found {found}");
            return Err(InputError::in_file(path, problem)
                .advise("give the folder that `firelight train` wrote")
                .into());
        }
        Ok(Self { path: path.into(), _lock: None })
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder in which a checkpoint keeps its files, whether it is there or not.
    ///
    /// If a crash fell between the two moves that replace a checkpoint, this is the old one under its hidden name.
    pub fn checkpoint_folder(&self, checkpoint: &Checkpoint) -> CheckpointFolder {
        match name_of(checkpoint) {
            Some(name) => CheckpointFolder::find(self.path.join(CHECKPOINTS).join(name)),
            None => CheckpointFolder::at(self.path.clone()),
        }
    }

    /// Where the weights of a checkpoint lie, whether they are there or not; those of [`Checkpoint::Last`] are written
    /// here.
    pub fn weights_path(&self, checkpoint: &Checkpoint) -> PathBuf {
        self.checkpoint_folder(checkpoint).weights()
    }

    /// Writes the folder of a checkpoint, whole or not at all: `fill` writes its files, which then take the place of an
    /// older checkpoint in one go.
    ///
    /// # Errors
    /// Returns the error of `fill`, or one naming the file that could not be written; an older checkpoint then stays.
    ///
    /// # Panics
    /// Panics for [`Checkpoint::Last`], whose weights lie in the run folder itself.
    pub fn write_checkpoint<E: From<StorageError>>(
        &self,
        checkpoint: &Checkpoint,
        fill: impl FnOnce(&CheckpointFolder) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(name) = name_of(checkpoint) else { panic!("the last weights have no folder of their own") };
        publish(&self.path.join(CHECKPOINTS).join(name), fill)
    }

    /// Removes the folder of a checkpoint, if it is there.
    ///
    /// # Errors
    /// Fails if the folder cannot be removed.
    ///
    /// # Panics
    /// Panics for [`Checkpoint::Last`], whose weights lie in the run folder itself.
    pub fn remove_checkpoint(&self, checkpoint: &Checkpoint) -> Result<(), StorageError> {
        assert!(*checkpoint != Checkpoint::Last, "the last weights have no folder of their own");
        remove(self.checkpoint_folder(checkpoint).path())
    }

    /// The weights of a checkpoint, to be read; those of [`Checkpoint::Last`] are the newest ones, as [`find`](Self::find) tells
    /// with their step.
    ///
    /// # Errors
    /// Fails if the folder has no such checkpoint; the message lists those it has.
    pub fn weights(&self, checkpoint: &Checkpoint) -> Result<PathBuf, StorageError> {
        Ok(self.find(checkpoint)?.path)
    }

    /// The checkpoints whose weights are there: the last, the best, then by step.
    ///
    /// # Errors
    /// Fails if the folder cannot be read.
    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>, StorageError> {
        names_in(&self.path.join(CHECKPOINTS))?;
        let last = self.newest().map(|_| Checkpoint::Last);
        Ok(last.into_iter().chain(self.named()).collect())
    }

    /// The checkpoints with folders of their own whose weights are there, in order.
    fn named(&self) -> Vec<Checkpoint> {
        let names = names_in(&self.path.join(CHECKPOINTS)).unwrap_or_default();
        let mut found: Vec<_> = names.iter().filter_map(|name| checkpoint_of(name)).collect();
        found.retain(|checkpoint| self.weights_path(checkpoint).is_file());
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Writes `config.json`: the format, its version and the task, then the fields of `config`.
    ///
    /// `config` must serialise as an object without fields named `format`, `version` or `task`.
    ///
    /// # Errors
    /// Fails if `config` is no such object or the file cannot be written.
    pub fn write_config<C: Serialize>(&self, task: &str, config: &C) -> Result<(), StorageError> {
        config::write(&self.config(), task, config)
    }

    /// Reads the configuration of a model for `task` from `config.json`.
    ///
    /// # Errors
    /// Fails if the file is missing, not JSON, not Firelight's, of another version or task, or lacks fields that
    /// [`write_config`](Self::write_config) writes, those with a default included.
    pub fn read_config<C: Serialize + DeserializeOwned>(&self, task: &str) -> Result<C, StorageError> {
        config::read(&self.config(), task)
    }

    /// The task of the model; none where `config.json` does not say.
    pub fn task(&self) -> Option<String> {
        config::task_in(&self.config())
    }

    /// Whether `path` is the folder of a trained model.
    pub(crate) fn is_run(path: &Path) -> bool {
        path.join(CONFIG).is_file() || has_checkpoint(path)
    }

    /// The error of a checkpoint that is not there, with those that are.
    fn missing(&self, checkpoint: &Checkpoint) -> StorageError {
        let names: Vec<String> = self.checkpoints().unwrap_or_default().iter().map(ToString::to_string).collect();
        let available = match names.as_slice() {
            [] => "there are none yet; was the training interrupted before its first evaluation?".into(),
            [one] => format!("there is only `{one}`"),
            [first @ .., last] => format!("there are {} and {last}", first.join(", ")),
        };
        InputError::in_file(&self.path, format!("holds no checkpoint `{checkpoint}`: {available}")).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// A folder with these files, whose content does not matter.
    pub(super) fn folder_with(files: &[&str]) -> TempDir {
        let home = tempfile::tempdir().unwrap();
        for file in files {
            let path = home.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        home
    }

    pub(super) const RUN: [&str; 5] =
        ["recipe.toml", "config.json", "metrics.jsonl", "model.safetensors", "checkpoints/step-10/model.safetensors"];

    #[test]
    fn a_file_in_the_place_of_the_runs_is_the_users_mistake() {
        let home = folder_with(&["runs"]);
        assert!(ModelFolder::next_free(home.path().join("runs"), "stories").unwrap_err().is_user_error());
        assert!(ModelFolder::create(home.path().join("runs/a"), Existing::Refuse).unwrap_err().is_user_error());
    }

    #[test]
    fn a_checkpoint_that_stepped_aside_is_still_read() {
        let home = folder_with(&[&RUN[..], &["checkpoints/.best.replaced/model.safetensors"]].concat());
        let folder = ModelFolder::open(home.path()).unwrap();
        assert_eq!(folder.checkpoints().unwrap(), [Checkpoint::Last, Checkpoint::Best, Checkpoint::Step(10)]);
        assert!(folder.weights(&Checkpoint::Best).unwrap().is_file());

        let write = |checkpoint: &CheckpointFolder| crate::write_atomic(checkpoint.weights(), "new");
        folder.write_checkpoint(&Checkpoint::Best, write).unwrap();
        assert_eq!(fs::read_to_string(folder.weights(&Checkpoint::Best).unwrap()).unwrap(), "new");
        assert_eq!(names_in(&home.path().join(CHECKPOINTS)).unwrap(), ["best", "step-10"]);
        folder.remove_checkpoint(&Checkpoint::Step(10)).unwrap();
        assert_eq!(folder.checkpoints().unwrap(), [Checkpoint::Last, Checkpoint::Best]);
    }

    #[test]
    fn recipe_and_data_are_handed_on_and_what_was_learnt_is_not() {
        let data = ["tokenizer.json", "training.jsonl", "validation.jsonl", "adapters.safetensors"];
        let home = folder_with(&[&RUN[..], &data].concat());
        let out = home.path().join("merged");
        let merged = ModelFolder::create(&out, Existing::Refuse).unwrap();
        ModelFolder::open(home.path()).unwrap().hand_on(&merged).unwrap();
        assert!(merged.training_pairs().is_file() && merged.validation_pairs().is_file());
        let mut names = names_in(&out).unwrap();
        names.retain(|name| !name.starts_with('.'));
        assert_eq!(names, ["recipe.toml", "tokenizer.json", "training.jsonl", "validation.jsonl"]);
    }

    #[test]
    fn the_next_free_number_is_taken() {
        let home = tempfile::tempdir().unwrap();
        let runs = home.path().join("runs");
        for n in 1..=3 {
            assert_eq!(ModelFolder::next_free(&runs, "stories").unwrap().path(), runs.join(format!("stories-{n}")));
        }
        fs::remove_dir_all(runs.join("stories-2")).unwrap();
        assert_eq!(ModelFolder::next_free(&runs, "stories").unwrap().path(), runs.join("stories-2"));
    }

    #[test]
    fn opening_what_is_no_model_says_what_is_there() {
        let home = folder_with(&["readme.txt"]);
        let message = |path: &Path| {
            let error = ModelFolder::open(path).unwrap_err();
            assert!(error.is_user_error());
            error.to_string()
        };
        assert!(message(home.path()).contains("expected it to hold config.json, found readme.txt"));
        assert!(message(&home.path().join("none")).starts_with("there is no folder"));
        assert!(message(&home.path().join("readme.txt")).contains("is a file, but a folder is expected"));
    }

    #[test]
    fn a_missing_checkpoint_lists_the_others() {
        let home =
            folder_with(&[&RUN[..], &["checkpoints/best/model.safetensors", "checkpoints/step-9/state.json"]].concat());
        let folder = ModelFolder::open(home.path()).unwrap();
        assert_eq!(folder.checkpoints().unwrap(), [Checkpoint::Last, Checkpoint::Best, Checkpoint::Step(10)]);
        assert_eq!(folder.weights(&Checkpoint::Last).unwrap(), home.path().join("model.safetensors"));
        let error = folder.weights(&Checkpoint::Step(9)).unwrap_err().to_string();
        assert!(error.ends_with("holds no checkpoint `9`: there are last, best and 10"), "{error}");
    }
}
