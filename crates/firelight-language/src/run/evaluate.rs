//! The loss of a trained model over the whole validation split of a text.

use std::path::Path;

use burn::tensor::Device;
use firelight_core::LossConfig;
use firelight_storage::{Checkpoint, ModelFolder};
use firelight_training::{DataModule, read_recipe};
use serde::Serialize;

use super::corpus::Corpus;
use super::{Language, LmText};
use crate::error::LanguageError;
use crate::text_generator::TextGenerator;
use crate::training::LmTask;

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

/// Evaluates a run on the validation split of `text`, split off as in its training, or, without a text, on that of its own,
/// which its folder keeps: every token but the first is predicted once, from windows of the context side by side, or from its document where the run tells documents apart.
///
/// # Errors
/// If the folder is no trained language model, keeps no text where none is given, or the text has unknown characters or is
/// too short.
pub fn evaluate(
    folder: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    text: Option<&str>,
    device: &Device,
) -> Result<Evaluation, LanguageError> {
    let generator = TextGenerator::load_from(folder.as_ref(), checkpoint, device)?;
    let folder = ModelFolder::open(folder)?;
    let recipe = read_recipe::<Language>(Some(&folder.recipe()), &[])?;
    let tokenizer = generator.tokenizer();
    let (_, validation) = match text {
        Some(text) => Corpus::encode(tokenizer, &recipe.data, text)?.split(recipe.data.validation_fraction)?,
        None => LmText::open(&recipe, &folder)?.parts,
    };
    let loader = validation.validation_loader(&recipe, device)?;
    let task = LmTask::new(generator.model().clone(), LossConfig::default());
    let found = firelight_training::evaluate(&task, loader.as_ref())?;
    let validation = validation.tokens();
    let characters = tokenizer.decode(&validation.get(1..validation.len())).chars().count();
    let bits = found.loss * found.tokens as f64 / std::f64::consts::LN_2;
    Ok(Evaluation {
        loss: found.loss,
        perplexity: found.perplexity(),
        bits_per_character: bits / characters as f64,
        tokens: found.tokens,
    })
}
