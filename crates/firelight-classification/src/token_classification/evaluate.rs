//! How well a trained model tags the sentences of a split.

use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::tensor::Device;
use firelight_core::LossConfig;
use firelight_data::labelled::Labels;
use firelight_data::tagged::{self, TaggedSentence};
use firelight_storage::{Checkpoint, ModelFolder};
use firelight_training::read_recipe;

use super::batch::TokenClassifierTask;
use super::corpus::{ENDINGS, examples, reading};
use super::score::TagScores;
use super::{TokenClassification, TokenClassificationRecipe};
use crate::error::ClassificationError;
use crate::run::{Asked, Evaluation, Measured, measured};
use crate::tagger::Tagger;

/// What the loss counts.
const UNIT: &str = "nats per word";

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
) -> Result<Evaluation, ClassificationError> {
    let tagger = Tagger::load_from(folder.as_ref(), checkpoint, device)?;
    let folder = ModelFolder::open(folder)?;
    let recipe = read_recipe::<TokenClassification>(Some(&folder.recipe()), &[])?;
    let (file, sentences) = sentences_of(&folder, &recipe, data)?;
    let tags = Labels::new(tagger.tags().to_vec())?;
    let began = Instant::now();
    let max_len = tagger.model().encoder.max_seq_len();
    let examples = examples(tagger.vocabulary(), &tags, (&file, &sentences), max_len)?;
    let task = TokenClassifierTask::new(tagger.model().clone(), LossConfig::default());
    let mut scores = TagScores::on(tags.names(), &examples, &sentences);
    Evaluation::of(&task, reading(&examples, device)?.as_ref(), &mut scores, (UNIT, sentences.len(), began))
}

/// The sentences to measure on and their file.
fn sentences_of(
    folder: &ModelFolder,
    recipe: &TokenClassificationRecipe,
    data: Asked<'_>,
) -> Result<(PathBuf, Vec<TaggedSentence>), ClassificationError> {
    let splits = (recipe.data.training.as_str(), &recipe.data.validation);
    let file = match measured::<TokenClassification>(folder, recipe, data, (splits, &ENDINGS))? {
        Measured::File(file) => file,
        Measured::HeldBack => folder.validation_pairs(),
    };
    let sentences = tagged::read(&file, recipe.data.scheme)?;
    Ok((file, sentences))
}
