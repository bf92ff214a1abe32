//! Models of two towers, as CLIP: the patches of an image, the tokens of a text, or both. No tower reads the other.

use std::path::Path;

use burn::tensor::Device;
use firelight_core::{Pass, Trace};
use firelight_data::right_padded;
use firelight_storage::{Checkpoint, InputError, TaskError};
use firelight_vision::{IMAGE_TEXT_TASK, ImageTextMatcher};

use super::table::Inspected;
use super::{Attends, image_encoder, within};
use crate::asked::{Asked, check_length};
use crate::labels::token_labels;
use crate::maps::{AttentionKind, AttentionMaps};
use crate::stacks::ModelStack;

/// What messages call the model.
const MODEL: &str = "a model of images and texts";

impl Inspected for ImageTextMatcher {
    const TASKS: &'static [&'static str] = &[IMAGE_TEXT_TASK];

    fn open(folder: &Path, checkpoint: &Checkpoint, device: &Device) -> Result<Self, TaskError> {
        Self::load_from(folder, checkpoint, device)
    }

    fn stacks(&self) -> Vec<ModelStack> {
        let model = self.model();
        vec![ModelStack::of_vision("image", &model.vit), ModelStack::new("text", model.text.transformer.clone())]
    }
}

impl Attends for ImageTextMatcher {
    /// Of the tower of images for an image, of that of texts for a text.
    fn attention(&self, asked: &Asked) -> Result<Vec<AttentionMaps>, TaskError> {
        if *asked == Asked::default() {
            return Err(InputError::new(format!("{MODEL} needs --image, --text or both")).into());
        }
        let taken = if asked.image.is_some() { ["image", "text"] } else { ["text", "image"] };
        asked.fits(MODEL, &taken)?;
        let mut maps = Vec::new();
        if let Some(image) = &asked.image {
            let (vit, processor) = (&self.model().vit, self.processor());
            maps.push(image_encoder::maps(AttentionKind::Image, vit, &processor, image)?);
        }
        if let Some(text) = &asked.text {
            maps.push(of_text(self, text)?);
        }
        Ok(maps)
    }
}

/// The maps between the tokens of a text, those around it included; a text that is too long is refused here, and not cut.
fn of_text(matcher: &ImageTextMatcher, text: &str) -> Result<AttentionMaps, TaskError> {
    let (tower, tokenizer) = (&matcher.model().text, matcher.tokenizer());
    let whole = tokenizer.encode(text)?.len() + matcher.encode("")?.len();
    check_length("text, with the tokens around it,", whole, tower.max_seq_len())?;
    let ids = matcher.encode(text)?;
    let tokens = right_padded(&[ids.as_slice()], &tower.embedding.weight.device()).0;
    let mut trace = Trace::default();
    tower.hidden(tokens, None, &mut Pass::default().with_trace(&mut trace));
    let labels = token_labels(tokenizer, &ids);
    AttentionMaps::of_weights(AttentionKind::Text, labels.clone(), labels, within(&trace))
}
