//! What can go wrong between pairs of texts and a trained model, or a model and its translations.

use std::path::PathBuf;

use firelight_core::ConfigError;
use firelight_data::{DataError, ImageError};
use firelight_generation::GenerationError;
use firelight_storage::{StorageError, shortened};

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
    /// A recipe that generates no pairs needs some.
    #[error(
        "the recipe `{}` needs pairs to train on: give a folder, a TSV or a JSONL file with --data, or two files with --source and \
         --target",
        path.display()
    )]
    NoData {
        /// The recipe.
        path: PathBuf,
    },
    /// A recipe that makes pairs out of a text needs one.
    #[error("`{}` makes pairs out of a plain text (data.objective): give one text file with --data", path.display())]
    NoText {
        /// The recipe.
        path: PathBuf,
    },
    /// A path that leads nowhere.
    #[error("there is no file or folder `{}` to read pairs from: check the path", path.display())]
    Missing {
        /// What was given.
        path: PathBuf,
    },
    /// A file that is no table of pairs.
    #[error(
        "`{}` holds no pairs: expected a folder of parallel files, a file of records (.tsv, .csv, .jsonl or .parquet), or two files, of source and target",
        path.display()
    )]
    NoPairs {
        /// What was given.
        path: PathBuf,
    },
    /// A folder of parallel files, without their names.
    #[error(
        "the files in `{}` are found by the names of the two sides: set data.source and data.target, such as \"de\" and \"en\" \
         for train.de and train.en",
        path.display()
    )]
    NoNames {
        /// The folder.
        path: PathBuf,
    },
    /// A recipe of captions that draws no digits needs images.
    #[error(
        "the recipe `{}` needs images to train on: give a folder with captions.jsonl or with labelled images with --data DIR",
        path.display()
    )]
    NoImages {
        /// The recipe.
        path: PathBuf,
    },
    /// Images and captions that do not lie in one place.
    #[error("captions are read from one file or folder, but {count} paths were given: put them into one")]
    SeveralPaths {
        /// How many were given.
        count: usize,
    },
    /// A path without a list of captions.
    #[error(
        "`{}` holds no captions: expected a file of JSON lines, or a folder with captions.jsonl, with objects such as \
         {{\"image\": \"1.png\", \"caption\": \"a dog\"}}; to train on composed pictures, a folder of images by class",
        path.display()
    )]
    NoCaptions {
        /// What was given.
        path: PathBuf,
    },
    /// A file of a run folder that does not fit the others.
    #[error("`{}` does not fit the run: {reason}; restore the file that belongs to it", path.display())]
    Captions {
        /// The file.
        path: PathBuf,
        /// What was expected and found.
        reason: String,
    },
    /// A model of captions beside the tokenizer of another.
    #[error(
        "`{}` is for a vocabulary of {expected} tokens, but tokenizer.json beside it has {found}; restore the file that belongs to \
         this run",
        path.display()
    )]
    CaptionVocabulary {
        /// `config.json`.
        path: PathBuf,
        /// Tokens that the model knows.
        expected: usize,
        /// Tokens of the tokenizer.
        found: usize,
    },
    /// A split that the folder does not have.
    #[error("there is no split `{}` in `{}`: expected {}; {found}", shortened(split), path.display(), expected.join(" and "))]
    UnknownSplit {
        /// The folder.
        path: PathBuf,
        /// The split that was asked for.
        split: String,
        /// The files that it would have.
        expected: Vec<String>,
        /// The splits that there are, in words.
        found: String,
    },
    /// All pairs were dropped, or none were there.
    #[error("there is no pair to {purpose}: {reason}")]
    NothingLeft {
        /// `train on` or `validate on`.
        purpose: &'static str,
        /// Why there is none.
        reason: String,
    },
    /// A text that the model cannot read at once.
    #[error(
        "line {line} has {tokens} tokens, the end of the {side} included, but the model reads {max_seq_len}: shorten it, train with a \
         larger model.max_seq_len, or cut it with --truncate where it is only translated"
    )]
    TooLong {
        /// The line, counted from 1.
        line: usize,
        /// `source` or `target`.
        side: &'static str,
        /// Its tokens.
        tokens: usize,
        /// The most that the model reads.
        max_seq_len: usize,
    },
    /// A line that the tokenizer cannot read.
    #[error("line {line}: {error}")]
    Line {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong in it; a position is one of this line.
        error: DataError,
    },
    /// Files of one folder that do not belong together.
    #[error(
        "`{}` is for vocabularies of {source_size} and {target_size} tokens, but the tokenizers beside it have {source_found} and \
         {target_found}; restore the file that belongs to this run",
        path.display()
    )]
    Vocabulary {
        /// `config.json`.
        path: PathBuf,
        /// Tokens of the source that the model knows.
        source_size: usize,
        /// Tokens of the target that the model knows.
        target_size: usize,
        /// Tokens of the tokenizer of the source.
        source_found: usize,
        /// Tokens of the tokenizer of the target.
        target_found: usize,
    },
    /// A run with two tokenizers that has lost that of the source.
    #[error("`{}` is missing, the tokenizer of the source: restore the file that belongs to this run", path.display())]
    NoSourceTokenizer {
        /// Where it should be.
        path: PathBuf,
    },
    /// The device failed to compute or to hand over numbers.
    #[error("the device failed to compute {quantity}: {cause}")]
    Device {
        /// What was being computed.
        quantity: &'static str,
        /// The device's reason.
        cause: burn::tensor::TensorReadError,
    },
    /// The texts or the tokenizers.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The images.
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
