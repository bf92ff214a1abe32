//! Where a training begins that does not begin anew: the weights of another run, of one of its checkpoints, or of a file.

use std::path::{Path, PathBuf};

use crate::checkpoint_folder::{WEIGHTS, checkpoint_of};
use crate::{Checkpoint, FoundWeights, ModelFolder, StorageError};

/// Weights that were learnt before, and the run that they are of.
#[derive(Clone, Debug)]
pub struct LearntWeights {
    /// The weights file.
    pub path: PathBuf,
    /// The step after which they were written, where it is noted.
    pub step: Option<usize>,
    /// The folder of their run; none of a file that lies in no run.
    pub run: Option<ModelFolder>,
}

impl LearntWeights {
    /// Finds the newest weights of a run folder, or those of the folder of a checkpoint, of any other folder that has a
    /// `model.safetensors`, or of a file.
    ///
    /// # Errors
    /// If there are none.
    pub fn find(path: impl AsRef<Path>) -> Result<Self, StorageError> {
        let path = path.as_ref();
        let weights = path.join(WEIGHTS);
        match checkpoint_in(path) {
            Some((run, checkpoint)) => Self::of(ModelFolder::open(run)?, &checkpoint),
            None if path.is_file() => Self::of_file(path),
            None if weights.is_file() && !ModelFolder::is_run(path) => Self::of_file(&weights),
            None => Self::of(ModelFolder::open(path)?, &Checkpoint::Last),
        }
    }

    fn of(run: ModelFolder, checkpoint: &Checkpoint) -> Result<Self, StorageError> {
        let FoundWeights { path, step } = run.find(checkpoint)?;
        Ok(Self { path, step, run: Some(run) })
    }

    /// A file, in the folder of a run or of a checkpoint, or in neither.
    fn of_file(path: &Path) -> Result<Self, StorageError> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let run = match checkpoint_in(folder) {
            Some((run, _)) => Some(run),
            None => Some(folder).filter(|folder| ModelFolder::is_run(folder)),
        };
        Ok(Self { path: path.into(), step: None, run: run.map(ModelFolder::open).transpose()? })
    }
}

/// The run folder and the checkpoint of it that lies in `folder`.
fn checkpoint_in(folder: &Path) -> Option<(&Path, Checkpoint)> {
    let checkpoint = checkpoint_of(folder.file_name()?.to_str()?)?;
    let run = folder.parent()?.parent()?;
    (folder.is_dir() && ModelFolder::is_run(run)).then_some((run, checkpoint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Existing;
    use std::collections::BTreeMap;
    use std::fs;

    #[test]
    fn weights_are_found_in_runs_checkpoints_folders_and_files() {
        let home = tempfile::tempdir().unwrap();
        let [run, alone] = ["run", "alone"].map(|name| home.path().join(name));
        let folder = ModelFolder::create(&run, Existing::Refuse).unwrap();
        folder.write_config("toy", &BTreeMap::from([("d_model", 8)])).unwrap();
        let step = run.join("checkpoints/step-4");
        for place in [&run, &alone, &step] {
            fs::create_dir_all(place).unwrap();
            fs::write(place.join(WEIGHTS), "weights").unwrap();
        }
        let found = |path: &Path| LearntWeights::find(path).unwrap();
        for (path, noted) in [(&step, Some(4)), (&step.join(WEIGHTS), None)] {
            let found = found(path);
            assert_eq!((found.path, found.step), (step.join(WEIGHTS), noted));
            assert_eq!(found.run.unwrap().path(), run);
        }
        for path in [&run, &run.join(WEIGHTS)] {
            assert_eq!(found(path).run.unwrap().task().as_deref(), Some("toy"));
        }
        for path in [&alone, &alone.join(WEIGHTS)] {
            let found = found(path);
            assert!(found.path == alone.join(WEIGHTS) && found.run.is_none());
        }
        fs::remove_file(alone.join(WEIGHTS)).unwrap();
        for wrong in [&alone, &home.path().join("none")] {
            let error = LearntWeights::find(wrong).unwrap_err();
            assert!(error.is_user_error() && error.to_string().contains(&wrong.display().to_string()), "{error}");
        }
    }
}
