//! What can go wrong between a text and a trained model, or a model and its text.

use std::path::PathBuf;

use firelight_core::ConfigError;
use firelight_data::DataError;
use firelight_generation::GenerationError;
use firelight_storage::{InputError, StorageError};

/// Why a language model could not be trained, loaded, evaluated or asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LanguageError {
    /// The model that a file describes cannot be built.
    #[error("`{}`: {error}", path.display())]
    Config {
        /// The recipe or `config.json`.
        path: PathBuf,
        /// Its bad fields.
        error: ConfigError,
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
    /// The text or the tokenizer.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The run folder.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The prompt or the options.
    #[error(transparent)]
    Generation(#[from] GenerationError),
    /// The recipe's text.
    #[cfg(feature = "train")]
    #[error(transparent)]
    Recipe(#[from] firelight_training::RecipeError),
    /// The training.
    #[cfg(feature = "train")]
    #[error(transparent)]
    Training(#[from] firelight_training::TrainingError),
}

impl LanguageError {
    /// True when the user can mend it by asking for something else, false when the machine failed.
    pub fn is_user_error(&self) -> bool {
        match self {
            Self::Config { .. } | Self::Input(_) => true,
            Self::Device { .. } => false,
            Self::Data(error) => error.is_user_error(),
            Self::Storage(error) => error.is_user_error(),
            Self::Generation(error) => error.is_user_error(),
            #[cfg(feature = "train")]
            Self::Recipe(error) => error.is_user_error(),
            #[cfg(feature = "train")]
            Self::Training(error) => error.is_user_error(),
        }
    }

    /// Returns a converter of a device's failure to compute `quantity`, for `map_err`.
    #[cfg(feature = "train")]
    pub(crate) fn device(quantity: &'static str) -> impl FnOnce(burn::tensor::TensorReadError) -> Self {
        move |cause| Self::Device { quantity, cause }
    }
}
