//! The folder of one checkpoint: the names of its files, how it is written whole or not at all, and what is done about
//! the traces of a crash. [`ModelFolder`](crate::ModelFolder) hands it out; trainers fill it.
//!
//! A folder cannot be renamed over one that holds files, so a new `best` takes two moves: the old one steps aside as
//! `.best.replaced`, then `.best.staging` takes its name. Between the two the old one is still found by readers.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::atomic::sync_folder;
use crate::listing::names_in;
use crate::{Checkpoint, StorageError, read_file};

/// The weights' name, in a checkpoint as in the run folder.
pub(crate) const WEIGHTS: &str = "model.safetensors";
const OPTIMIZER: &str = "optimizer.bpk";
pub(crate) const STATE: &str = "state.json";
const EMA: &str = "ema.safetensors";
const BEST: &str = "best";
const AVERAGE: &str = "average";
const STEP_PREFIX: &str = "step-";

/// No `state.json` is larger, in bytes: it names every parameter of the model once.
const STATE_LIMIT: u64 = 1 << 28;

/// What a hidden folder beside a checkpoint is: one that is being written.
const STAGING: &str = "staging";

/// What a hidden folder beside a checkpoint is: the old one that has stepped aside.
const REPLACED: &str = "replaced";

/// The folder in which one checkpoint keeps its files, whether they are there or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointFolder {
    path: PathBuf,
}

