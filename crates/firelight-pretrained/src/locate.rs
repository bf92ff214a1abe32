//! From what a user calls a model to the run folder that every command reads: a run folder is itself, a folder of Hugging Face is
//! converted once and kept, a name on the hub is looked up among what has been downloaded, or is downloaded.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use firelight_storage::{InputError, ModelFolder, StorageError, TaskError};

use crate::gguf::is_named;
use crate::{HubFolder, PublishedModel};

/// The name of a model on the hub, with the revision that is meant: `gpt2`, `openai-community/gpt2`, `gpt2@main`, `gpt2@607a30d`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubName {
    pub(crate) name: String,
    /// A branch, a tag or a commit.
    pub(crate) revision: String,
}

impl HubName {
    /// Reads a name; none where it could be anything else, such as a path.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (name, revision) = text.split_once('@').unwrap_or((text, "main"));
        let is_revision = revision.split('/').all(is_plain);
        (name.split('/').count() <= 2 && name.split('/').all(is_plain) && is_revision)
            .then(|| Self { name: name.into(), revision: revision.into() })
    }
}

impl fmt::Display for HubName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.revision.as_str() {
            "main" => f.write_str(&self.name),
            revision => write!(f, "{}@{revision}", self.name),
        }
    }
}

/// Letters, digits, dots, dashes and underscores.
fn is_plain(part: &str) -> bool {
    let is_known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    part.chars().all(is_known) && part.starts_with(|c: char| c.is_ascii_alphanumeric()) && !part.contains("..")
}

/// The folder of a model: `model` itself where there is such a path, else the snapshot of that name in the cache of Hugging Face, as
/// `hf download NAME` fills it. What is not there is downloaded, unless the crate is built without its feature `hub` or `HF_HUB_OFFLINE`
/// is set; `tell` hears what takes its time.
///
/// # Errors
/// If there is no such model, or it cannot be downloaded.
pub fn locate(model: impl AsRef<Path>, tell: impl FnMut(&str)) -> Result<PathBuf, InputError> {
    let model = model.as_ref();
    if model.exists() {
        return Ok(model.into());
    }
    if is_named(model) {
        let problem = format!("there is no file `{}`", model.display());
        return Err(InputError::new(problem).advise("give the path of a GGUF file"));
    }
    let problem = format!("there is no folder `{}`", model.display());
    // In a folder that is here a misspelt run is looked for, not a model of somebody called `runs`.
    let is_path = model.parent().is_some_and(|parent| parent.components().next().is_some() && parent.is_dir());
    let name = model.to_str().filter(|_| !is_path).and_then(HubName::parse);
    let Some((name, cache)) = name.zip(hub_cache()) else {
        return Err(InputError::new(problem).advise("give the folder of a model, such as `runs/stories-1`"));
    };
    match snapshot(&cache, &name) {
        Some(snapshot) => Ok(snapshot),
        None => missing(&name, &cache, tell).map_err(|error| InputError::new(format!("{problem}, and {error}"))),
    }
}

#[cfg(feature = "hub")]
fn missing(name: &HubName, cache: &Path, tell: impl FnMut(&str)) -> Result<PathBuf, InputError> {
    match crate::hub::is_offline() {
        true => Err(not_downloaded(name, cache)),
        false => crate::hub::download(name, cache, tell),
    }
}

#[cfg(not(feature = "hub"))]
fn missing(name: &HubName, cache: &Path, _tell: impl FnMut(&str)) -> Result<PathBuf, InputError> {
    Err(not_downloaded(name, cache))
}

fn not_downloaded(name: &HubName, cache: &Path) -> InputError {
    let HubName { name, revision } = name;
    let more = if revision == "main" { String::new() } else { format!(" --revision {revision}") };
    InputError::new(format!("no model of that name in `{}`", cache.display()))
        .advise(format!("download it where there is a network: hf download {name}{more}"))
}

/// The run folder of a model, whatever it is: see [`locate`]. A folder of Hugging Face is imported into `cache` once, and again when one
/// of its files changes; `tell` hears of it before that begins.
///
/// # Errors
/// If there is no such model, or as [`PublishedModel::open`] and [`PublishedModel::import`].
pub fn run_folder(model: impl AsRef<Path>, cache: &Path, tell: impl FnMut(&str)) -> Result<PathBuf, TaskError> {
    folder_in(cache, model.as_ref(), false, tell)
}

/// As [`run_folder`], of a model that is trained, measured or written: what a GGUF file has in blocks becomes floats.
///
/// # Errors
/// As [`run_folder`].
pub fn run_folder_of_floats(
    model: impl AsRef<Path>,
    cache: &Path,
    tell: impl FnMut(&str),
) -> Result<PathBuf, TaskError> {
    folder_in(cache, model.as_ref(), true, tell)
}

