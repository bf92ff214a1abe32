//! What commands do with a model whose task is not in the list: one of those that are imported and not trained, or an unknown one. The
//! latter is taken as a model of texts, and whoever loads it says what is wrong.

use anyhow::Result;
use firelight::vision::{IMAGE_ENCODER_TASK, IMAGE_TEXT_TASK};

use super::super::classify::Classify;
use super::super::embedder::AnyEmbedder;
use super::super::trained_model::TrainedModel;

/// Answers `firelight classify`.
pub(in super::super) fn classify(task: &str, asked: &Classify) -> Result<()> {
    if task == IMAGE_TEXT_TASK { asked.labels_of_images() } else { asked.texts() }
}

/// What makes the vectors of `firelight embed`.
pub(in super::super) fn embedder(task: &str, model: &TrainedModel, are_images: bool) -> Result<AnyEmbedder> {
    match task {
        IMAGE_TEXT_TASK => AnyEmbedder::of_both(model),
        IMAGE_ENCODER_TASK => AnyEmbedder::of_images(model, are_images),
        _ => AnyEmbedder::of_texts(model, are_images),
    }
}

/// A recipe that can begin from such a model.
pub(in super::super) fn recipe(task: &str) -> &'static str {
    if [IMAGE_TEXT_TASK, IMAGE_ENCODER_TASK].contains(&task) { "images" } else { "texts" }
}
