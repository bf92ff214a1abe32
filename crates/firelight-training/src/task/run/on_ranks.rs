//! A run on several ranks: the first one prepares it and alone writes, the others read what it has written.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use firelight_storage::{InputError, ModelFolder, StorageError};
use serde::{Deserialize, Serialize};
use toml::Table;

use super::Run;
use crate::ranks::{Ranks, Term, fingerprint, settings};
use crate::task::begin::{Plan, read_text};
use crate::task::{DataModule, RunRequest, Task};
use crate::{Communicator, TrainingError, resume_point};

/// How long a rank waits for the folder as the first one has left it. A file system in a network keeps for up to a minute what it has found
/// in a folder, and what it has not.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long it waits before it looks again.
const PAUSE: Duration = Duration::from_millis(100);

/// What the first rank tells the others of a run that it has prepared.
#[derive(Serialize, Deserialize)]
struct Prepared {
    folder: PathBuf,
    /// The recipe with all overrides, which the folder does not have before the training goes on.
    recipe: String,
    /// The files of the folder.
    contents: String,
}

impl<T: Task> Run<T> {
    /// Prepares the run as one of several ranks, which train it together: each of them calls this with the same request.
    ///
    /// The first rank does what [`prepare`](Self::prepare) does. The others read recipe, data and checkpoints in the run folder, which all of
    /// them must see, and neither lock nor write it. They wait as long as the first one is at work.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare); and if the ranks cannot share the batches of a step, are asked for different runs, do not see the
    /// same folder, or one of them has failed. Nothing is written before all but the last two is checked.
    pub fn prepare_on(request: &RunRequest, communicator: Arc<dyn Communicator>) -> Result<Self, T::Error> {
        let ranks = Ranks::new(communicator);
        if ranks.are_one() {
            return Self::prepare_first(request, &ranks);
        }
        ranks.tell(Self::prepare_together(request, &ranks))
    }

    fn prepare_together(request: &RunRequest, ranks: &Ranks) -> Result<Self, T::Error> {
        ranks.agree(terms(request, ranks))?;
        let (run, contents) =
            if ranks.is_first() { Self::lead(request, ranks)? } else { Self::follow(request, ranks)? };
        // The first rank writes when all have read, for here they meet.
        ranks.agree(vec![("run folder".into(), contents)])?;
        Ok(run)
    }

    fn lead(request: &RunRequest, ranks: &Ranks) -> Result<(Self, String), T::Error> {
        let (prepared, others) = ranks.lead(|| -> Result<_, T::Error> {
            let run = Self::prepare_first(request, ranks)?;
            let contents = contents(&run.folder)?; // reads all of the data, which may take long
            Ok((run, contents))
        });
        let (run, contents) = prepared?;
        others.map_err(TrainingError::from)?;
        let path = run.folder.path();
        let folder = absolute(path).map_err(StorageError::io("find the folder", path))?;
        let prepared = Prepared { folder, recipe: run.recipe.to_toml()?, contents: contents.clone() };
        let prepared = serde_json::to_vec(&prepared).map_err(TrainingError::file("name", path))?;
        ranks.show(prepared).map_err(TrainingError::from)?;
        Ok((run, contents))
    }

    fn follow(request: &RunRequest, ranks: &Ranks) -> Result<(Self, String), T::Error> {
        let prepared = ranks.shown().map_err(TrainingError::from)?;
        let Prepared { folder: path, recipe, contents } = serde_json::from_slice(&prepared)
            .map_err(|error| TrainingError::from(InputError::new(error.to_string())))?;
        let (folder, contents) = seen(&path, &contents, PATIENCE)?;
        let recipe = read_text::<T>((&path.display().to_string(), &recipe), &[], &Table::new())?;
        recipe.training.check_device(&request.device)?;
        let corpus = T::DataModule::open(&recipe, &folder)?;
        let recipe = recipe.clone().over(corpus.batches_per_epoch(&recipe)?);
        let config = folder.read_config(T::NAME)?;
        let start = resume_point(&folder)?.unwrap_or_default();
        let run = Self::assemble(folder, Plan { recipe, corpus, config }, start, &request.device, ranks)?;
        Ok((run, contents))
    }
}

/// What all ranks are asked for; each may have a device of its own.
fn terms(request: &RunRequest, ranks: &Ranks) -> Vec<Term> {
    let RunRequest { recipe, overrides, data, out, existing, device: _, version } = request;
    let mut terms: Vec<Term> = vec![("version".into(), version.clone())];
    terms.extend(settings("number of ranks", &ranks.communicator().world()));
    terms.extend(settings("recipe", recipe));
    terms.extend(each_override(overrides));
    terms.extend(settings("list of data", data));
    terms.extend(settings("run folder", out));
    terms.push(("way with an existing run".into(), format!("{existing:?}")));
    terms
}

/// A term for each key, so that the one that differs is shown; the last value of a key counts, and the values before it are compared, too.
fn each_override(overrides: &[(String, String)]) -> Vec<Term> {
    let mut values = BTreeMap::<&str, Vec<&str>>::new();
    overrides.iter().for_each(|(key, value)| values.entry(key).or_default().push(value));
    values.into_iter().map(|(key, values)| (format!("override of {key}"), values.join(", "))).collect()
}

/// A folder that another machine does not have.
fn unseen(error: &StorageError) -> TrainingError {
    InputError::new(format!("the run folder of rank 0 is not to be seen: {error}"))
        .advise("name one by --out that all machines share")
        .into()
}

/// The folder of the first rank and its files, as soon as they are those that it tells of. When the `patience` is over, what is there then,
/// or why nothing is.
fn seen(path: &Path, expected: &str, patience: Duration) -> Result<(ModelFolder, String), TrainingError> {
    let began = Instant::now();
    loop {
        let is_over = began.elapsed() >= patience;
        let found = look(path, (!is_over).then_some(expected));
        match found {
            Ok(found) if found.1 == expected || is_over => return Ok(found),
            Err(error) if is_over => return Err(unseen(&error)),
            _ => thread::sleep(PAUSE),
        }
    }
}

/// The folder and its contents; none of these where its files have other lengths than those of what is `hoped_for`, which need not be read.
fn look(path: &Path, hoped_for: Option<&str>) -> Result<(ModelFolder, String), StorageError> {
    // Reading the folder above it makes a file system in a network ask again for names that it believes to be missing.
    let _ = path.parent().and_then(|parent| fs::read_dir(parent).ok()).map(Iterator::count);
    let folder = ModelFolder::open(path)?;
    let may_be = hoped_for.is_none_or(|expected| has_lengths(&folder, expected));
    let contents = if may_be { contents(&folder)? } else { String::new() };
    Ok((folder, contents))
}

fn has_lengths(folder: &ModelFolder, expected: &str) -> bool {
    folder.files().into_iter().all(|name| {
        let length = fs::metadata(folder.path().join(name)).map_or(0, |file| file.len());
        let begin = format!("{name}: {length} bytes ");
        expected.lines().any(|line| line.starts_with(&begin))
    })
}

/// The files of a run by name, length and checksum, one a line: what tells this folder from another one of that name on another machine.
/// What else is in the folder may differ, as a log does that grows.
fn contents(folder: &ModelFolder) -> Result<String, StorageError> {
    let line = |name: &str| -> Result<String, StorageError> {
        let path = folder.path().join(name);
        let fingerprint = fingerprint(&path).map_err(StorageError::io("read", &path))?;
        Ok(format!("{name}: {fingerprint}"))
    };
    Ok(folder.files().into_iter().map(line).collect::<Result<Vec<_>, _>>()?.join("\n"))
}

#[cfg(test)]
mod tests;
