//! What a model of images and texts is called in `config.json`.

use firelight_core::TransformerConfig;
use firelight_vision::ImageTextConfig;
use serde_json::{Map, Value, json};

use super::names;

/// The keys of CLIP.
pub(super) fn keys(model: &ImageTextConfig) -> Option<Map<String, Value>> {
    let mut image = stack(&model.vit.transformer);
    let mut text = stack(&model.text);
    image.as_object_mut()?.extend(map(json!({
        "model_type": "clip_vision_model",
        "image_size": model.vit.image_size[0],
        "patch_size": model.vit.patch_size,
        "num_channels": model.vit.channels,
        "projection_dim": model.width,
    })));
    text.as_object_mut()?.extend(map(json!({
        "model_type": "clip_text_model",
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.text.max_seq_len,
        // What `transformers` takes for "the highest".
        "eos_token_id": model.end_token.unwrap_or(2),
        "projection_dim": model.width,
    })));
    Some(map(json!({"projection_dim": model.width, "vision_config": image, "text_config": text})))
}

fn map(keys: Value) -> Map<String, Value> {
    keys.as_object().cloned().unwrap_or_default()
}

fn stack(stack: &TransformerConfig) -> Value {
    let block = &stack.first().block;
    json!({
        "hidden_size": stack.d_model,
        "num_hidden_layers": stack.n_layers,
        "num_attention_heads": block.attention.n_heads,
        "intermediate_size": names::d_ff(stack.first()),
        "hidden_act": names::activation(block.feed_forward.activation),
        "layer_norm_eps": names::epsilon(stack.norm),
        "attention_dropout": block.attention.dropout,
    })
}
