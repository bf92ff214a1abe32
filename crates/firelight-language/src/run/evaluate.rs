//! The loss of a trained model over the whole validation part of a text.

use std::path::Path;

use burn::tensor::Device;
use firelight_core::LossConfig;
use firelight_data::{DataError, StepLoader, Tokens, Window, WindowDataset};
use firelight_storage::{Checkpoint, ModelFolder};
use serde::Serialize;

use super::{LanguageRecipe, parse_recipe};
use crate::data::{LmBatch, LmBatcher};
use crate::error::LanguageError;
use crate::text_generator::TextGenerator;
use crate::training::LmTask;

/// Tokens of one validation batch: enough to keep the cores busy, few enough for small memories.
const BATCH_TOKENS: usize = 4096;

/// How well a model predicts a text.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Evaluation {
    /// Mean loss in nats per token.
    pub loss: f64,
    /// `exp(loss)`.
    pub perplexity: f64,
    /// The loss of the whole text in bits over its number of characters, which does not depend on the tokenizer.
    pub bits_per_character: f64,
    /// Tokens predicted, each once.
    pub tokens: u64,
}

/// Evaluates a run on the validation part of `text`, split off as in its training: every token but the first is
/// predicted once, from windows of the context side by side.
///
/// # Errors
/// If the folder is no trained language model, or the text has unknown characters or is too short.
pub fn evaluate(
    folder: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    text: &str,
    device: &Device,
) -> Result<Evaluation, LanguageError> {
    let generator = TextGenerator::load_from(folder.as_ref(), checkpoint, device)?;
    let recipe: LanguageRecipe = parse_recipe(&ModelFolder::open(folder)?.recipe(), &[])?;
    let tokenizer = generator.tokenizer();
    let tokens = Tokens::from(tokenizer.encode(text)?);
    let (_, validation) = tokens.split(recipe.data.validation_fraction)?;
    let loader = validation_loader(validation.clone(), generator.model().max_seq_len(), device)?;
    let task = LmTask::new(generator.model().clone(), LossConfig::default());
    let found = firelight_training::evaluate(&task, &loader)?;
    let characters = tokenizer.decode(&validation.get(1..validation.len())).chars().count();
    let bits = found.loss * found.tokens as f64 / std::f64::consts::LN_2;
    Ok(Evaluation {
        loss: found.loss,
        perplexity: found.perplexity(),
        bits_per_character: bits / characters as f64,
        tokens: found.tokens,
    })
}

/// The validation batches of a text, in order.
pub(super) fn validation_loader(
    tokens: Tokens,
    max_seq_len: usize,
    device: &Device,
) -> Result<StepLoader<Window, LmBatch>, DataError> {
    let windows = WindowDataset::for_evaluation(tokens, max_seq_len)?;
    Ok(StepLoader::new(windows, LmBatcher, (BATCH_TOKENS / max_seq_len).max(1), device))
}
