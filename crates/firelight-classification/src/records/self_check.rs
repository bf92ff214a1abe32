//! What a model on records must be able to do before it is worth training: ignore padding and batch mates, begin at the loss of a
//! guess where there is one, and overfit one batch.

use burn::data::dataloader::batcher::Batcher;
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use firelight_training::{Check, RecipeOf, TrainingModule};

use super::{RecordData, RecordTask};
use crate::data::{EncodedText, input_of};
use crate::error::ClassificationError;

/// Examples of the batch that is to be overfitted.
const EXAMPLES: usize = 8;

/// Checks the model of `config` and the recipe's seed, without dropout, on the first examples.
pub(crate) fn self_check<T: RecordTask>(
    recipe: &RecipeOf<T>,
    config: &T::Config,
    data: &RecordData<T>,
    device: &Device,
) -> Result<Vec<Check>, ClassificationError> {
    let model = T::model(&T::quiet(config), recipe.seed, device).valid();
    let examples = &data.training()[..EXAMPLES.min(data.training().len())];
    let batch = |device: &Device| T::Batcher::default().batch(examples.to_vec(), device);
    let task = TrainingModule::new(model.clone(), T::Loss::default());
    let device = model.devices().into_iter().next().unwrap_or_default();
    let mut checks = vec![padding::<T>(&model, examples, &device)?];
    if let Some(choices) = T::choices(config) {
        checks.push(Check::guess(&task, batch(&device), choices)?);
    }
    checks.push(Check::overfit(task.train(), || batch(&device.clone().autodiff()), recipe.seed)?);
    Ok(checks)
}

/// A longer text in the same batch, and so padding, changes nothing.
fn padding<T: RecordTask>(
    model: &T::Net,
    examples: &[T::Example],
    device: &Device,
) -> Result<Check, ClassificationError> {
    let mut texts: Vec<&EncodedText> = examples.iter().map(T::tokens).collect();
    texts.sort_by_key(|text| text.ids.len());
    let logits = |read: &[&EncodedText]| {
        let found = T::first_answer(model, &input_of(read, device), texts[0].ids.len());
        found.try_into_vec_as::<f32>().map_err(ClassificationError::device("the logits of the self-check"))
    };
    let [alone, padded] = [logits(&texts[..1])?, logits(&texts)?];
    Ok(Check::same("padding invariance", &padded, &alone))
}

/// The logits `[B, T, C]` of the first tokens, so many, of the first text.
pub(crate) fn first_row(logits: Tensor<3>, tokens: usize) -> Tensor<1> {
    logits.narrow(0, 0, 1).narrow(1, 0, tokens).flatten(0, 2)
}
