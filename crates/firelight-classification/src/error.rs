//! What can go wrong between labelled texts and a trained model, or a model and its answers.

use std::path::PathBuf;

use firelight_core::ConfigError;
use firelight_data::DataError;
use firelight_storage::{InputError, StorageError};

/// Why a model could not be trained, loaded, evaluated or asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClassificationError {
    /// The model that a file describes cannot be built.
    #[error("`{}`: {error}", path.display())]
    Config {
        /// The recipe or `config.json`.
        path: PathBuf,
        /// Its bad fields.
        error: ConfigError,
    },
    /// A line that the tokenizer cannot read.
    #[error("line {line}: {error}")]
    Line {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong in it.
        error: DataError,
    },
    /// The device failed to compute or to hand over numbers.
    #[error("the device failed to compute {quantity}: {cause}")]
    Device {
        /// What was being computed.
        quantity: &'static str,
        /// The device's reason.
        cause: burn::tensor::TensorReadError,
    },
    /// Something that was given does not fit, and there is nothing to do but to tell it.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The texts or the tokenizer.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The run folder.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The recipe.
    #[cfg(feature = "train")]
    #[error(transparent)]
    Recipe(#[from] firelight_training::RecipeError),
    /// The training.
    #[cfg(feature = "train")]
    #[error(transparent)]
    Training(#[from] firelight_training::TrainingError),
}

impl ClassificationError {
    /// True when the user can mend it by asking for something else, false when the machine failed.
    pub fn is_user_error(&self) -> bool {
        match self {
            Self::Device { .. } => false,
            Self::Data(error) | Self::Line { error, .. } => error.is_user_error(),
            Self::Storage(error) => error.is_user_error(),
            #[cfg(feature = "train")]
            Self::Recipe(error) => error.is_user_error(),
            #[cfg(feature = "train")]
            Self::Training(error) => error.is_user_error(),
            _ => true,
        }
    }

    /// Returns a converter of a device's failure to compute `quantity`, for `map_err`.
    pub(crate) fn device(quantity: &'static str) -> impl FnOnce(burn::tensor::TensorReadError) -> Self {
        move |cause| Self::Device { quantity, cause }
    }
}

/// A model whose answers are NaN or infinite.
pub(crate) fn not_finite() -> InputError {
    let problem =
        "the model answers with numbers that are not finite: its weights are damaged, or its training diverged";
    InputError::new(problem).advise("restore them, or train with a lower `optimizer.learning_rate`")
}
