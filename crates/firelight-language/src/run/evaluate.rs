//! The loss of a trained model over the whole validation split of a text.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::Device;
use firelight_core::LossConfig;
use firelight_data::Tokenizer;
use firelight_storage::{Checkpoint, TaskError};
use firelight_training::{Alone, Communicator, DataModule, agree_on_examples, open_run};
use serde::Serialize;

use super::corpus::Part;
use super::sources::Sources;
use super::{Language, LmText};
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

/// Evaluates a run on the validation part of the data at a path, split off as in its training, or on a split of that folder, or,
/// without either, on what its own folder keeps: every token but the first of a source is predicted once, from windows of the context
/// side by side, or from its document where the run tells documents apart.
///
/// # Errors
/// If the folder is no trained language model, keeps no text where none is given, or the text has unknown characters or is
/// too short.
pub fn evaluate(
    folder: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    asked: Option<(&Path, Option<&str>)>,
    device: &Device,
) -> Result<Evaluation, TaskError> {
    evaluate_on(folder, checkpoint, asked, device, Arc::new(Alone))
}

/// Evaluates like [`evaluate`] on several ranks, which take the windows in turn: the same loss and scores as one process, to the bit on a CPU. Each rank calls it.
///
/// ```no_run
/// use firelight_language::evaluate_on;
/// use firelight_storage::Checkpoint;
/// use firelight_training::{Threads, ThreadsOptions};
///
/// std::thread::scope(|scope| {
///     for rank in Threads::ranks(2, ThreadsOptions::default()) {
///         scope.spawn(move || {
///             let rank = std::sync::Arc::new(rank);
///             let found = evaluate_on("runs/stories-1", &Checkpoint::Last, None, &Default::default(), rank);
///             println!("{:.4}", found.unwrap().loss); // the same on every rank
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
    asked: Option<(&Path, Option<&str>)>,
    device: &Device,
    communicator: Arc<dyn Communicator>,
) -> Result<Evaluation, TaskError> {
    let open = |ranks: Arc<dyn Communicator>| -> Result<_, TaskError> {
        let generator = TextGenerator::load_from(folder.as_ref(), checkpoint, device)?;
        let (folder, recipe) = open_run::<Language>(folder.as_ref())?;
        let tokenizer = generator.tokenizer();
        let [_, validation] = match asked {
            None => LmText::open(&recipe, &folder)?.parts,
            Some((data, None)) => Sources::at(&recipe.data, &[data.into()])?.encode(tokenizer, &recipe.data)?,
            Some((data, Some(split))) => {
                let all = Sources::of_split(data, split)?.encode_all(tokenizer, &recipe.data)?;
                [all.clone(), all]
            }
        };
        agree_on_examples(ranks, validation.examples())?;
        let loader = validation.validation_loader(&recipe, device)?;
        Ok((generator, validation, loader))
    };
    let (generator, validation, loader) = firelight_training::telling(communicator.clone(), open)?;
    let task = LmTask::new(generator.model().clone(), LossConfig::default());
    let found = firelight_training::evaluate_on(&task, loader.as_ref(), communicator)?;
    let characters = validation.parts().map(|part| characters(generator.tokenizer(), part)).sum::<usize>();
    let bits = found.loss * found.tokens as f64 / std::f64::consts::LN_2;
    Ok(Evaluation {
        loss: found.loss,
        perplexity: found.perplexity(),
        bits_per_character: bits / characters as f64,
        tokens: found.tokens,
    })
}

/// The characters that are predicted: all but those of the first token.
pub(super) fn characters(tokenizer: &Tokenizer, part: &Part) -> usize {
    let ids: Vec<u32> = part.tokens().iter().skip(1).collect();
    tokenizer.decode(&ids).chars().count()
}
