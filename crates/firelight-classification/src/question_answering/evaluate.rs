//! How well a trained reader answers the questions of a split.

use std::path::Path;

use burn::tensor::Device;
use firelight_storage::{Checkpoint, TaskError};
use firelight_training::TaskEvaluation;

use super::QuestionAnswering;
use crate::model::SpanReaderConfig;
use crate::records;

/// Evaluates a run on the file `DIR/split.jsonl`; the tokenizer and the windows are those of its training. Which questions are measured
/// without a split, [`evaluate`](crate::evaluate) says.
///
/// # Errors
/// If the folder is no run of this task, there is no such split, a file is to have splits, or an answer does not stand where its
/// line says.
pub fn evaluate_answers(
    folder: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    data: Option<(&Path, Option<&str>)>,
    device: &Device,
) -> Result<TaskEvaluation, TaskError> {
    let reading = |config: SpanReaderConfig, _: &_| Ok(config.reading);
    records::evaluate::<QuestionAnswering>(folder.as_ref(), (checkpoint, data, device), reading)
}
