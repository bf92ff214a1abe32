//! Models of two towers, one of images and one of texts.

use firelight_core::{Pass, Trace};
use firelight_storage::TaskError;
use firelight_vision::ImageTextModel;

use super::image::pixels;
use super::text::TextArguments;
use super::{Arrays, Asked, Found};

/// Both towers, and how well each image and each text fit. What the layers did is named after the towers, as in the output of
/// `transformers`: `vision_model_output.attentions.0`.
pub(super) fn forward(model: &ImageTextModel, asked: Asked<'_>) -> Result<Arrays, TaskError> {
    let mut found = Found::default();
    let mut traces = [Trace::default(), Trace::default()];
    let [image_trace, text_trace] = &mut traces;
    // A trace keeps the weights of all layers.
    let wants_trace = asked.options.hidden_states || asked.options.attentions;
    let traced = |trace| if wants_trace { Pass::default().with_trace(trace) } else { Pass::default() };
    let images = pixels(asked.inputs, &model.vit, asked.device)?;
    let images = model.of_images(model.vit.hidden(images, &mut traced(image_trace)));
    let text = TextArguments::new(asked.inputs, model.text.vocab_size(), 0, asked.device)?;
    text.fit(&model.text.transformer, model.text.max_seq_len())?;
    let hidden = model.text.hidden(text.tokens(), text.sequence().padding, &mut traced(text_trace));
    let texts = model.of_texts(text.tokens(), hidden);
    let logits = model.logits(images.clone(), texts.clone());
    found.put("logits_per_text", logits.clone().transpose())?;
    found.put("logits_per_image", logits)?;
    found.put("image_embeds", images)?;
    found.put("text_embeds", texts)?;
    for (tower, trace) in ["vision", "text"].into_iter().zip(&traces) {
        let names = ["hidden_states", "attentions"].map(|part| format!("{tower}_model_output.{part}"));
        found.trace([&names[0], &names[1]], trace, None, asked.options)?;
    }
    Ok(found.arrays)
}
