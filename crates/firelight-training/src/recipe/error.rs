//! What can be wrong with a recipe, each in one line that says where and what to write instead.

use firelight_storage::{InputError, StorageError, TaskError};

/// An error of reading a recipe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// The file could not be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// One thing is wrong with the recipe, or with what overrides it.
    #[error(transparent)]
    Input(#[from] InputError),
    /// More than one thing is wrong.
    #[error("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several {
        /// All of them.
        errors: Vec<InputError>,
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
    pub(super) fn of(mut errors: Vec<InputError>) -> Result<(), Self> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0).into()),
            _ => Err(Self::Several { errors }),
        }
    }

    /// Whether the user can mend it; a recipe that cannot be written and a disk that fails are not the user's doing.
    pub fn is_user_error(&self) -> bool {
        match self {
            Self::Storage(error) => error.is_user_error(),
            Self::Unwritable { .. } => false,
            Self::Input(_) | Self::Several { .. } => true,
        }
    }

    /// The problems, one line each: all things that are wrong, or the error itself.
    pub fn problems(&self) -> Vec<String> {
        match self {
            Self::Several { errors } => errors.iter().map(ToString::to_string).collect(),
            _ => vec![self.to_string()],
        }
    }
}

impl From<RecipeError> for TaskError {
    fn from(error: RecipeError) -> Self {
        let problems = error.problems();
        Self::new(error.is_user_error(), error).listing(problems)
    }
}
