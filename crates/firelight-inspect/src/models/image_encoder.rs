//! Vision transformers, with a head or without: the trained tokens and the patches of an image.

use std::path::Path;

use burn::tensor::Device;
use firelight_core::{Pass, Trace, VisionTransformer};
use firelight_data::{Image, ImageProcessor};
use firelight_storage::{Checkpoint, InputError, TaskError};
use firelight_vision::{IMAGE_ENCODER_TASK, ImageEmbedder, Rollout};

use super::table::Inspected;
use super::{Attends, within};
use crate::asked::Asked;
use crate::maps::{AttentionKind, AttentionMaps, Picture};
use crate::stacks::ModelStack;

impl Inspected for ImageEmbedder {
    const TASKS: &'static [&'static str] = &[firelight_vision::TASK, IMAGE_ENCODER_TASK];

    fn open(folder: &Path, checkpoint: &Checkpoint, device: &Device) -> Result<Self, TaskError> {
        Self::load_from(folder, checkpoint, device)
    }

    fn stacks(&self) -> Vec<ModelStack> {
        vec![ModelStack::of_vision("model", &self.model().vit)]
    }
}

impl Attends for ImageEmbedder {
    fn attention(&self, asked: &Asked) -> Result<Vec<AttentionMaps>, TaskError> {
        asked.fits("a model of images", &["image"])?;
        let (vit, processor) = (&self.model().vit, self.processor());
        Ok(vec![maps(AttentionKind::SelfAttention, vit, processor, asked.image()?)?])
    }
}

/// The maps of a vision transformer that reads an image as the processor brings it to size.
pub(super) fn maps(
    kind: AttentionKind,
    vit: &VisionTransformer,
    processor: &ImageProcessor,
    image: &Image,
) -> Result<AttentionMaps, TaskError> {
    let size = processor.shape().size();
    let grid = vit.patches.grid(size).ok_or_else(|| {
        InputError::new(format!("images of {} x {} pixels are no whole number of patches", size[0], size[1]))
    })?;
    let pixels = processor.tensor(std::slice::from_ref(image), &vit.patches.projection.weight.device());
    let mut trace = Trace::default();
    let tokens = vit.hidden(pixels, &mut Pass::default().with_trace(&mut trace)).dims()[1];
    let first = tokens.saturating_sub(grid[0] * grid[1]);
    let rollout = Some(Rollout::of(&trace, grid, first)?.shares);
    let seen = processor.resizing.seen(image, processor.model);
    let picture = Picture { image: seen, grid, first, rollout };
    let labels = picture.labels();
    let maps = AttentionMaps::of_weights(kind, labels.clone(), labels, within(&trace))?;
    Ok(maps.with_picture(picture))
}
