//! From what a user calls a model to the run folder that every command reads: a run folder is itself, a folder of Hugging Face is
//! converted once and kept, a name on the hub is looked up among what has been downloaded.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use firelight_storage::{InputError, ModelFolder, StorageError, TaskError};

use crate::{HubFolder, PublishedModel};

/// The folder of a model: `model` itself where there is such a path, else the newest snapshot of that name in the cache of Hugging
/// Face, as `hf download NAME` fills it. Nothing is downloaded.
///
/// # Errors
/// If there is neither.
pub fn locate(model: impl AsRef<Path>) -> Result<PathBuf, InputError> {
    let model = model.as_ref();
    if model.exists() {
        return Ok(model.into());
    }
    let name = model.to_str().filter(|name| is_hub_name(name));
    let cache = name.and_then(|name| Some((name, hub_cache()?)));
    if let Some(snapshot) = cache.as_ref().and_then(|(name, cache)| snapshot(cache, name)) {
        return Ok(snapshot);
    }
    let problem = format!("there is no folder `{}`", model.display());
    Err(match cache {
        Some((name, cache)) => {
            InputError::new(format!("{problem}, and no model of that name in `{}`", cache.display()))
                .advise(format!("download it first: hf download {name}"))
        }
        None => InputError::new(problem).advise("give the folder of a model, such as `runs/stories-1`"),
    })
}

/// The run folder of a model, whatever it is: see [`locate`]. A folder of Hugging Face is imported into `cache` once, and again when one
/// of its files changes; `converted` is told of it before that begins.
///
/// # Errors
/// If there is no such model, or as [`PublishedModel::open`] and [`PublishedModel::import`].
pub fn run_folder(model: impl AsRef<Path>, cache: &Path, converted: impl FnOnce(&Path)) -> Result<PathBuf, TaskError> {
    let folder = locate(model)?;
    if !HubFolder::is_one(&folder) {
        return Ok(folder);
    }
    let run = cache.join(key(&folder)?);
    if !run.join("config.json").is_file() {
        converted(&run);
        convert(&folder, &run)?;
    }
    Ok(run)
}

/// Beside its place and then there in one move, so that no half of a model is ever found.
fn convert(folder: &Path, run: &Path) -> Result<(), TaskError> {
    let mut name = run.file_name().map_or_else(OsString::new, OsString::from);
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = run.with_file_name(name);
    let moved = PublishedModel::open(folder)?.import(&temporary).map(drop).and_then(|()| {
        match fs::rename(&temporary, run) {
            // Another process was faster.
            Err(_) if ModelFolder::open(run).is_ok() => Ok(()),
            moved => Ok(moved.map_err(StorageError::io("write", run))?),
        }
    });
    let _ = fs::remove_dir_all(&temporary);
    moved
}

/// The folder's name, and a number that changes when a file does.
fn key(folder: &Path) -> Result<String, StorageError> {
    let whole = folder.canonicalize().map_err(StorageError::io("read", folder))?;
    let mut files: Vec<(OsString, u64, Option<SystemTime>)> = Vec::new();
    for entry in fs::read_dir(&whole).map_err(StorageError::io("read", folder))? {
        let entry = entry.map_err(StorageError::io("read", folder))?;
        // Of the file that a link leads to: the snapshots of the hub are links.
        if let Ok(found) = fs::metadata(entry.path()) {
            files.push((entry.file_name(), found.len(), found.modified().ok()));
        }
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    (&whole, files, env!("CARGO_PKG_VERSION")).hash(&mut hasher);
    let name = whole.file_name().map_or("model".into(), |name| name.to_string_lossy().into_owned());
    Ok(format!("{name}-{:016x}", hasher.finish()))
}

/// A name, or the name of a user or a company and another: letters, digits, dots, dashes and underscores.
fn is_hub_name(name: &str) -> bool {
    let is_plain = |part: &str| {
        let is_known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        part.chars().all(is_known) && part.starts_with(|c: char| c.is_ascii_alphanumeric()) && !part.contains("..")
    };
    name.split('/').count() <= 2 && name.split('/').all(is_plain)
}

/// Where the programs of Hugging Face keep what they download.
fn hub_cache() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("HF_HUB_CACHE")
        .or_else(|| Some(set("HF_HOME")?.join("hub")))
        .or_else(|| Some(set("XDG_CACHE_HOME").or_else(home_cache)?.join("huggingface/hub")))
}

fn home_cache() -> Option<PathBuf> {
    Some(env::home_dir()?.join(".cache"))
}

/// The snapshot that `main` names.
fn snapshot(cache: &Path, name: &str) -> Option<PathBuf> {
    let model = cache.join(format!("models--{}", name.replace('/', "--")));
    let revision = fs::read_to_string(model.join("refs/main")).ok()?;
    let is_plain = |revision: &str| revision.chars().all(|c| c.is_ascii_alphanumeric());
    let snapshot =
        Some(revision.trim()).filter(|revision| is_plain(revision)).map(|it| model.join("snapshots").join(it))?;
    snapshot.join("config.json").is_file().then_some(snapshot)
}

/// Where folders that are not runs are converted to: `firelight/imported` among the caches of this user, or what the environment variable
/// `FIRELIGHT_CACHE` names.
pub fn import_cache() -> PathBuf {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let usual = || Some(set("XDG_CACHE_HOME").or_else(home_cache)?.join("firelight"));
    set("FIRELIGHT_CACHE").or_else(usual).unwrap_or_else(|| env::temp_dir().join("firelight")).join("imported")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_hub_are_no_paths() {
        for name in ["gpt2", "openai-community/gpt2", "a/b-c_1.5"] {
            assert!(is_hub_name(name), "{name}");
        }
        for name in ["../gpt2", "a/../b", "/etc", "a/b/c", "", "a//b", "a b", ".hidden", "a/.b", "a..b"] {
            assert!(!is_hub_name(name), "{name}");
        }
    }

    #[test]
    fn a_snapshot_is_the_one_that_main_names() {
        let home = tempfile::tempdir().unwrap();
        let model = home.path().join("models--a--b");
        let write = |name: &str, text: &str| {
            let path = model.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(snapshot(home.path(), "a/b"), None);
        write("refs/main", "0a1b\n");
        assert_eq!(snapshot(home.path(), "a/b"), None, "it was not downloaded whole");
        write("snapshots/0a1b/config.json", "{}");
        assert_eq!(snapshot(home.path(), "a/b"), Some(model.join("snapshots/0a1b")));
        write("refs/main", "../../..");
        assert_eq!(snapshot(home.path(), "a/b"), None, "a revision is no path");
    }

    #[test]
    fn what_is_neither_a_folder_nor_downloaded_is_told() {
        let error = locate("no/such").unwrap_err().to_string();
        assert!(error.starts_with("there is no folder `no/such`"), "{error}");
        assert!(locate("../no/such").unwrap_err().to_string().contains("give the folder of a model"));
    }

    #[test]
    fn another_file_is_another_key() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("config.json"), "{}").unwrap();
        let first = key(home.path()).unwrap();
        assert_eq!(key(home.path()).unwrap(), first);
        fs::write(home.path().join("config.json"), "{ }").unwrap();
        assert_ne!(key(home.path()).unwrap(), first);
    }
}
