//! What can be wrong with a recipe, each in one line that says where and what to write instead.

use std::path::PathBuf;

use firelight_storage::{is_user_error_kind, shortened, shortened_reason};

/// An error of reading a recipe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// The file could not be read.
    #[error("cannot read the recipe `{}`: {reason}", path.display())]
    File {
        /// The recipe.
        path: PathBuf,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// A recipe for another task.
    #[error("the recipe `{}` is for the task `{}`: expected {expected}", path.display(), shortened(found))]
    Task {
        /// The recipe.
        path: PathBuf,
        /// Its task.
        found: String,
        /// The tasks that were expected.
        expected: String,
    },
    /// The text is no TOML.
    #[error("`{origin}`, line {line}, column {column}: not valid TOML: {cause}")]
    Syntax {
        /// The name of the recipe.
        origin: String,
        /// The line, counted from 1.
        line: usize,
        /// The character in the line, counted from 1.
        column: usize,
        /// What the parser stumbled over.
        cause: String,
    },
    /// A key that nothing reads.
    #[error("{place}: unknown key `{}`; {hint}", shortened(key))]
    UnknownKey {
        /// The file and line, or the override.
        place: String,
        /// The key with its section.
        key: String,
        /// The nearest known key, or all of them.
        hint: String,
    },
    /// A value of the wrong type, or a key that is missing.
    #[error("{place}: `{}`: {cause}", shortened(key))]
    Value {
        /// The file and line, or the override.
        place: String,
        /// The key with its section.
        key: String,
        /// What was expected and what was found.
        cause: String,
    },
    /// An override whose key leads nowhere.
    #[error("`--set {}`: {}", shortened(key), shortened_reason(cause))]
    Override {
        /// The key as it was given.
        key: String,
        /// Why it cannot be set.
        cause: String,
    },
    /// A value out of its range.
    #[error("{place}: {text}")]
    Range {
        /// The file and line, or the override.
        place: String,
        /// The key, the value found and the values allowed.
        text: String,
    },
    /// More than one thing is wrong.
    #[error("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several {
        /// All of them.
        errors: Vec<RecipeError>,
    },
    /// A run was to be continued by another recipe.
    #[error("the run began with another recipe: {}; a resumed run may change {allowed}, and nothing else", changes.join(", "))]
    Changed {
        /// Each key with its old and its new value.
        changes: Vec<String>,
        /// The keys that may change.
        allowed: String,
    },
    /// The recipe cannot be written as TOML.
    #[error("the recipe cannot be written as TOML: {reason}")]
    Unwritable {
        /// What cannot be expressed.
        reason: String,
    },
}

impl RecipeError {
    /// One error out of several findings, if there are any.
    pub(super) fn of(mut errors: Vec<Self>) -> Result<(), Self> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(Self::Several { errors }),
        }
    }

    /// Whether the user can mend it; a recipe that cannot be written and a disk that fails are not the user's doing.
    pub fn is_user_error(&self) -> bool {
        match self {
            Self::File { reason, .. } => is_user_error_kind(reason.kind()),
            Self::Unwritable { .. } => false,
            _ => true,
        }
    }
}
