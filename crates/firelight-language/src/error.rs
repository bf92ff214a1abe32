//! What can go wrong between a text and a trained model, or a model and its text.

use std::path::PathBuf;

use firelight_core::ConfigError;
use firelight_data::DataError;
use firelight_generation::GenerationError;
use firelight_storage::StorageError;

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
    /// A recipe without a text of its own needs one.
    #[error("the recipe `{}` needs a text to train on: give one with --data FILE", path.display())]
    NoData {
        /// The recipe.
        path: PathBuf,
    },
    /// Running text is one file.
    #[error("a language model is trained on one text, but {count} were given: join them into one file")]
    SeveralTexts {
        /// How many were given.
        count: usize,
    },
    /// Files of one folder that do not belong together.
    #[error(
        "`{}` is for a vocabulary of {found} tokens, but tokenizer.json beside it has {tokenizer}; restore the file that belongs \
         to this run",
        path.display()
    )]
    Vocabulary {
        /// `config.json` or `data.tokens`.
        path: PathBuf,
        /// The number of tokens that it is for.
        found: usize,
        /// The number of tokens of the tokenizer.
        tokenizer: usize,
    },
    /// The device failed to compute or to hand over numbers.
    #[error("the device failed to compute {quantity}: {cause}")]
    Device {
        /// What was being computed.
        quantity: &'static str,
        /// The device's reason.
        cause: burn::tensor::TensorReadError,
    },
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
            Self::Config { .. } | Self::NoData { .. } | Self::SeveralTexts { .. } | Self::Vocabulary { .. } => true,
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
