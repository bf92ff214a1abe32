//! What can go wrong between a recipe and a trained model, in words that name the step, file or key and the way out.
//! Recipes fail with [`RecipeError`](crate::RecipeError); everything after them fails with [`TrainingError`].

use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::data::dataset::DatasetError;
use burn::tensor::TensorReadError;
use firelight_storage::{InputError, StorageError, TaskError, shortened_reason};

use crate::{CommunicatorError, SettingsError};

/// An error that stopped a training run or an evaluation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainingError {
    /// The settings of the run do not make sense.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A file of the run could not be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Something that was given does not fit, and there is nothing to do but to tell it.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The ranks of a training cannot go on together.
    #[error(transparent)]
    Ranks(#[from] CommunicatorError),
    /// A run has checkpoints, but none of them is whole.
    #[error(
        "cannot resume `{}`, because none of its checkpoints is whole: {cause}; restore the file, or begin the run anew \
         with --force",
        path.display()
    )]
    NoWholeCheckpoint {
        /// The folder of the run.
        path: PathBuf,
        /// What is wrong with the newest checkpoint.
        cause: Box<TrainingError>,
    },
    /// The training has diverged: a loss, a norm or a metric is NaN or infinite.
    #[error(
        "step {step}, {}: the {quantity} is {value}{}; lower `optimizer.learning_rate`, lengthen \
         `schedule.warmup_steps`, or set `optimizer.clip_norm`",
        one_or_several(batches),
        culprit.as_ref().map_or(String::new(), |culprit| format!(", and {culprit}"))
    )]
    NotFinite {
        /// The step, counted from 1.
        step: usize,
        /// The training batch, counted from 1 over the whole run; several, where only their sum tells.
        batches: RangeInclusive<usize>,
        /// `loss`, `gradient norm` or the name of a validation metric.
        quantity: &'static str,
        /// What was found in its place.
        value: f64,
        /// The first tensor that holds such a number, or the largest gradient, in words.
        culprit: Option<String>,
    },
    /// A batch could not be loaded.
    #[error("cannot load a batch of the {part} data: {cause}")]
    Data {
        /// `training` or `validation`.
        part: &'static str,
        /// The dataset's reason.
        cause: DatasetError,
    },
    /// The device failed to compute or to hand over a number.
    #[error("the device failed to compute the {quantity}: {cause}")]
    Device {
        /// What was being computed.
        quantity: &'static str,
        /// The device's reason.
        cause: TensorReadError,
    },
    /// A metric or a renderer of Burn failed.
    #[error("a metric failed: {0}")]
    Burn(Arc<burn::train::TrainingError>),
}

impl TrainingError {
    /// Whether the user can mend it by asking for something else (exit code 2), rather than the machine (exit code 1).
    pub fn is_user_error(&self) -> bool {
        match self {
            Self::Storage(error) => error.is_user_error(),
            Self::NoWholeCheckpoint { cause, .. } => cause.is_user_error(),
            Self::Data { .. } | Self::Device { .. } | Self::Burn(_) | Self::Ranks(_) => false,
            _ => true,
        }
    }

    /// Returns a converter of the reasons for which a file could not be used, for `map_err`.
    pub(crate) fn file<E: ToString>(action: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        move |reason| StorageError::io(action, path)(io::Error::other(one_line(&reason))).into()
    }

    /// Returns a converter of what is wrong with the content of a file, for `map_err`.
    pub(crate) fn damaged<E: ToString>(path: &Path) -> impl FnOnce(E) -> Self {
        move |reason| {
            let reason = shortened_reason(&one_line(&reason));
            InputError::new(format!("the file `{}` is damaged: {reason}", path.display())).into()
        }
    }

    /// Returns a converter of a device's failure to compute `quantity`, for `map_err`.
    pub fn device(quantity: &'static str) -> impl FnOnce(TensorReadError) -> Self {
        move |cause| Self::Device { quantity, cause }
    }

    /// Returns a converter of a dataset's failure in one `part` of the data, for `map_err`.
    pub(crate) fn data(part: &'static str) -> impl FnOnce(DatasetError) -> Self {
        move |cause| Self::Data { part, cause }
    }
}

impl From<CommunicatorError> for TaskError {
    fn from(error: CommunicatorError) -> Self {
        TrainingError::from(error).into()
    }
}

impl From<TrainingError> for TaskError {
    fn from(error: TrainingError) -> Self {
        Self::new(error.is_user_error(), error)
    }
}

/// Batches in words.
fn one_or_several(batches: &RangeInclusive<usize>) -> String {
    match batches.start() == batches.end() {
        true => format!("batch {}", batches.start()),
        false => format!("batches {} to {}", batches.start(), batches.end()),
    }
}

/// A reason on one line: those of other crates may span several.
fn one_line(reason: &impl ToString) -> String {
    reason.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_line_and_blame_the_right_side() {
        let culprit = Some("the weight `head` is not finite".to_string());
        let diverged =
            TrainingError::NotFinite { step: 12, batches: 23..=23, quantity: "loss", value: f64::NAN, culprit };
        assert_eq!(
            diverged.to_string(),
            "step 12, batch 23: the loss is NaN, and the weight `head` is not finite; lower `optimizer.learning_rate`, \
             lengthen `schedule.warmup_steps`, or set `optimizer.clip_norm`"
        );
        assert!(diverged.is_user_error());

        let disk = TrainingError::file("write", "metrics.jsonl".as_ref())("no space\n left");
        assert_eq!(disk.to_string(), "cannot write `metrics.jsonl`: no space left");
        assert!(!disk.is_user_error());
    }
}
