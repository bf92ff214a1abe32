//! What a vision transformer must be able to do before it is worth training: answer without regard to its batch mates, begin at
//! the loss of a guess, and overfit one batch.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use firelight_core::LossConfig;
use firelight_storage::TaskError;
use firelight_training::{Check, Task, TrainingError};

use super::corpus::loader_of;
use super::{ImageData, Run, Vision};
use crate::data::ImageBatch;
use crate::model::{VisionConfig, VisionModel};
use crate::training::VisionTask;

/// Images of the batch that is to be overfitted.
const IMAGES: usize = 8;

/// Checks the model without dropout and adapters on the first images.
pub(super) fn self_check(run: &Run) -> Result<Vec<Check>, TaskError> {
    let (config, corpus, seed) = (run.config(), &run.corpus, run.recipe.seed);
    let bare = VisionConfig { adapters: None, ..config.clone() };
    let quiet = bare.with_stack(|stack| stack.with_dropout(0.0).with_stochastic_depth(0.0));
    let model = Vision::model(&quiet, seed, run.device()).valid();
    let device = model.device();
    let (batch, again) = (first(corpus, &device)?, first(corpus, &device.clone().autodiff())?);
    let task = VisionTask::new(model.clone(), LossConfig::default());
    Ok(vec![
        batch_mates(&model, batch.images.clone())?,
        Check::guess(&task, batch, config.classes.len())?,
        Check::overfit(task.train(), || again.clone(), seed)?,
    ])
}

/// The first images as they are.
fn first(corpus: &ImageData, device: &Device) -> Result<ImageBatch, TaskError> {
    let images = corpus.training();
    let few = IMAGES.min(images.len());
    let (first, _) = images.split((images.len() - few).max(1))?;
    let loader = loader_of(first, corpus.normalization().clone(), device);
    let batch = loader.iter().next().unwrap_or_else(|| unreachable!("a part of a split is not empty"));
    Ok(batch.map_err(|cause| TrainingError::Data { part: "training", cause })?)
}

/// An image alone has the logits that it has among others.
fn batch_mates(model: &VisionModel, images: Tensor<4>) -> Result<Check, TaskError> {
    let logits = |images: Tensor<4>| -> Result<Vec<f32>, TaskError> {
        model.forward(images).try_into_vec_as().map_err(TaskError::device("the logits of the self-check"))
    };
    let (alone, together) = (logits(images.clone().narrow(0, 0, 1))?, logits(images)?);
    Ok(Check::same("batch invariance", &together[..alone.len()], &alone))
}
