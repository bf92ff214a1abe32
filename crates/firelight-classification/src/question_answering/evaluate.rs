//! How well a trained reader answers the questions of a split.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::Device;
use firelight_storage::{Checkpoint, TaskError};
use firelight_training::{Alone, Communicator, TaskEvaluation};

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
    evaluate_answers_on(folder, checkpoint, data, device, Arc::new(Alone))
}

/// Evaluates like [`evaluate_answers`] on several ranks, which share the batches: the same loss and scores as one process, to the bit on a CPU. Each rank calls it, and
/// finds the same.
///
/// ```no_run
/// use std::sync::Arc;
/// use firelight_storage::Checkpoint;
/// use firelight_training::{Threads, ThreadsOptions};
///
/// std::thread::scope(|scope| {
///     for rank in Threads::ranks(2, ThreadsOptions::default()) {
///         scope.spawn(move || {
///             let found = firelight_classification::evaluate_answers_on("runs/answers-1", &Checkpoint::Last, None, &Default::default(), Arc::new(rank));
///             println!("{:.4}", found.unwrap().loss);
///         });
///     }
/// });
/// ```
///
/// # Errors
/// As [`evaluate_answers`], and if ranks have other models or examples, or one of them has failed or does not come in time.
pub fn evaluate_answers_on(
    folder: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    data: Option<(&Path, Option<&str>)>,
    device: &Device,
    communicator: Arc<dyn Communicator>,
) -> Result<TaskEvaluation, TaskError> {
    let reading = |config: SpanReaderConfig, _: &_| Ok(config.reading);
    records::evaluate::<QuestionAnswering>(folder.as_ref(), (checkpoint, data, device), reading, communicator)
}
