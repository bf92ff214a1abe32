//! What makes vectors of texts or of images, by the task of a model.

use anyhow::{Result, bail};
use firelight::classification::Embedder;
use firelight::data::Image;
use firelight::vision::{IMAGE_TEXT_TASK, ImageEmbedder, ImageTextMatcher};

use super::trained_model::TrainedModel;
use crate::failure::Mistake;

/// A model that makes vectors.
#[expect(clippy::large_enum_variant, reason = "there is one per command")]
pub(super) enum AnyEmbedder {
    /// Of texts.
    Texts(Embedder),
    /// Of images.
    Images(ImageEmbedder),
    /// Of both, which can be compared.
    Both(ImageTextMatcher),
}

impl AnyEmbedder {
    /// Loads a model; one that is no model of images and texts is one of images where some are asked for.
    pub(super) fn load(model: &TrainedModel, of_images: bool) -> Result<Self> {
        Ok(match model.task()?.as_deref() {
            Some(IMAGE_TEXT_TASK) => Self::Both(model.load(ImageTextMatcher::load_from)?),
            _ if of_images => Self::Images(model.load(ImageEmbedder::load_from)?),
            _ => Self::Texts(model.load(Embedder::load_from)?),
        })
    }

    /// A vector for every text, before which so many others stand in their file.
    pub(super) fn texts<S: AsRef<str>>(&self, before: usize, texts: &[S]) -> Result<Vec<Vec<f32>>> {
        match self {
            Self::Texts(embedder) => Ok(embedder.embed_after(before, texts)?),
            Self::Both(matcher) => Ok(matcher.embed_texts_after(before, texts)?),
            Self::Images(_) => bail!(Mistake("the model reads images alone: give --image without --similarity".into())),
        }
    }

    /// A vector for every image.
    pub(super) fn images(&self, images: &[Image]) -> Result<Vec<Vec<f32>>> {
        match self {
            Self::Images(embedder) => Ok(embedder.embed(images)?),
            Self::Both(matcher) => Ok(matcher.embed_images(images)?),
            Self::Texts(_) => unreachable!("one of texts is loaded where no image is given"),
        }
    }
}
