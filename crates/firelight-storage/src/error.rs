//! Everything that can go wrong between Firelight and the disk, in words that name the file and the way out. Every
//! function of this crate returns it; the command line turns it into one line and an exit code.

use std::io;
use std::path::{Path, PathBuf};

use crate::{InputError, shortened};

/// How many keys or file names an error message spells out before it says how many more there are.
const LISTED: usize = 4;

/// An error of reading or writing Firelight's files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The operating system refused to read or write.
    #[error("cannot {action} `{}`: {cause}", path.display())]
    Io {
        /// What was tried, as a verb: `read`, `write`, `create folder`.
        action: &'static str,
        /// The file or folder it was tried on.
        path: PathBuf,
        /// The operating system's reason.
        cause: io::Error,
    },
    /// Something that was given does not fit, and there is nothing to do but to tell it.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The run folder already holds something.
    #[error(
        "the folder `{}` is not empty: continue its run with --resume, replace it with --force, \
         or choose another folder",
        path.display()
    )]
    FolderExists {
        /// The folder that was to be created.
        path: PathBuf,
    },
    /// Another process trains in the run folder.
    #[error(
        "the run folder `{}` is in use by another process: wait until that training ends, or choose another folder",
        path.display()
    )]
    FolderInUse {
        /// The folder that is locked.
        path: PathBuf,
    },
    /// There is no run to continue.
    #[error("there is no run to resume in `{}`: {found}; leave out --resume to begin a new run", path.display())]
    NothingToResume {
        /// The folder that was to be continued.
        path: PathBuf,
        /// What is there instead.
        found: String,
    },
    /// A model of another task.
    #[error(
        "`{}` describes a model for the task {found}, but a model for the task \"{expected}\" is expected{}",
        path.display(),
        command_for(found)
    )]
    ConfigTask {
        /// The configuration file.
        path: PathBuf,
        /// The task the caller works on.
        expected: String,
        /// The task of the file, in quotes if it is a string.
        found: String,
    },
    /// Weights that do not fit the model they were loaded into.
    #[error("`{}` does not fit the model: {}; was it written with another config.json?", path.display(), mismatch(missing, unused, wrong))]
    WeightsMismatch {
        /// The weights file.
        path: PathBuf,
        /// Keys of the model that the file lacks.
        missing: Vec<String>,
        /// Keys of the file that the model lacks.
        unused: Vec<String>,
        /// Keys of both that differ in shape or kind, each with what was expected and found.
        wrong: Vec<String>,
    },
}

impl StorageError {
    /// Whether the user can mend this by asking for something else (exit code 2), rather than the machine being at fault,
    /// such as a full disk or a missing permission (exit code 1).
    pub fn is_user_error(&self) -> bool {
        match self {
            Self::Io { cause, .. } => is_user_error_kind(cause.kind()),
            _ => true,
        }
    }

    /// Whether a file or folder is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
    }

    /// Returns a converter of the operating system's errors, for `map_err`: what was tried, as a verb, and on which file.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Io { action, path: path.to_path_buf(), cause }
    }
}

/// Whether the operating system's error is the user's to mend: a path that leads nowhere, or to something of another kind
/// or content than was meant. Anything else is the machine's, such as a full disk or a missing permission.
fn is_user_error_kind(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{
        AlreadyExists, InvalidData, InvalidFilename, InvalidInput, IsADirectory, NotADirectory, NotFound,
    };
    matches!(
        kind,
        NotFound | AlreadyExists | NotADirectory | IsADirectory | InvalidInput | InvalidFilename | InvalidData
    )
}

/// Spells the first names out and counts the rest: `a, b, c, d and 3 more`.
pub(crate) fn list(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(LISTED).map(|name| shortened(name)).collect();
    let shown = shown.join(", ");
    match names.len().saturating_sub(LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// What to ask a model of another task with, by its task as it stands in `config.json`.
fn command_for(found: &str) -> &'static str {
    match found.trim_matches('"') {
        "language" => "; to continue a prompt with this one: firelight generate",
        "seq2seq" => "; to translate with this one: firelight translate",
        "classification" | "token_classification" | "question_answering" | "vision" => {
            "; to ask this one: firelight classify"
        }
        "masked_language" => {
            "; for vectors of texts from this one: firelight embed, to train a classifier from it: firelight train --from"
        }
        _ => "",
    }
}

/// Describes in one clause in which keys the file and the model differ.
fn mismatch(missing: &[String], unused: &[String], wrong: &[String]) -> String {
    [("missing in the file", missing), ("unknown to the model", unused), ("of another shape or type", wrong)]
        .iter()
        .filter(|(_, keys)| !keys.is_empty())
        .map(|(what, keys)| format!("{} {what} ({})", keys.len(), list(keys)))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|i| format!("k{i}")).collect()
    }

    #[test]
    fn lists_are_short() {
        assert_eq!(list(&names(2)), "k0, k1");
        assert_eq!(list(&names(4)), "k0, k1, k2, k3");
        assert_eq!(list(&names(9)), "k0, k1, k2, k3 and 5 more");
        assert_eq!(list(&["x".repeat(1_000)]), format!("{}...", "x".repeat(80)));
    }

    #[test]
    fn a_mismatch_says_all_three_kinds_in_one_line() {
        let error = StorageError::WeightsMismatch {
            path: "m.safetensors".into(),
            missing: names(5),
            unused: vec!["head.bias".into()],
            wrong: vec!["norm.gamma (expected [8], found [4])".into()],
        };
        assert_eq!(
            error.to_string(),
            "`m.safetensors` does not fit the model: 5 missing in the file (k0, k1, k2, k3 and 1 more), \
             1 unknown to the model (head.bias), 1 of another shape or type (norm.gamma (expected [8], found [4])); \
             was it written with another config.json?"
        );
    }

    #[test]
    fn a_wrong_path_is_the_users_and_a_full_disk_the_machines() {
        let io = |kind: io::ErrorKind| StorageError::io("write", Path::new("x"))(kind.into());
        assert!(io(io::ErrorKind::NotFound).is_user_error());
        assert!(io(io::ErrorKind::AlreadyExists).is_user_error());
        assert!(!io(io::ErrorKind::StorageFull).is_user_error());
        assert!(!io(io::ErrorKind::PermissionDenied).is_user_error());
        assert!(StorageError::FolderExists { path: "x".into() }.is_user_error());
    }
}
