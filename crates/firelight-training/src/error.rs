//! What can go wrong between a recipe and a trained model, in words that name the step, file or key and the way out.
//! Recipes fail with [`RecipeError`](crate::RecipeError); everything after them fails with [`TrainingError`].

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use burn::data::dataset::DatasetError;
use burn::tensor::TensorReadError;
use firelight_storage::{StorageError, shortened, shortened_reason};

use crate::init::Mismatch;
use crate::metrics::text::TextMetricError;
use crate::{Precision, SettingsError};

/// An error that stopped a training run or an evaluation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainingError {
    /// The settings of the run do not make sense.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A metric of generated text has no value.
    #[error(transparent)]
    Text(#[from] TextMetricError),
    /// A file of the run could not be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The optimiser's state, the notes of a checkpoint or the metrics could not be written.
    #[error("cannot {action} `{}`: {reason}", path.display())]
    File {
        /// What was tried, as a verb: `write`.
        action: &'static str,
        /// The file or folder it was tried on.
        path: PathBuf,
        /// Why it failed.
        reason: String,
    },
    /// A file of a checkpoint is cut short or holds something else.
    #[error("the file `{}` is damaged: {}", path.display(), shortened_reason(reason))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was expected and found.
        reason: String,
    },
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
    /// A run was asked to continue as another one.
    #[error(
        "cannot resume `{}`: `{key}` is not what the run began with; leave it out, or start a new run in another folder",
        path.display()
    )]
    OtherRun {
        /// The run folder.
        path: PathBuf,
        /// What differs.
        key: &'static str,
    },
    /// A checkpoint was written by a model with other parameters.
    #[error(
        "the checkpoint `{}` does not fit the model: {}; resume with the model that wrote it",
        path.display(),
        shortened_reason(reason)
    )]
    ForeignCheckpoint {
        /// The `state.json` of the checkpoint.
        path: PathBuf,
        /// The first parameter in which the two differ, and how.
        reason: String,
    },
    /// A run was to go on under another seed, with other batches and dropout than it began with.
    #[error(
        "the checkpoint `{}` was written by a run of the seed {found}, not {asked}: give the seed as it was, or begin a run of \
         its own in another folder",
        path.display()
    )]
    OtherSeed {
        /// The `state.json` of the checkpoint.
        path: PathBuf,
        /// The seed that the run began with.
        found: u64,
        /// The seed that was to continue it.
        asked: u64,
    },
    /// A checkpoint holds the state of another kind of optimizer.
    #[error(
        "the checkpoint `{}` was written with optimizer.kind = \"{found}\", not \"{asked}\": set the kind as it was, or \
         begin the run anew with --force",
        path.display()
    )]
    OtherOptimizer {
        /// The `state.json` of the checkpoint.
        path: PathBuf,
        /// The kind that wrote it.
        found: &'static str,
        /// The kind that was to continue it.
        asked: &'static str,
    },
    /// Weights that a training was to begin from do not fit its model.
    #[error("`{}`, which init.from names, does not fit the model: {mismatch}", path.display())]
    OtherModel {
        /// The weights file.
        path: PathBuf,
        /// All that does not fit.
        mismatch: Box<Mismatch>,
    },
    /// Weights that a training was to begin from have a head that says something else.
    #[error(
        "the head of the run `{}` {reason}; set init.exclude = {exclude:?} to begin with a new head",
        path.display()
    )]
    OtherHead {
        /// The run to begin from.
        path: PathBuf,
        /// What it is for, and what the new one is for.
        reason: String,
        /// The head, as patterns.
        exclude: Vec<&'static str>,
    },
    /// Weights of another task that a training was to begin from have low-rank adapters.
    #[error(
        "`{}` has low-rank adapters, which another task cannot take over: merge them first, by `firelight merge RUN_DIR --out DIR`, and \
         begin from that",
        path.display()
    )]
    Adapted {
        /// The weights file.
        path: PathBuf,
    },
    /// A model whose adapters are to be merged, but that has none.
    #[error(
        "`{}` describes a model without adapters: its weights are whole already, use the run as it is",
        path.display()
    )]
    NoAdapters {
        /// `config.json`.
        path: PathBuf,
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
    /// A finished model does not give numbers.
    #[error(
        "the loss is {value}: the weights are damaged or their training has diverged; take another checkpoint, or train \
         again with a lower `optimizer.learning_rate`"
    )]
    LossNotFinite {
        /// What was found in the place of the loss.
        value: f64,
    },
    /// The device cannot compute in the type.
    #[error(
        "the device {device} cannot compute in {precision}, which `training.precision` asks for; set it to another of f32, \
         bf16 and f16, or take another device"
    )]
    Precision {
        /// The device.
        device: String,
        /// The type.
        precision: Precision,
    },
    /// A training in `f16` was given no scale for its loss.
    #[error("`training.precision` = f16 needs a scale for the loss: hand that of the task to `FitInput::loss_scale`")]
    NoLossScale,
    /// Blocks cannot be recomputed on the device.
    #[error(
        "`training.recompute` = blocks does not work on the device {device}: this program was built without the operations of its \
         backend; set it to `none` or `burn`, or take another device"
    )]
    CannotRecompute {
        /// The device.
        device: String,
    },
    /// No parameter received a gradient.
    #[error("step {step}: no parameter has a gradient; is every parameter of the model frozen?")]
    NoGradient {
        /// The step, counted from 1.
        step: usize,
    },
    /// The training batches ran out early.
    #[error("the training data ended before step {step} of {steps}; the loader must yield one batch for every step")]
    TooFewBatches {
        /// The step that found no batch, counted from 1.
        step: usize,
        /// The steps of the run.
        steps: usize,
    },
    /// The recipe names a metric that the task does not measure.
    #[error("`training.monitor` is `{}`, which this task does not measure: expected one of {known}", shortened(name))]
    UnknownMetric {
        /// The name in the recipe.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A metric of the task could not be measured.
    #[error("cannot measure `{name}`: {reason}")]
    Metric {
        /// Its name.
        name: &'static str,
        /// Why not.
        reason: String,
    },
    /// The evaluation found no target to count.
    #[error("the validation data holds no target: expected at least one, found 0; is the validation split empty?")]
    NothingToEvaluate,
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
            Self::File { .. } | Self::Data { .. } | Self::Device { .. } | Self::Burn(_) => false,
            _ => true,
        }
    }

    /// Returns a converter of the reasons for which a file could not be used, for `map_err`.
    pub(crate) fn file<E: ToString>(action: &'static str, path: &std::path::Path) -> impl FnOnce(E) -> Self {
        move |reason| Self::File { action, path: path.to_path_buf(), reason: one_line(&reason) }
    }

    /// Returns a converter of what is wrong with the content of a file, for `map_err`.
    pub(crate) fn damaged<E: ToString>(path: &std::path::Path) -> impl FnOnce(E) -> Self {
        move |reason| Self::Damaged { path: path.to_path_buf(), reason: one_line(&reason) }
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
