//! What the model of a pre-training must be able to do before it is worth training.

use burn::data::dataloader::batcher::Batcher;
use burn::module::Module;
use burn::tensor::Device;
use firelight_core::{LossConfig, ParamBuilder, Pass};
use firelight_training::Check;

use super::corpus::MaskedCorpus;
use super::examples::{Examples, PretrainingBatcher};
use super::objective::PretrainingTask;
use super::recipe::MaskedLanguageRecipe;
use crate::data::{EncodedText, input_of};
use crate::error::ClassificationError;
use crate::objectives::{PretrainingConfig, PretrainingModel, PretrainingObjective};

/// Texts of the batch that is to be overfitted.
const TEXTS: usize = 8;

pub(super) fn self_check(
    recipe: &MaskedLanguageRecipe,
    config: &PretrainingConfig,
    corpus: &MaskedCorpus,
    device: &Device,
) -> Result<Vec<Check>, ClassificationError> {
    let mut quiet = config.clone();
    quiet.encoder = quiet.encoder.quiet();
    let model = quiet.init_with(&ParamBuilder::new(device, recipe.seed)).valid();
    let some = |examples: Examples| (0..TEXTS.min(examples.units.len())).map(move |index| Some(examples.fixed(index)));
    let examples: Vec<_> = some(corpus.validation(recipe)).collect();
    let batch = |device: &Device| PretrainingBatcher.batch(examples.clone(), device);
    let task = PretrainingTask::new(model.clone(), LossConfig::default());
    let device = model.devices().into_iter().next().unwrap_or_default();
    let texts: Vec<EncodedText> = some(corpus.training(recipe)).flatten().map(|example| example.into_text()).collect();
    let answers = match config.objective {
        PretrainingObjective::Replaced(_) => 2, // of every token: replaced, or the text's own
        _ => config.encoder.vocab_size,
    };
    Ok(vec![
        padding(&model, texts.iter().collect(), &device)?,
        Check::guess(&task, batch(&device), answers)?,
        Check::overfit(task.train(), || batch(&device.clone().autodiff()), recipe.seed)?,
    ])
}

/// A longer text in the same batch, and so padding, changes nothing.
fn padding(
    model: &PretrainingModel,
    mut texts: Vec<&EncodedText>,
    device: &Device,
) -> Result<Check, ClassificationError> {
    texts.sort_by_key(|text| text.ids.len());
    let length = texts[0].ids.len();
    let logits = |texts: &[&EncodedText]| {
        let found = model.forward(&input_of(texts, device), &mut Pass::default());
        let first = found.narrow(0, 0, 1).narrow(1, 0, length);
        first.try_into_vec_as::<f32>().map_err(ClassificationError::device("the logits of the self-check"))
    };
    let [alone, padded] = [logits(&texts[..1])?, logits(&texts)?];
    Ok(Check::same("padding invariance", &padded, &alone))
}
