//! Captioning: the patches of an image, the caption, and how the caption reads the patches.

use std::path::Path;

use burn::tensor::Device;
use firelight_core::{Pass, SequenceInput, Trace};
use firelight_data::{Image, right_padded};
use firelight_generation::Autoregressive;
use firelight_seq2seq::{CAPTIONING_TASK, Captioner};
use firelight_storage::{Checkpoint, TaskError};
use firelight_vision::Rollout;

use super::table::Inspected;
use super::{Attends, across, within};
use crate::asked::{Asked, check_length};
use crate::labels::token_labels;
use crate::maps::{AttentionKind, AttentionMaps, Picture};
use crate::stacks::ModelStack;

impl Inspected for Captioner {
    const TASKS: &'static [&'static str] = &[CAPTIONING_TASK];

    fn open(folder: &Path, checkpoint: &Checkpoint, device: &Device) -> Result<Self, TaskError> {
        Self::load_from(folder, checkpoint, device)
    }

    fn stacks(&self) -> Vec<ModelStack> {
        let model = self.model();
        vec![ModelStack::of_vision("encoder", &model.vit), ModelStack::new("decoder", model.decoder.clone())]
    }
}

impl Attends for Captioner {
    /// A row of the decoder is a token that it reads, the start token first; the row decides which token comes next.
    fn attention(&self, asked: &Asked) -> Result<Vec<AttentionMaps>, TaskError> {
        asked.fits("a captioning model", &["image", "target"])?;
        let image = asked.image()?;
        let mut caption = match &asked.target {
            Some(target) => self.tokenizer().encode(target)?,
            None => self.caption(std::slice::from_ref(image), 1)?.swap_remove(0).ids,
        };
        if asked.target.is_none() {
            caption.truncate(self.model().max_len().saturating_sub(1)); // The last one is never read.
        }
        let caption = [vec![self.config().start_token], caption].concat();
        check_length("target, with the start token,", caption.len(), self.model().max_len())?;
        maps(self, image, &caption)
    }
}

/// The maps of both stacks and between them; none of a decoder that reads its caption without attention, as recurrences do.
fn maps(captioner: &Captioner, image: &Image, caption: &[u32]) -> Result<Vec<AttentionMaps>, TaskError> {
    let model = captioner.model();
    let (mut encoder, mut decoder) = (Trace::default(), Trace::default());
    let pixels = captioner.read(std::slice::from_ref(image));
    let read = model.read(pixels, &mut Pass::default().with_trace(&mut encoder));
    let target = model.embedding.forward(right_padded(&[caption], &model.device()).0);
    let input = SequenceInput::default().with_encoder_output(read);
    model.decoder.forward(target, &input, &mut Pass::default().with_trace(&mut decoder));
    let vit = &captioner.config().vit;
    let (grid, first) = (vit.grid(), vit.pooling.tokens());
    let rollout = Rollout::of(&encoder, grid, first)?.shares;
    let picture = Picture { image: image.clone(), grid, first, rollout: Some(rollout) };
    let words = || token_labels(captioner.tokenizer(), caption);
    let patches = || picture.labels();
    let seen = AttentionMaps::of_weights(AttentionKind::Encoder, patches(), patches(), within(&encoder))?;
    let crossed = AttentionMaps::of_weights(AttentionKind::Cross, words(), patches(), across(&decoder))?;
    let mut maps = vec![seen.with_picture(picture.clone())];
    if within(&decoder).any(|weights| weights.is_some()) {
        maps.push(AttentionMaps::of_weights(AttentionKind::Decoder, words(), words(), within(&decoder))?);
    }
    maps.push(crossed.with_picture(Picture { rollout: None, ..picture.clone() }));
    Ok(maps)
}
