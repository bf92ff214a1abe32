//! How well a trained model tags the sentences of a split.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::Device;
use firelight_data::labelled::Labels;
use firelight_storage::{Checkpoint, TaskError};
use firelight_training::{Alone, Communicator, TaskEvaluation};

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
    evaluate_tags_on(folder, checkpoint, data, device, Arc::new(Alone))
}

/// Evaluates like [`evaluate_tags`] on several ranks, which share the batches: the same loss and scores as one process, to the bit on a CPU. Each rank calls it, and
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
///             let found = firelight_classification::evaluate_tags_on("runs/entities-1", &Checkpoint::Last, None, &Default::default(), Arc::new(rank));
///             println!("{:.4}", found.unwrap().loss);
///         });
///     }
/// });
/// ```
///
/// # Errors
/// As [`evaluate_tags`], and if ranks have other models or examples, or one of them has failed or does not come in time.
pub fn evaluate_tags_on(
    folder: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    data: Option<(&Path, Option<&str>)>,
    device: &Device,
    communicator: Arc<dyn Communicator>,
) -> Result<TaskEvaluation, TaskError> {
    let tags = |config: TokenClassifierConfig, _: &_| Labels::new(config.labels);
    records::evaluate::<TokenClassification>(folder.as_ref(), (checkpoint, data, device), tags, communicator)
}
