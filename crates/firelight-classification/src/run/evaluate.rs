//! How well a trained model classifies the texts of a split.

use std::path::Path;
use std::time::Instant;

use burn::tensor::Device;
use firelight_data::labelled::{self, Labels};
use firelight_storage::{Checkpoint, ModelFolder};
use firelight_training::read_recipe;
use serde::Serialize;

use super::Classification;
use super::corpus::examples;
use super::files::split;
use super::score::report;
use crate::classifier::Classifier;
use crate::error::ClassificationError;

/// What a model is worth on a split.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// Mean cross-entropy in nats per text, without weights and smoothing.
    pub loss: f64,
    /// The share of texts whose likeliest label is theirs.
    pub accuracy: f64,
    /// The mean F1 of the classes.
    pub macro_f1: f64,
    /// Number of texts.
    pub examples: usize,
    /// Seconds from the texts to the scores.
    pub seconds: f64,
}

/// Evaluates a run on the file `DIR/split.tsv` (or `.csv`, `.jsonl`), or on a file in the place of `DIR`; columns, labels and
/// tokenizer are those of its training.
///
/// # Errors
/// If the folder is no run of this task, there is no such split, or a text has a label that the training did not have.
pub fn evaluate(
    folder: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    (data, name): (&Path, &str),
    device: &Device,
) -> Result<Evaluation, ClassificationError> {
    let classifier = Classifier::load_from(folder.as_ref(), checkpoint, device)?;
    let recipe = read_recipe::<Classification>(Some(&ModelFolder::open(folder)?.recipe()), &[])?;
    let file = match data.is_file() {
        true => data.to_path_buf(),
        false if data.is_dir() => split(data, name)?,
        false => return Err(ClassificationError::Missing { path: data.into() }),
    };
    let texts = labelled::read(&file, &recipe.data.columns)?;
    let labels = Labels::new(classifier.labels().to_vec())?;
    let began = Instant::now();
    let max_len = classifier.model().encoder.max_seq_len();
    let examples = examples(classifier.vocabulary(), &labels, (&file, &texts), max_len)?;
    let (found, loss) = report(classifier.model(), &examples)?;
    Ok(Evaluation {
        loss,
        accuracy: found.accuracy,
        macro_f1: found.macro_f1,
        examples: examples.len(),
        seconds: began.elapsed().as_secs_f64(),
    })
}
