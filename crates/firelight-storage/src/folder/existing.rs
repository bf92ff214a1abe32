//! What becomes of the files that a new run finds in its folder.

use std::fs;
use std::path::Path;

use super::layout::{CHECKPOINTS, CONFIG, INIT, METRICS, QUANTIZATION, RECIPE, SESSIONS, is_file_of_run, remove_run};
use super::whole::UNFINISHED;
use crate::atomic::is_temporary;
use crate::checkpoint_folder::{WEIGHTS, checkpoint_of, remove};
use crate::error::list;
use crate::listing::names_in;
use crate::lock::LOCK;
use crate::{CheckpointFolder, InputError, StorageError, config};

/// What to do when the folder of a new run already holds something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// Refuse, so that no run is lost by accident.
    #[default]
    Refuse,
    /// Remove the old run first. Files that no run writes stay, and a folder is refused that holds neither `recipe.toml`, nor a
    /// `config.json` of Firelight, nor one of its checkpoints: models of other programs use the same names.
    Force,
    /// Keep what is there and continue it.
    Resume,
    /// The same, or begin where there is no more than a training leaves that was killed before its first checkpoint.
    Continue,
}

/// Whether a run may begin or go on in the folder at `path`, as far as what lies in it goes.
pub(super) fn check(path: &Path, existing: Existing) -> Result<(), StorageError> {
    let mut names = names_in(path)?;
    names.retain(|name| name != LOCK && name != UNFINISHED && !is_temporary(name));
    if is_half_moved(path) {
        names.retain(|name| !is_file_of_run(name));
    }
    let is_run = names.iter().any(|name| name == RECIPE) || config::is_ours(&path.join(CONFIG)) || has_checkpoint(path);
    let found =
        || if names.is_empty() { "it is missing or empty".into() } else { format!("it holds {}", list(&names)) };
    match existing {
        Existing::Resume | Existing::Continue if is_quantised(&names) => {
            Err(super::quantization::not_trained(path).into())
        }
        Existing::Continue if is_begun(path, &names) => Ok(()),
        Existing::Resume | Existing::Continue if !is_run => {
            Err(StorageError::NothingToResume { path: path.into(), found: found() })
        }
        Existing::Refuse if !names.is_empty() => Err(StorageError::FolderExists { path: path.into() }),
        Existing::Force if !names.is_empty() && !is_run => {
            Err(InputError::new(format!(
                "refusing to replace `{}`: it holds {} but neither recipe.toml nor a config.json of Firelight, so it is no run; \
                 choose another folder, or empty it yourself",
                path.display(),
                list(&names)
            ))
            .into())
        }
        _ => Ok(()),
    }
}

/// Whether a model lies there that was put into blocks of few bits as a whole. A training of adapters beside blocks first notes what it
/// took over.
fn is_quantised(names: &[String]) -> bool {
    let has = |file: &str| names.iter().any(|name| name == file);
    has(QUANTIZATION) && has(WEIGHTS) && !has(INIT)
}

/// Whether a process was killed while it moved a whole folder out of the one within, `config.json` last.
fn is_half_moved(path: &Path) -> bool {
    path.join(UNFINISHED).join(CONFIG).is_file() && !path.join(CONFIG).exists()
}

/// Whether a training has left a checkpoint from which it can go on. One without a recipe leaves nothing else.
pub(super) fn has_checkpoint(path: &Path) -> bool {
    let checkpoints = path.join(CHECKPOINTS);
    let is_whole =
        |name: &String| checkpoint_of(name).is_some() && CheckpointFolder::at(checkpoints.join(name)).state().is_file();
    names_in(&checkpoints).unwrap_or_default().iter().any(is_whole)
}

/// Whether nothing lies there but what a training writes before its first checkpoint is whole.
fn is_begun(path: &Path, names: &[String]) -> bool {
    let unfinished = |name: &String| name.starts_with('.');
    names.iter().all(|name| [CHECKPOINTS, METRICS, SESSIONS].contains(&name.as_str()))
        && names_in(&path.join(CHECKPOINTS)).unwrap_or_default().iter().all(unfinished)
}

