//! What can go wrong between labelled texts and a trained model, or a model and its answers.

use std::path::PathBuf;

use firelight_core::ConfigError;
use firelight_data::{DataError, Split};
use firelight_storage::{StorageError, listed, shortened};

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
    /// A recipe without data.
    #[error("the recipe `{}` needs data: give a folder or a file with --data", path.display())]
    NoData {
        /// The recipe.
        path: PathBuf,
    },
    /// A path that leads nowhere.
    #[error("there is no file or folder `{}` to read texts from: check the path", path.display())]
    Missing {
        /// What was given.
        path: PathBuf,
    },
    /// One file, by a recipe that reads its validation texts from another one.
    #[error(
        "`{}` is one file, but data.validation = \"{}\" names another file of a folder: give the folder, or set \
         data.validation to the number of texts that are only validated on",
        path.display(),
        shortened(split)
    )]
    OneFile {
        /// The file.
        path: PathBuf,
        /// The split that the recipe names.
        split: String,
    },
    /// A split that the folder does not have.
    #[error("there is no split `{}` in `{}`: expected {}; {found}", shortened(split), path.display(), expected.join(" or "))]
    UnknownSplit {
        /// The folder.
        path: PathBuf,
        /// The split that was asked for.
        split: String,
        /// The files that it could be.
        expected: Vec<String>,
        /// The splits that there are, in words.
        found: String,
    },
    /// A split of data that has none.
    #[error(
        "`{}` is one file and has no split `{}`: leave --split out, or give the folder that the splits are in",
        path.display(),
        shortened(split)
    )]
    SplitOfFile {
        /// The file.
        path: PathBuf,
        /// The split that was asked for.
        split: String,
    },
    /// Too few texts for both parts.
    #[error(
        "data.validation = {validation} leaves nothing of the {texts} texts to train on: set it to a number below {texts}"
    )]
    NothingLeft {
        /// Texts to validate on.
        validation: usize,
        /// All of them.
        texts: usize,
    },
    /// Class weights for another number of classes.
    #[error(
        "loss.class_weights has {found} numbers, but the data has {} classes: {}; give a number for each, in this order",
        classes.len(),
        listed(classes)
    )]
    ClassWeights {
        /// Numbers that the recipe gives.
        found: usize,
        /// The classes.
        classes: Vec<String>,
    },
    /// Files without a single token.
    #[error("there is no text to train on or none to validate on: all lines are empty")]
    NoTokens,
    /// Documents of which no pairs of sentences can be made.
    #[error(
        "the {split} split: {error}; a document is the lines of a .txt between two blank ones, or a row of a table, and each of its \
         lines a sentence"
    )]
    SentencePairs {
        /// The split of the data.
        split: Split,
        /// What is lacking.
        error: DataError,
    },
    /// A file of a run folder that is not as it was written.
    #[error("`{}` is damaged: expected a JSON string on every line; restore the file that belongs to this run", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// A line that the tokenizer cannot read.
    #[error("line {line}: {error}")]
    Line {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong in it.
        error: DataError,
    },
    /// A text that is too long for its question to be read with it.
    #[error(
        "line {line}: the question and its text have {tokens} tokens, but model.max_seq_len = {max_len}: raise it, or set data.stride to \
         read the text in windows"
    )]
    LongContext {
        /// The line, counted from 1.
        line: usize,
        /// Their tokens, with those around them.
        tokens: usize,
        /// The most that the model reads.
        max_len: usize,
    },
    /// A text in which nothing is to be filled.
    #[error("line {line}: the text has no [MASK]: write [MASK] where a token is to be found")]
    NoMask {
        /// The line, counted from 1.
        line: usize,
    },
    /// A text that is too long, of which nothing may be cut.
    #[error(
        "line {line}: the text has {tokens} tokens, with those around it, but the model reads model.max_seq_len = {max_len} at most: \
         shorten it"
    )]
    LongText {
        /// The line, counted from 1.
        line: usize,
        /// Its tokens, with those around it.
        tokens: usize,
        /// The most that the model reads.
        max_len: usize,
    },
    /// A question that is too long.
    #[error(
        "line {line}: the question has {tokens} tokens, which leave no room for its text of model.max_seq_len = {max_len}: raise it"
    )]
    LongQuestion {
        /// The line, counted from 1.
        line: usize,
        /// Its tokens.
        tokens: usize,
        /// The most that the model reads.
        max_len: usize,
    },
    /// Files of one folder that do not belong together.
    #[error(
        "`{}` is for a vocabulary of {size} tokens, but tokenizer.json beside it has {found}; restore the file that belongs to \
         this run",
        path.display()
    )]
    Vocabulary {
        /// `config.json`.
        path: PathBuf,
        /// Tokens that the model knows.
        size: usize,
        /// Tokens of the tokenizer.
        found: usize,
    },
    /// A model whose answers are NaN or infinite.
    #[error(
        "the model answers with numbers that are not finite: its weights are damaged, or its training diverged; restore them, or \
         train with a lower `optimizer.learning_rate`"
    )]
    NotFinite,
    /// The device failed to compute or to hand over numbers.
    #[error("the device failed to compute {quantity}: {cause}")]
    Device {
        /// What was being computed.
        quantity: &'static str,
        /// The device's reason.
        cause: burn::tensor::TensorReadError,
    },
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
            Self::Data(error) | Self::Line { error, .. } | Self::SentencePairs { error, .. } => error.is_user_error(),
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
