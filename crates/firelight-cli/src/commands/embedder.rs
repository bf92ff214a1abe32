//! What makes vectors of texts or of images, by the task of a model.

use anyhow::{Result, bail, ensure};
use firelight::classification::Embedder;
use firelight::data::Image;
use firelight::vision::{ImageEmbedder, ImageTextMatcher};

use super::tasks::{Shown, untrained, with_task};
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
    /// Loads a model that reads what it is given: images, or else texts.
    pub(super) fn load(model: &TrainedModel, are_images: bool) -> Result<Self> {
        let task = model.task()?.unwrap_or_default();
        with_task!(task.as_str(), |T| T::embedder(model, are_images), untrained::embedder(&task, model, are_images))
    }

    /// A model of texts, which refuses images.
    pub(super) fn of_texts(model: &TrainedModel, are_images: bool) -> Result<Self> {
        ensure!(!are_images, Mistake("the model reads texts: give --text TEXT or --file FILE".into()));
        Ok(Self::Texts(model.load(Embedder::load_from)?))
    }

    /// A model of images, which refuses texts.
    pub(super) fn of_images(model: &TrainedModel, are_images: bool) -> Result<Self> {
        ensure!(are_images, Mistake("the model reads images: give --image FILE".into()));
        Ok(Self::Images(model.load(ImageEmbedder::load_from)?))
    }

    /// A model of both.
    pub(super) fn of_both(model: &TrainedModel) -> Result<Self> {
        Ok(Self::Both(model.load(ImageTextMatcher::load_from)?))
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