/// Removes what writers left behind that were killed; whoever holds the lock knows that none is at work.
pub(super) fn remove_temporaries(path: &Path) -> Result<(), StorageError> {
    if is_half_moved(path) {
        remove_run(path)?; // First, for the folder within tells that they are nothing.
    }
    remove(&path.join(UNFINISHED))?;
    names_in(path)?.iter().filter(|name| is_temporary(name)).try_for_each(|name| {
        let file = path.join(name);
        fs::remove_file(&file).map_err(StorageError::io("remove", &file))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{RUN, folder_with};
    use super::*;
    use crate::{Checkpoint, ModelFolder};

    #[test]
    fn a_new_folder_is_made_with_those_above_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a/b");
        assert_eq!(ModelFolder::create(&path, Existing::Refuse).unwrap().path(), path);
        assert!(path.is_dir());
        ModelFolder::create(&path, Existing::Force).unwrap();
    }

    /// A process can be killed while it writes the very first file.
    #[test]
    fn a_run_killed_in_its_first_write_begins_again() {
        let home = folder_with(&[LOCK, ".recipe.toml.4711-0.tmp"]);
        let error = ModelFolder::create(home.path(), Existing::Resume).unwrap_err();
        assert!(matches!(error, StorageError::NothingToResume { .. }), "{error}");
        ModelFolder::create(home.path(), Existing::Refuse).unwrap();
        assert_eq!(names_in(home.path()).unwrap(), [LOCK]);
    }

    #[test]
    fn a_write_that_was_cut_short_leaves_nothing_in_a_resumed_run() {
        let home = folder_with(&[&RUN[..], &[".model.safetensors.4711-3.tmp"]].concat());
        ModelFolder::create(home.path(), Existing::Resume).unwrap();
        assert!(!names_in(home.path()).unwrap().iter().any(|name| is_temporary(name)));
    }

    #[test]
    fn an_existing_run_is_refused_kept_or_replaced_as_asked() {
        let crashed = ["notes.txt", "checkpoints/.best.replaced/state.json", "checkpoints/.step-20.staging/state.json"];
        let home = folder_with(&[&RUN[..], &crashed].concat());
        let error = ModelFolder::create(home.path(), Existing::Refuse).unwrap_err();
        assert!(error.is_user_error());
        assert!(error.to_string().contains("--resume") && error.to_string().contains("--force"), "{error}");

        let folder = ModelFolder::create(home.path(), Existing::Resume).unwrap();
        assert!(folder.weights(&Checkpoint::Step(10)).is_ok());
        assert_eq!(names_in(&home.path().join(CHECKPOINTS)).unwrap(), ["best", "step-10"]);

        let error = ModelFolder::create(home.path(), Existing::Force).unwrap_err();
        assert!(matches!(error, StorageError::FolderInUse { .. }), "{error}");
        drop(folder);
        ModelFolder::create(home.path(), Existing::Force).unwrap();
        assert_eq!(names_in(home.path()).unwrap(), [LOCK, "notes.txt"]);
    }

    #[test]
    fn force_removes_every_file_that_a_run_can_have() {
        let home = folder_with(&RUN);
        let folder = ModelFolder::create(home.path(), Existing::Resume).unwrap();
        let state = folder.checkpoint_folder(&Checkpoint::Last).state();
        let learnt = [folder.adapters(), folder.metrics(), folder.sessions(), folder.report(), state];
        let pairs = [folder.source_tokenizer(), folder.training_pairs(), folder.validation_pairs()];
        let data = [folder.tokenizer(), folder.tokens(), folder.documents(), folder.images(), folder.image_index()];
        let data = data.into_iter().chain([folder.sources(), folder.datasets()]).collect::<Vec<_>>();
        learnt.iter().chain(&pairs).chain(&data).for_each(|path| fs::write(path, "x").unwrap());
        fs::create_dir(folder.tensorboard()).unwrap();
        drop(folder);
        ModelFolder::create(home.path(), Existing::Force).unwrap();
        assert_eq!(names_in(home.path()).unwrap(), [LOCK]);
    }

    /// As `fit` leaves it where nobody wrote a recipe.
    #[test]
    fn checkpoints_alone_are_a_run() {
        let home = folder_with(&["checkpoints/step-5/state.json", "checkpoints/step-5/model.safetensors"]);
        assert!(ModelFolder::open(home.path()).unwrap().weights(&Checkpoint::Step(5)).is_ok());
        drop(ModelFolder::create(home.path(), Existing::Resume).unwrap());
        ModelFolder::create(home.path(), Existing::Force).unwrap();
        assert_eq!(names_in(home.path()).unwrap(), [LOCK]);
        let home = folder_with(&["checkpoints/step-5/model.safetensors"]);
        assert!(ModelFolder::open(home.path()).is_err() && ModelFolder::create(home.path(), Existing::Resume).is_err());
    }

    #[test]
    fn a_model_in_blocks_is_not_trained_further() {
        let quantised = ["recipe.toml", "config.json", "model.safetensors", "quantization.json"];
        let home = folder_with(&quantised);
        for existing in [Existing::Resume, Existing::Continue] {
            let error = ModelFolder::create(home.path(), existing).unwrap_err();
            assert!(error.is_user_error() && error.to_string().contains("in blocks of few bits"), "{error}");
        }
        ModelFolder::create(home.path(), Existing::Force).unwrap();
        assert_eq!(names_in(home.path()).unwrap(), [LOCK]);
    }

    /// Its weights beside the adapters are in blocks. A process may be killed between its last weights and its first checkpoint.
    #[test]
    fn a_training_of_adapters_beside_blocks_goes_on() {
        let begun = ["recipe.toml", "config.json", "quantization.json"];
        let on = [&begun[..], &["init.json", "model.safetensors"]].concat();
        for files in [&begun[..], &on[..]] {
            for existing in [Existing::Resume, Existing::Continue] {
                drop(ModelFolder::create(folder_with(files).path(), existing).unwrap());
            }
        }
    }

    #[test]
    fn a_training_is_continued_or_begun() {
        let go_on = |files: &[&str]| ModelFolder::create(folder_with(files).path(), Existing::Continue).is_ok();
        assert!(go_on(&[]) && go_on(&RUN) && go_on(&["metrics.jsonl"]));
        assert!(go_on(&["metrics.jsonl", "sessions.json", "checkpoints/.step-20.staging/state.json"]));
        assert!(
            !go_on(&["metrics.jsonl", "notes.txt"]) && !go_on(&["model.safetensors"]) && !go_on(&["checkpoints/mine"])
        );
        let home = folder_with(&[]);
        assert!(ModelFolder::create(home.path().join("new"), Existing::Continue).is_ok());
    }

    #[test]
    fn force_never_touches_a_folder_without_a_run() {
        let home = folder_with(&["thesis.tex", "checkpoints/mine"]);
        let error = ModelFolder::create(home.path(), Existing::Force).unwrap_err();
        assert!(error.to_string().starts_with("refusing to replace `"), "{error}");
        assert!(error.to_string().contains("it holds checkpoints, thesis.tex but neither"), "{error}");
        assert!(home.path().join("checkpoints/mine").exists());
    }

    #[test]
    fn force_never_touches_the_model_of_another_program() {
        let files = ["config.json", "model.safetensors", "tokenizer.json"];
        let home = folder_with(&files);
        let config = home.path().join("config.json");
        for foreign in [r#"{"model_type": "gpt2", "n_layer": 12}"#, "not JSON"] {
            fs::write(&config, foreign).unwrap();
            let error = ModelFolder::create(home.path(), Existing::Force).unwrap_err();
            assert!(error.to_string().starts_with("refusing to replace `") && error.is_user_error(), "{error}");
            assert!(matches!(
                ModelFolder::create(home.path(), Existing::Resume),
                Err(StorageError::NothingToResume { .. })
            ));
            assert_eq!(names_in(home.path()).unwrap(), files);
        }
        fs::write(&config, r#"{"format": "firelight"}"#).unwrap();
        ModelFolder::create(home.path(), Existing::Force).unwrap();
        assert_eq!(names_in(home.path()).unwrap(), [LOCK]);
    }

    #[test]
    fn there_must_be_a_run_to_resume() {
        let home = tempfile::tempdir().unwrap();
        let error = ModelFolder::create(home.path().join("none"), Existing::Resume).unwrap_err();
        assert!(
            error.to_string().ends_with("it is missing or empty; leave out --resume to begin a new run"),
            "{error}"
        );
    }
}
