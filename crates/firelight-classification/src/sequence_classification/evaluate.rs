//! How well a trained model answers for the texts of a split.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::Device;
use firelight_storage::{Checkpoint, TaskError};
use firelight_training::{Alone, Communicator, TaskEvaluation};

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
    evaluate_on(folder, checkpoint, data, device, Arc::new(Alone))
}

/// Evaluates like [`evaluate`] on several ranks, which share the batches: the same loss and scores as one process, to the bit on a CPU. Each rank calls it, and
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
///             let found = firelight_classification::evaluate_on("runs/sst2-1", &Checkpoint::Last, None, &Default::default(), Arc::new(rank));
///             println!("{:.4}", found.unwrap().loss);
///         });
///     }
/// });
/// ```
///
/// # Errors
/// As [`evaluate`], and if ranks have other models or examples, or one of them has failed or does not come in time.
pub fn evaluate_on(
    folder: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    data: Option<(&Path, Option<&str>)>,
    device: &Device,
    communicator: Arc<dyn Communicator>,
) -> Result<TaskEvaluation, TaskError> {
    let targets =
        |config: TextClassifierConfig, data: &LabelledRecipe| Targets::named(&data.problem_type, config.labels);
    records::evaluate::<Classification>(folder.as_ref(), (checkpoint, data, device), targets, communicator)
}
