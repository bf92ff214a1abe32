//! Models of two towers, one of images and one of texts.

use burn::tensor::Tensor;
use firelight_core::{Pass, Trace, VisionTransformer};
use firelight_storage::TaskError;
use firelight_vision::ImageTextModel;

use super::image::pixels;
use super::text::TextArguments;
use super::{Arrays, Asked, Found};

/// Both towers, and how well each image and each text fit. What a tower puts out is named after it, as in the output of
/// `transformers` 5: `vision_model_output.pooler_output`, the vector of an image in the common space before it has length 1.
pub(super) fn forward(model: &ImageTextModel, asked: Asked<'_>) -> Result<Arrays, TaskError> {
    let mut found = Found::default();
    let mut traces = [Trace::default(), Trace::default()];
    let [image_trace, text_trace] = &mut traces;
    // A trace keeps the weights of all layers.
    let wants_trace = asked.options.hidden_states || asked.options.attentions;
    let traced = |trace| if wants_trace { Pass::default().with_trace(trace) } else { Pass::default() };
    let images = pixels(asked.inputs, &model.vit, asked.device)?;
    let [seen, normed] = hidden(&model.vit, images, &mut traced(image_trace));
    let images = model.of_images(normed.clone());
    let text = TextArguments::new(asked.inputs, model.text.vocab_size(), 0, asked.device)?;
    text.fit(&model.text.transformer, model.text.max_seq_len())?;
    let embedded = model.text.embedding.forward(text.tokens());
    let read = model.text.transformer.forward(embedded, &text.sequence(), &mut traced(text_trace));
    let texts = model.of_texts(text.tokens(), read.clone());
    let logits = model.logits(images.clone(), texts.clone());
    found.put("logits_per_text", logits.clone().transpose())?;
    found.put("logits_per_image", logits)?;
    found.put("image_embeds", images)?;
    found.put("text_embeds", texts)?;
    let (image, text) = (model.vit.pooled(normed), model.text.pooled(text.tokens(), read.clone()));
    found.put("vision_model_output.pooler_output", model.image_projection.forward(image))?;
    found.put("text_model_output.pooler_output", model.text_projection.forward(text))?;
    found.put("vision_model_output.last_hidden_state", seen)?;
    found.put("text_model_output.last_hidden_state", read)?;
    for (tower, trace) in ["vision", "text"].into_iter().zip(&traces) {
        let names = ["hidden_states", "attentions"].map(|part| format!("{tower}_model_output.{part}"));
        found.trace([&names[0], &names[1]], trace, None, asked.options)?;
    }
    Ok(found.arrays)
}

/// The vectors of an image before the final norm, which `transformers` puts out, and behind it.
fn hidden(vit: &VisionTransformer, pixels: Tensor<4>, pass: &mut Pass) -> [Tensor<3>; 2] {
    let mut stack = vit.clone();
    let norm = stack.transformer.norm.take();
    let seen = stack.hidden(pixels, pass);
    let normed = norm.map_or_else(|| seen.clone(), |norm| norm.forward(seen.clone()));
    [seen, normed]
}
