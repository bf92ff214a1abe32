//! The share of the validation images that a model names rightly.

use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::tensor::Device;
use firelight_training::{TrainingError, ValidationMetric};

use super::ImageCorpus;
use crate::data::ImageBatch;
use crate::error::VisionError;
use crate::inference::{likeliest, probabilities};
use crate::model::VisionModel;
use crate::training::VisionTask;

/// Accuracy in `[0, 1]`.
pub(super) struct Accuracy {
    loader: Arc<dyn DataLoader<ImageBatch>>,
}

impl Accuracy {
    pub(super) fn on(corpus: &ImageCorpus) -> Self {
        Self { loader: corpus.validation_loader(&Device::default()) }
    }
}

/// What a model says of one image, and the class that it is of.
pub(super) struct Answer {
    pub(super) probabilities: Vec<f64>,
    pub(super) target: usize,
}

impl Answer {
    pub(super) fn is_right(&self) -> bool {
        likeliest(&self.probabilities) == self.target
    }
}

/// The answers of a model to all images of a loader, in their order.
pub(super) fn answers(model: &VisionModel, loader: &dyn DataLoader<ImageBatch>) -> Result<Vec<Answer>, VisionError> {
    let loader = loader.to_device(&model.device());
    let mut answers = Vec::new();
    for batch in loader.iter() {
        let batch = batch.map_err(|cause| TrainingError::Data { part: "validation", cause })?;
        let targets: Vec<i64> = batch.targets.try_into_vec_as().map_err(VisionError::device("the targets"))?;
        let found = probabilities(model, batch.images)?.into_iter().zip(targets);
        answers.extend(found.map(|(probabilities, target)| Answer { probabilities, target: target as usize }));
    }
    Ok(answers)
}

impl ValidationMetric<VisionTask> for Accuracy {
    fn name(&self) -> &str {
        "accuracy"
    }

    fn higher_is_better(&self) -> bool {
        true
    }

    fn measure(&mut self, task: &VisionTask) -> Result<f64, TrainingError> {
        let answers = answers(&task.model, self.loader.as_ref());
        let answers = answers.map_err(|error| TrainingError::Metric { name: "accuracy", reason: error.to_string() })?;
        let right = answers.iter().filter(|answer| answer.is_right()).count();
        Ok(right as f64 / answers.len() as f64)
    }
}
