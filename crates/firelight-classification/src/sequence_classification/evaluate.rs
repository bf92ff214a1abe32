//! How well a trained model answers for the texts of a split.

use std::path::Path;

use burn::tensor::Device;
use firelight_storage::{Checkpoint, TaskError};
use firelight_training::TaskEvaluation;

use super::targets::Targets;
use super::{Classification, LabelledRecipe};
use crate::model::TextClassifierConfig;
use crate::records;

/// Evaluates a run on the file `DIR/split.tsv` (or `.csv`, `.jsonl`); columns, labels and tokenizer are those of its training.
/// Without a split it is the file that the run validates on, or a file in the place of `DIR`. Where a run held back some of its
/// training texts, and the data is these texts, it is those that were held back. Without data it is what the run validates on,
/// as its folder keeps it.
///
/// # Errors
/// If the folder is no run of this task, or keeps no texts where no data is given, there is no such split, a file is to have splits, or a text has a label that the
/// training did not have, or no number in a regression.
pub fn evaluate(
    folder: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    data: Option<(&Path, Option<&str>)>,
    device: &Device,
) -> Result<TaskEvaluation, TaskError> {
    let targets =
        |config: TextClassifierConfig, data: &LabelledRecipe| Targets::named(&data.problem_type, config.labels);
    records::evaluate::<Classification>(folder.as_ref(), (checkpoint, data, device), targets)
}