fn folder_in(cache: &Path, model: &Path, of_floats: bool, mut tell: impl FnMut(&str)) -> Result<PathBuf, TaskError> {
    let folder = locate(model, &mut tell)?;
    if !HubFolder::is_one(&folder) {
        return Ok(folder);
    }
    let of_floats = of_floats && folder.is_file(); // Other folders have floats alone.
    let run = cache.join(key(&folder)? + if of_floats { "-floats" } else { "" });
    if !run.join("config.json").is_file() {
        tell(&format!("converting `{}` to `{}`", model.display(), run.display()));
        let notes = convert(&folder, &run, of_floats)?;
        notes.iter().for_each(|note| tell(note));
    }
    Ok(run)
}

/// Beside its place and then there in one move, so that no half of a model is ever found. Returns what is worth telling.
fn convert(folder: &Path, run: &Path, of_floats: bool) -> Result<Vec<String>, TaskError> {
    let mut name = run.file_name().map_or_else(OsString::new, OsString::from);
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = run.with_file_name(name);
    let model = PublishedModel::open(folder)?;
    let written = if of_floats { model.import_floats(&temporary) } else { model.import(&temporary) };
    let moved = written.map(drop).and_then(|()| {
        match fs::rename(&temporary, run) {
            // Another process was faster.
            Err(_) if ModelFolder::open(run).is_ok() => Ok(()),
            moved => Ok(moved.map_err(StorageError::io("write", run))?),
        }
    });
    let _ = fs::remove_dir_all(&temporary);
    moved.map(|()| if of_floats { Vec::new() } else { model.import_notes() })
}

/// Rises when a folder is converted into another run folder than before.
const CONVERSION: u32 = 3;

/// The folder's name, and a number that changes when a file does. A GGUF file is all that there is of its model.
fn key(folder: &Path) -> Result<String, StorageError> {
    let whole = folder.canonicalize().map_err(StorageError::io("read", folder))?;
    let mut files: Vec<(OsString, u64, Option<SystemTime>)> = Vec::new();
    if whole.is_file() {
        let found = fs::metadata(&whole).map_err(StorageError::io("read", folder))?;
        files.push((OsString::new(), found.len(), found.modified().ok()));
    } else {
        for entry in fs::read_dir(&whole).map_err(StorageError::io("read", folder))? {
            let entry = entry.map_err(StorageError::io("read", folder))?;
            // Of the file that a link leads to: the snapshots of the hub are links.
            if let Ok(found) = fs::metadata(entry.path()) {
                files.push((entry.file_name(), found.len(), found.modified().ok()));
            }
        }
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    (&whole, files, env!("CARGO_PKG_VERSION"), CONVERSION).hash(&mut hasher);
    let name = whole.file_name().map_or("model".into(), |name| name.to_string_lossy().into_owned());
    Ok(format!("{name}-{:016x}", hasher.finish()))
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

/// The whole snapshot that a revision names, or is.
fn snapshot(cache: &Path, HubName { name, revision }: &HubName) -> Option<PathBuf> {
    let model = cache.join(format!("models--{}", name.replace('/', "--")));
    let commit = fs::read_to_string(model.join("refs").join(revision)).unwrap_or_else(|_| revision.clone());
    let commit = Some(commit.trim()).filter(|commit| commit.chars().all(|c| c.is_ascii_alphanumeric()))?;
    let snapshot = model.join("snapshots").join(commit);
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
        for name in ["gpt2", "openai-community/gpt2", "a/b-c_1.5", "a/b@v1.0", "gpt2@refs/pr/7"] {
            assert_eq!(HubName::parse(name).expect(name).to_string(), name);
        }
        assert_eq!(HubName::parse("gpt2@main").unwrap().to_string(), "gpt2");
        for name in [
            "../gpt2", "a/../b", "/etc", "a/b/c", "", "a//b", "a b", ".hidden", "a/.b", "a..b", "a@", "a@../b", "a@b@c",
        ] {
            assert_eq!(HubName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn a_snapshot_is_the_one_that_the_revision_names() {
        let home = tempfile::tempdir().unwrap();
        let model = home.path().join("models--a--b");
        let write = |name: &str, text: &str| {
            let path = model.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let found = |name: &str| snapshot(home.path(), &HubName::parse(name).unwrap());
        assert_eq!(found("a/b"), None);
        write("refs/main", "0a1b\n");
        assert_eq!(found("a/b"), None, "it was not downloaded whole");
        write("snapshots/0a1b/config.json", "{}");
        let whole = Some(model.join("snapshots/0a1b"));
        assert_eq!((found("a/b"), found("a/b@0a1b"), found("a/b@v1")), (whole.clone(), whole.clone(), None));
        write("refs/v1", "0a1b");
        assert_eq!(found("a/b@v1"), whole);
        write("refs/main", "../../..");
        assert_eq!(found("a/b"), None, "a revision is no path");
    }

    #[test]
    fn a_path_that_is_no_folder_is_told() {
        let error = locate("../no/such", |_| ()).unwrap_err().to_string();
        assert!(error.starts_with("there is no folder `../no/such`"), "{error}");
        assert!(error.contains("give the folder of a model"), "{error}");
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
