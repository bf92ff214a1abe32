//! How well a trained model finds what stands behind the masks of texts.

use std::path::Path;
use std::time::Instant;

use burn::tensor::Device;
use firelight_core::LossConfig;
use firelight_storage::{Checkpoint, ModelFolder, TaskError};
use firelight_training::{DataModule, TaskEvaluation, open_run};

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
    let (_, model, vocabulary) = load::<PretrainingConfig>(folder.as_ref(), checkpoint, device)?;
    let (folder, recipe) = open_run::<MaskedLanguage>(folder)?;
    let examples = examples_of(&folder, &recipe, &vocabulary, data)?;
    let (began, objective) = (Instant::now(), recipe.data.objective);
    let task = PretrainingTask::new(model, LossConfig::default());
    let is_of_tokens = !matches!(objective, PretrainingObjective::Replaced(_));
    let unit = if is_of_tokens { "nats per hidden token" } else { "nats per token" };
    let (loader, mut scores) = (validation_loader(&examples, device)?, PretrainingScores::of(objective));
    let about = (unit.into(), examples.units.lengths().len(), began);
    let mut found = TaskEvaluation::of(&task, loader.as_ref(), &mut scores, about)?;
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
