//! How well a trained model finds what stands behind the masks of texts.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::Device;
use firelight_core::LossConfig;
use firelight_storage::{Checkpoint, ModelFolder, TaskError};
use firelight_training::{
    Alone, Communicator, DataModule, Shared, TaskEvaluation, agree_on_examples, open_run, telling,
};

use super::MaskedLanguage;
use super::corpus::{MaskedCorpus, validation_loader};
use super::examples::Examples;
use super::objective::PretrainingTask;
use super::recipe::MaskedLanguageRecipe;
use super::score::PretrainingScores;
use super::texts::{ENDINGS, of_file};
use crate::objectives::{PretrainingConfig, PretrainingObjective};
use crate::pretrained::load;
use crate::records::{Asked, Measured, measured, read_all};
use crate::vocabulary::TextVocabulary;

/// Evaluates a run on the file `DIR/split.txt` (or `.tsv`, `.csv`, `.jsonl`), with the masks that its validation draws; the tokenizer is that
/// of its training. Which texts are measured without a split, [`evaluate`](crate::evaluate) says. Where the loss is that of hidden tokens,
/// its perplexity is among the scores.
///
/// # Errors
/// If the folder is no run of this task, there is no such split, or a file is to have splits.
pub fn evaluate_masked(
    folder: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    data: Option<(&Path, Option<&str>)>,
    device: &Device,
) -> Result<TaskEvaluation, TaskError> {
    evaluate_masked_on(folder, checkpoint, data, device, Arc::new(Alone))
}

/// Evaluates like [`evaluate_masked`] on several ranks, which share the batches: the same loss and scores as one process, to the bit on a CPU. Each rank calls it, and
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
///             let found = firelight_classification::evaluate_masked_on("runs/masked-1", &Checkpoint::Last, None, &Default::default(), Arc::new(rank));
///             println!("{:.4}", found.unwrap().loss);
///         });
///     }
/// });
/// ```
///
/// # Errors
/// As [`evaluate_masked`], and if ranks have other models or examples, or one of them has failed or does not come in time.
pub fn evaluate_masked_on(
    folder: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    data: Option<(&Path, Option<&str>)>,
    device: &Device,
    communicator: Arc<dyn Communicator>,
) -> Result<TaskEvaluation, TaskError> {
    telling(communicator, |ranks| measure(folder.as_ref(), (checkpoint, data, device), ranks))
}

fn measure(
    folder: &Path,
    (checkpoint, data, device): (&Checkpoint, Asked<'_>, &Device),
    ranks: Arc<dyn Communicator>,
) -> Result<TaskEvaluation, TaskError> {
    let (_, model, vocabulary) = load::<PretrainingConfig>(folder, checkpoint, device)?;
    let (folder, recipe) = open_run::<MaskedLanguage>(folder)?;
    let examples = examples_of(&folder, &recipe, &vocabulary, data)?;
    let count = examples.units.lengths().len();
    agree_on_examples(ranks.clone(), (0..count).map(|index| format!("{:?}", examples.fixed(index))))?;
    let (began, objective) = (Instant::now(), recipe.data.objective);
    let task = PretrainingTask::new(model, LossConfig::default());
    let is_of_tokens = !matches!(objective, PretrainingObjective::Replaced(_));
    let unit = if is_of_tokens { "nats per hidden token" } else { "nats per token" };
    let (loader, mut scores) = (validation_loader(&examples, device)?, Shared(PretrainingScores::of(objective)));
    let about = (unit.into(), count, began);
    let mut found = TaskEvaluation::on(&task, loader.as_ref(), &mut scores, about, ranks)?;
    if is_of_tokens {
        found.scores.insert(0, ("perplexity", found.loss.exp()));
    }
    Ok(found)
}

/// What is measured, with its masks.
fn examples_of(
    folder: &ModelFolder,
    recipe: &MaskedLanguageRecipe,
    vocabulary: &TextVocabulary,
    data: Asked<'_>,
) -> Result<Examples, TaskError> {
    match measured::<MaskedLanguage>(folder, recipe, data, (&recipe.data.split, &ENDINGS))? {
        Measured::Files(files) => {
            let texts = read_all(&files, |file| of_file(file, &recipe.data))?;
            MaskedCorpus::examples(recipe, vocabulary, &texts)
        }
        Measured::HeldOut => Ok(MaskedCorpus::open(recipe, folder)?.validation(recipe)),
    }
}
