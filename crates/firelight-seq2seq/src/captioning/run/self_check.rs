//! What a model of captions must be able to do before it is worth training: keep a caption's future out, describe an image without
//! regard to its batch mates, begin at the loss of a guess, and overfit one batch.

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};
use firelight_core::LossConfig;
use firelight_storage::TaskError;
use firelight_training::{Check, DataModule, Run, Task, TrainingError, TrainingModule};

use super::super::model::CaptionModel;
use super::super::training::CaptionBatch;
use super::Captioning;
use super::data::CaptionData;
use super::recipe::CaptionRecipe;

/// Images of the batch that is to be overfitted.
const IMAGES: usize = 8;

/// Checks the model without dropout and adapters on the first batch of the training.
pub(super) fn self_check(run: &Run<Captioning>) -> Result<Vec<Check>, TaskError> {
    let (recipe, data) = (&run.recipe, &run.corpus);
    let bare = run.config().clone().with_adapters(None);
    let quiet = bare.with_both(|stack| stack.with_dropout(0.0).with_stochastic_depth(0.0));
    let model = Captioning::model(&quiet, recipe.seed, run.device()).valid();
    let plain = model.embedding.weight.device();
    let task = TrainingModule::new(model.clone(), LossConfig::default());
    let batch = first(recipe, data, &plain)?;
    let again = first(recipe, data, &plain.clone().autodiff())?;
    Ok(vec![
        future(&model, &batch)?,
        batch_mates(&model, &batch)?,
        Check::guess(&task, batch, quiet.vocab_size)?,
        Check::overfit(task.train(), || again.clone(), recipe.seed)?,
    ])
}

fn first(recipe: &CaptionRecipe, data: &CaptionData, device: &Device) -> Result<CaptionBatch, TaskError> {
    let mut small = recipe.clone();
    small.training.batch_size = IMAGES;
    let loader = data.training_loader(&small, 0..1, device)?;
    let batch = loader.iter().next().unwrap_or_else(|| unreachable!("a training has a first batch"));
    Ok(batch.map_err(|cause| TrainingError::Data { part: "training", cause })?)
}

fn logits(model: &CaptionModel, images: Tensor<4>, captions: Tensor<2, Int>) -> Result<Vec<f32>, TaskError> {
    let logits = model.forward(images, captions);
    logits.try_into_vec_as().map_err(TaskError::device("the logits of the self-check"))
}

/// Another last token changes nothing before it.
fn future(model: &CaptionModel, batch: &CaptionBatch) -> Result<Check, TaskError> {
    let (images, inputs) = (batch.images.clone().narrow(0, 0, 1), batch.inputs.clone().narrow(0, 0, 1));
    let past = inputs.dims()[1] - 1;
    let other = Tensor::cat(vec![inputs.clone().narrow(1, 0, past), inputs.zeros_like().narrow(1, past, 1)], 1);
    let [found, expected] = [logits(model, images.clone(), other)?, logits(model, images, inputs)?];
    let known = expected.len() / (past + 1) * past;
    Ok(Check::same("causality", &found[..known], &expected[..known]))
}

/// An image alone has the logits that it has among others.
fn batch_mates(model: &CaptionModel, batch: &CaptionBatch) -> Result<Check, TaskError> {
    let (images, inputs) = (batch.images.clone(), batch.inputs.clone());
    let alone = logits(model, images.clone().narrow(0, 0, 1), inputs.clone().narrow(0, 0, 1))?;
    let together = logits(model, images, inputs)?;
    Ok(Check::same("batch invariance", &together[..alone.len()], &alone))
}
