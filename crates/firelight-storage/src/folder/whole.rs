//! A run folder that is written whole or not at all.

use std::fs;
use std::path::Path;

use super::existing::check;
use super::layout::{CONFIG, remove_run};
use super::{Existing, ModelFolder};
use crate::StorageError;
use crate::atomic::sync_folder;
use crate::checkpoint_folder::remove;
use crate::listing::names_in;
use crate::lock::LOCK;

/// The folder within, in which a run folder is written. One that is left of a process that was killed counts as nothing.
pub(super) const UNFINISHED: &str = ".firelight-unfinished";

impl ModelFolder {
    /// Makes the folder of a model, which must be new or empty, whole or not at all. `fill` writes the files of a hidden folder within; they
    /// become those of the run folder when all of them are there, `config.json` last. If something fails, nothing of it is left but folders above
    /// it, and if the process is killed, nothing that the next attempt minds.
    ///
    /// # Errors
    /// Returns the error of `fill`, or as [`create`](Self::create) with [`Existing::Refuse`].
    ///
    /// ```
    /// use firelight_storage::{InputError, ModelFolder, StorageError};
    ///
    /// let home = tempfile::tempdir().unwrap();
    /// let path = home.path().join("model");
    /// let fails = |folder: &ModelFolder| {
    ///     std::fs::write(folder.tokenizer(), "{").unwrap();
    ///     Err(StorageError::from(InputError::new("the disk is full")))
    /// };
    /// assert!(ModelFolder::create_whole(&path, fails).is_err() && !path.exists());
    /// let config = std::collections::BTreeMap::from([("d_model", 128)]);
    /// ModelFolder::create_whole(&path, |folder| folder.write_config("language", &config)).unwrap();
    /// assert!(path.join("config.json").is_file());
    /// ```
    pub fn create_whole<E: From<StorageError>>(
        path: impl AsRef<Path>,
        fill: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<Self, E> {
        let path = path.as_ref();
        let was_there = path.exists();
        let folder = Self::create(path, Existing::Refuse)?;
        match folder.write_within(fill) {
            Ok(()) => Ok(folder),
            Err(error) => {
                folder.clear(was_there);
                Err(error)
            }
        }
    }

    /// Makes sure that a run may begin, or go on, in the folder at `path`; nothing is written. [`create`](Self::create) looks for itself: this is
    /// for a command that has long to do before.
    ///
    /// # Errors
    /// As [`create`](Self::create), as far as what lies there goes.
    pub fn check(path: impl AsRef<Path>, existing: Existing) -> Result<(), StorageError> {
        check(path.as_ref(), existing)
    }

    fn write_within<E: From<StorageError>>(&self, fill: impl FnOnce(&Self) -> Result<(), E>) -> Result<(), E> {
        let within = self.path.join(UNFINISHED);
        fs::create_dir(&within).map_err(StorageError::io("create the folder", &within))?;
        fill(&Self { path: within.clone(), _lock: self._lock.clone() })?;
        Ok(self.take_out(&within)?)
    }

    /// Moves everything out of the folder within, what makes it a model last.
    fn take_out(&self, within: &Path) -> Result<(), StorageError> {
        let mut names = names_in(within)?;
        names.sort_by_key(|name| name == CONFIG);
        for name in names {
            let target = self.path.join(&name);
            fs::rename(within.join(&name), &target).map_err(StorageError::io("write", &target))?;
        }
        remove(within)?;
        sync_folder(&self.config()).map_err(StorageError::io("write", &self.path))
    }

    /// Removes what this call wrote into a folder that was empty, and the folder, too, where this call made it. The error before is the one
    /// worth telling, so none is told here.
    fn clear(self, was_there: bool) {
        let path = self.path.clone();
        let _ = remove(&path.join(UNFINISHED)).and_then(|()| remove_run(&path));
        if was_there {
            return;
        }
        // While it is held, so that nobody takes it in between; afterwards where an open file cannot be removed.
        let removed = fs::remove_file(path.join(LOCK)).is_ok();
        drop(self);
        if removed || fs::remove_file(path.join(LOCK)).is_ok() {
            let _ = fs::remove_dir(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InputError;
    use std::collections::BTreeMap;

    fn write(folder: &ModelFolder) -> Result<(), StorageError> {
        crate::write_atomic(folder.tokenizer(), "{}")?;
        folder.write_quantization(&BTreeMap::from([("head.weight".into(), "q8_0".into())]))?;
        folder.write_config("language", &BTreeMap::from([("d_model", 8)]))
    }

    fn fail(folder: &ModelFolder) -> Result<(), StorageError> {
        write(folder)?;
        Err(InputError::new("the third tensor is not finite").into())
    }

    #[test]
    fn what_is_written_is_an_ordinary_folder_that_belongs_to_the_process() {
        let [first, second] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for path in [first.path().join("a/new"), second.path().to_path_buf()] {
            let folder = ModelFolder::create_whole(&path, write).unwrap();
            assert_eq!((folder.path(), folder._lock.is_some()), (path.as_path(), true));
            assert_eq!(names_in(&path).unwrap(), [LOCK, "config.json", "quantization.json", "tokenizer.json"]);
            ModelFolder::open(&path).unwrap();
        }
    }

    #[test]
    fn nothing_is_left_of_what_failed_and_the_next_attempt_succeeds() {
        let home = tempfile::tempdir().unwrap();
        let (new, empty) = (home.path().join("new"), home.path().join("empty"));
        fs::create_dir(&empty).unwrap();
        for path in [&new, &empty] {
            let error = ModelFolder::create_whole(path, fail).unwrap_err();
            assert_eq!(error.to_string(), "the third tensor is not finite");
        }
        assert_eq!((new.exists(), names_in(&empty).unwrap()), (false, vec![LOCK.to_string()]));
        for path in [&new, &empty] {
            ModelFolder::create_whole(path, write).unwrap();
        }
    }

    #[test]
    fn what_a_killed_process_left_is_nothing() {
        let home = tempfile::tempdir().unwrap();
        let within = home.path().join(UNFINISHED);
        fs::create_dir(&within).unwrap();
        fs::write(within.join("model.safetensors"), "half of i").unwrap();
        ModelFolder::check(home.path(), Existing::Refuse).unwrap();
        ModelFolder::create_whole(home.path(), write).unwrap();
        assert!(!within.exists() && !home.path().join("model.safetensors").exists());
    }

    #[test]
    fn a_folder_that_was_half_moved_out_is_made_again() {
        let home = tempfile::tempdir().unwrap();
        let within = home.path().join(UNFINISHED);
        fs::create_dir(&within).unwrap();
        for file in [home.path().join("model.safetensors"), home.path().join("tokenizer.json"), within.join(CONFIG)] {
            fs::write(file, "{}").unwrap();
        }
        ModelFolder::check(home.path(), Existing::Refuse).unwrap();
        ModelFolder::create_whole(home.path(), write).unwrap();
        assert_eq!(names_in(home.path()).unwrap(), [LOCK, "config.json", "quantization.json", "tokenizer.json"]);
    }

    #[test]
    fn what_somebody_else_wrote_stays() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("notes.txt"), "x").unwrap();
        let error = ModelFolder::create_whole(home.path(), write).unwrap_err();
        assert!(matches!(error, StorageError::FolderExists { .. }), "{error}");
        assert!(matches!(ModelFolder::check(home.path(), Existing::Refuse), Err(StorageError::FolderExists { .. })));
        assert_eq!(names_in(home.path()).unwrap(), ["notes.txt"]);
    }
}
