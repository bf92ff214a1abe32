//! What can go wrong between pairs of texts and a trained model, or a model and its translations.

use std::path::PathBuf;

use firelight_core::ConfigError;
use firelight_data::DataError;
#[cfg(feature = "images")]
use firelight_data::ImageError;
use firelight_generation::GenerationError;
use firelight_storage::{InputError, StorageError};

/// Why a model could not be trained, loaded, evaluated or asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Seq2SeqError {
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
        /// What is wrong in it; a position is one of this line.
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
    /// The texts or the tokenizers.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The images.
    #[cfg(feature = "images")]
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The run folder.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The sources or the options of the search.
    #[error(transparent)]
    Generation(#[from] GenerationError),
    /// The recipe.
    #[cfg(feature = "train")]
    #[error(transparent)]
    Recipe(#[from] firelight_training::RecipeError),
    /// The training.
    #[cfg(feature = "train")]
    #[error(transparent)]
    Training(#[from] firelight_training::TrainingError),
}

impl Seq2SeqError {
    /// True when the user can mend it by asking for something else, false when the machine failed.
    pub fn is_user_error(&self) -> bool {
        match self {
            Self::Device { .. } => false,
            Self::Data(error) | Self::Line { error, .. } => error.is_user_error(),
            #[cfg(feature = "images")]
            Self::Image(error) => error.is_user_error(),
            Self::Storage(error) => error.is_user_error(),
            Self::Generation(error) => error.is_user_error(),
            #[cfg(feature = "train")]
            Self::Recipe(error) => error.is_user_error(),
            #[cfg(feature = "train")]
            Self::Training(error) => error.is_user_error(),
            _ => true,
        }
    }

    /// Returns a converter of what is wrong in the line after so many, for `map_err`.
    pub(crate) fn in_line(index: usize) -> impl FnOnce(DataError) -> Self {
        move |error| Self::Line { line: index + 1, error }
    }

    /// Returns a converter of a device's failure to compute `quantity`, for `map_err`.
    pub(crate) fn device(quantity: &'static str) -> impl FnOnce(burn::tensor::TensorReadError) -> Self {
        move |cause| Self::Device { quantity, cause }
    }
}

/// A text that the model cannot read at once: the line, counted from 1, and what it is.
pub(crate) fn too_long((line, side): (usize, &str), tokens: usize, max_seq_len: usize) -> InputError {
    let problem =
        format!("line {line} has {tokens} tokens, the end of the {side} included, but the model reads {max_seq_len}");
    InputError::new(problem).advise(
        "shorten it, train with a larger model.max_seq_len, or cut it with --truncate where it is only translated",
    )
}