impl CheckpointFolder {
    /// The folder at exactly this path.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// The folder at `target`, or the one that stepped aside for a successor that never came.
    pub(crate) fn find(target: PathBuf) -> Self {
        let replaced = beside(&target, REPLACED);
        let path = if !target.exists() && replaced.exists() { replaced } else { target };
        Self { path }
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `model.safetensors`: the weights.
    pub fn weights(&self) -> PathBuf {
        self.path.join(WEIGHTS)
    }

    /// `ema.safetensors`: the exponential moving average of the weights, where a run keeps one.
    pub fn ema(&self) -> PathBuf {
        self.path.join(EMA)
    }

    /// `optimizer.bpk`: the state of the optimiser.
    pub fn optimizer(&self) -> PathBuf {
        self.path.join(OPTIMIZER)
    }

    /// `state.json`: where the run stood.
    pub fn state(&self) -> PathBuf {
        self.path.join(STATE)
    }

    /// Reads `state.json`.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is no regular file, or is larger than any of its kind.
    pub fn read_state(&self) -> Result<Vec<u8>, StorageError> {
        read_file(self.state(), STATE_LIMIT)
    }
}

/// The name of a checkpoint's folder; none for the last weights, which lie in the run folder itself.
pub(crate) fn name_of(checkpoint: &Checkpoint) -> Option<String> {
    match checkpoint {
        Checkpoint::Last => None,
        Checkpoint::Best => Some(BEST.into()),
        Checkpoint::Average => Some(AVERAGE.into()),
        Checkpoint::Step(step) => Some(format!("{STEP_PREFIX}{step}")),
    }
}

/// The checkpoint that a folder of this name belongs to, the hidden ones beside it included.
pub(crate) fn checkpoint_of(name: &str) -> Option<Checkpoint> {
    let (name, _) = split_role(name).unwrap_or((name, ""));
    let step = || name.strip_prefix(STEP_PREFIX)?.parse().ok();
    match name {
        BEST => Some(Checkpoint::Best),
        AVERAGE => Some(Checkpoint::Average),
        _ => step().map(Checkpoint::Step),
    }
}

/// Lets `fill` write into a folder beside `target` and gives it the name `target` once it is complete and on the disk.
pub(crate) fn publish<E: From<StorageError>>(
    target: &Path,
    fill: impl FnOnce(&CheckpointFolder) -> Result<(), E>,
) -> Result<(), E> {
    let staging = CheckpointFolder::at(beside(target, STAGING));
    remove(staging.path())?;
    fs::create_dir_all(staging.path()).map_err(StorageError::io("create the folder", staging.path()))?;
    let published = fill(&staging).and_then(|()| Ok(swap(staging.path(), target)?));
    if published.is_err() {
        // The first error is the one worth telling; what is left of the folder is removed before the next attempt.
        let _ = remove(staging.path());
    }
    published
}

/// Removes the traces of a crash in the folder of all checkpoints, after an old checkpoint without a successor has got
/// its name back.
pub(crate) fn recover(checkpoints: &Path) -> Result<(), StorageError> {
    for hidden in names_in(checkpoints)?.iter().filter(|name| checkpoint_of(name).is_some()) {
        let Some((name, role)) = split_role(hidden) else { continue };
        let (target, hidden) = (checkpoints.join(name), checkpoints.join(hidden));
        if role == REPLACED && !target.exists() {
            fs::rename(&hidden, &target).map_err(StorageError::io("restore", &target))?;
        } else {
            remove(&hidden)?;
        }
    }
    Ok(())
}

/// Removes a folder, if it is there.
pub(crate) fn remove(path: &Path) -> Result<(), StorageError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StorageError::io("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Puts the complete folder `staging` in the place of `target`.
fn swap(staging: &Path, target: &Path) -> Result<(), StorageError> {
    sync_files(staging).map_err(StorageError::io("write", staging))?;
    let replaced = step_aside(target)?;
    let renamed = fs::rename(staging, target).and_then(|()| sync_folder(target));
    renamed.map_err(StorageError::io("write", target))?;
    remove(&replaced)
}

/// Moves the folder `target`, if it is there, to the name under which it is still found and [`recover`]ed, and returns that.
fn step_aside(target: &Path) -> Result<PathBuf, StorageError> {
    let replaced = beside(target, REPLACED);
    if target.exists() {
        remove(&replaced)?;
        fs::rename(target, &replaced).map_err(StorageError::io("replace", target))?;
    }
    Ok(replaced)
}

/// Flushes the files of a folder to the disk, and its entries.
fn sync_files(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let file = entry?.path();
        OpenOptions::new().write(true).open(&file)?.sync_all()?;
        sync_folder(&file)?;
    }
    Ok(())
}

/// A hidden name in the folder of `target`.
fn beside(target: &Path, role: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.{role}"))
}

/// Splits a name that [`beside`] made.
fn split_role(hidden: &str) -> Option<(&str, &str)> {
    hidden.strip_prefix('.')?.rsplit_once('.').filter(|(_, role)| [STAGING, REPLACED].contains(role))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InputError;
    use crate::write_atomic;

    fn write(target: &Path, weights: &str) {
        publish::<StorageError>(target, |folder| write_atomic(folder.weights(), weights)).unwrap();
    }

    #[test]
    fn names_tell_their_checkpoint() {
        for checkpoint in [Checkpoint::Best, Checkpoint::Average, Checkpoint::Step(20)] {
            let name = name_of(&checkpoint).unwrap();
            for name in [name.clone(), format!(".{name}.staging"), format!(".{name}.replaced")] {
                assert_eq!(checkpoint_of(&name), Some(checkpoint), "{name}");
            }
        }
        for foreign in ["best2", "step-", "step-x", ".best", ".best.old", "mine.replaced"] {
            assert_eq!(checkpoint_of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_checkpoint_is_replaced_and_leaves_nothing_beside_it() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("best");
        write(&target, "old");
        write(&target, "new");
        assert_eq!(fs::read_to_string(CheckpointFolder::find(target.clone()).weights()).unwrap(), "new");

        let failed = publish(&target, |_| Err(StorageError::from(InputError::new("x"))));
        assert!(matches!(failed, Err(StorageError::Input(error)) if error == InputError::new("x")));
        assert_eq!(names_in(home.path()).unwrap(), ["best"]);
    }

    #[test]
    fn the_old_checkpoint_stays_while_its_successor_is_written_and_when_that_fails() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("best");
        write(&target, "old");
        let weights = || fs::read_to_string(CheckpointFolder::find(target.clone()).weights()).unwrap();
        let failed = publish(&target, |folder| {
            fs::write(folder.weights(), "ha").unwrap();
            assert_ne!(folder.path(), target);
            assert_eq!(weights(), "old", "written beside it");
            Err(StorageError::from(InputError::new("x")))
        });
        assert!(failed.is_err());
        assert_eq!((weights().as_str(), names_in(home.path()).unwrap()), ("old", vec!["best".to_string()]));
    }

    #[test]
    fn a_crash_between_the_two_moves_loses_nothing() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("best");
        write(&target, "old");
        step_aside(&target).unwrap();
        for name in [".best.staging", ".step-5.staging"] {
            fs::create_dir(home.path().join(name)).unwrap();
            fs::write(home.path().join(name).join(WEIGHTS), "half").unwrap();
        }
        assert_eq!(fs::read_to_string(CheckpointFolder::find(target.clone()).weights()).unwrap(), "old");
        recover(home.path()).unwrap();
        assert_eq!(names_in(home.path()).unwrap(), ["best"]);
        assert_eq!(fs::read_to_string(target.join(WEIGHTS)).unwrap(), "old");
    }
}
