//! What a model on records must be able to do before it is worth training: ignore padding and batch mates, begin at the loss of a
//! guess where there is one, and overfit one batch.

use burn::data::dataloader::batcher::Batcher;
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use firelight_storage::TaskError;
use firelight_training::{Check, Objective, Run, TrainingModule};

use super::RecordTask;
use crate::data::{EncodedText, input_of};
use crate::encoder::TextInput;

/// Examples of the batch that is to be overfitted.
pub(crate) const EXAMPLES: usize = 8;

/// Checks the model of the structure and the recipe's seed, without dropout, on the first examples.
pub(crate) fn self_check<T: RecordTask>(run: &Run<T>) -> Result<Vec<Check>, TaskError> {
    let (config, seed) = (run.config(), run.recipe.seed);
    let model = T::model(&T::quiet(config), seed, run.device());
    let examples = &run.corpus.training()[..EXAMPLES.min(run.corpus.training().len())];
    let texts = examples.iter().map(T::tokens).collect();
    let batch = |device: &Device| T::Batcher::default().batch(examples.to_vec(), device);
    checks(model, (texts, T::first_answer), batch, (T::choices(config), seed))
}

/// Checks a model without dropout: what it answers to the first of `texts`, whose first tokens, so many, are not padding, what it
/// begins with on `batch` where it guesses among so many choices, and whether it learns that batch.
pub(crate) fn checks<M: Objective<Loss: Default>>(
    model: M,
    (texts, first_answer): (Vec<&EncodedText>, impl Fn(&M, &TextInput, usize) -> Tensor<1>),
    batch: impl Fn(&Device) -> M::Batch,
    (choices, seed): (Option<usize>, u64),
) -> Result<Vec<Check>, TaskError> {
    let model = model.valid();
    let task = TrainingModule::new(model.clone(), M::Loss::default());
    let device = model.devices().into_iter().next().unwrap_or_default();
    let mut checks = vec![padding(texts, |texts, tokens| first_answer(&model, &input_of(texts, &device), tokens))?];
    if let Some(choices) = choices {
        checks.push(Check::guess(&task, batch(&device), choices)?);
    }
    checks.push(Check::overfit(task.train(), || batch(&device.clone().autodiff()), seed)?);
    Ok(checks)
}

/// A longer text in the same batch, and so padding, changes nothing.
fn padding(
    mut texts: Vec<&EncodedText>,
    first_answer: impl Fn(&[&EncodedText], usize) -> Tensor<1>,
) -> Result<Check, TaskError> {
    texts.sort_by_key(|text| text.ids.len());
    let logits = |read: &[&EncodedText]| {
        let found = first_answer(read, texts[0].ids.len());
        found.try_into_vec_as::<f32>().map_err(TaskError::device("the logits of the self-check"))
    };
    let [alone, padded] = [logits(&texts[..1])?, logits(&texts)?];
    Ok(Check::same("padding invariance", &padded, &alone))
}

/// The logits `[B, T, C]` of the first tokens, so many, of the first text.
pub(crate) fn first_row(logits: Tensor<3>, tokens: usize) -> Tensor<1> {
    logits.narrow(0, 0, 1).narrow(1, 0, tokens).flatten(0, 2)
}
