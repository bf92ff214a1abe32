//! How well a trained model tags the sentences of a split.

use std::path::Path;

use burn::tensor::Device;
use firelight_data::labelled::Labels;
use firelight_storage::{Checkpoint, TaskError};
use firelight_training::TaskEvaluation;

use super::TokenClassification;
use crate::model::TokenClassifierConfig;
use crate::records;

/// Evaluates a run on the file `DIR/split.conll` (or `.txt`, `.tsv`, `.jsonl`); the scheme, the tags and the tokenizer are those of its
/// training. Which sentences are measured without a split, [`evaluate`](crate::evaluate) says.
///
/// # Errors
/// If the folder is no run of this task, there is no such split, a file is to have splits, or a word has a tag that the training
/// did not have.
pub fn evaluate_tags(
    folder: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    data: Option<(&Path, Option<&str>)>,
    device: &Device,
) -> Result<TaskEvaluation, TaskError> {
    let tags = |config: TokenClassifierConfig, _: &_| Labels::new(config.labels);
    records::evaluate::<TokenClassification>(folder.as_ref(), (checkpoint, data, device), tags)
}
