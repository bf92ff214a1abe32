//! What a vision transformer is called in `config.json`, by the names that several families have. What only one has is in its file.

use firelight_core::VisionTransformerConfig;
use firelight_data::{Resample, ResizeTo};
use serde_json::{Value, json};

use super::{extended, names};
use crate::Structure;
use crate::family::ConfigKeys;

/// The keys that vision transformers share; none where the structure is none.
pub(crate) fn image_keys(structure: &Structure) -> Option<ConfigKeys> {
    let (vit, head) = match structure {
        Structure::Image(model) => (&model.vit, names::labels(&model.classes)),
        Structure::ImageEncoder(model) => (&model.vit, json!({})),
        _ => return None,
    };
    let parts = [names::stack(&vit.transformer), patches(vit), own(vit), head];
    Some(parts.into_iter().fold(ConfigKeys::new(), extended))
}

/// Size and channels of an image and of its patches.
pub(crate) fn patches(vit: &VisionTransformerConfig) -> Value {
    json!({
        "image_size": vit.image_size[0],
        "patch_size": vit.patch_size,
        "num_channels": vit.channels,
    })
}

/// The keys that CLIP does not have.
fn own(vit: &VisionTransformerConfig) -> Value {
    let block = &vit.transformer.first().block;
    json!({
        "qkv_bias": block.attention.qkv_bias.unwrap_or(block.attention.bias),
        "hidden_dropout_prob": block.dropout,
        "attention_probs_dropout_prob": block.attention.dropout,
    })
}

/// `preprocessor_config.json`: how pixels become numbers.
pub(super) fn preprocessor(structure: &Structure) -> Option<Value> {
    let (vit, resizing, normalization) = match structure {
        Structure::Image(model) => (&model.vit, &model.resizing, &model.normalization),
        Structure::ImageEncoder(model) => (&model.vit, &model.resizing, &model.normalization),
        Structure::ImageText(model) => (&model.vit, &model.resizing, &model.normalization),
        _ => return None,
    };
    let sides = |[height, width]: [usize; 2]| json!({"height": height, "width": width});
    let crop = resizing.crop.unwrap_or(vit.image_size);
    let (kind, size) = match resizing.size {
        None => ("ViTImageProcessor", sides(crop)),
        Some(ResizeTo::ShortestEdge(edge)) => ("BitImageProcessor", json!({"shortest_edge": edge})),
        Some(ResizeTo::Sides(size)) => ("DeiTImageProcessor", sides(size)),
        Some(_) => return None,
    };
    let mut keys = json!({
        "image_processor_type": kind,
        "do_center_crop": resizing.size.is_some(), "crop_size": sides(crop),
        "do_resize": true, "size": size, "resample": resample(resizing.resample),
        "do_rescale": true, "rescale_factor": 1.0 / 255.0,
        "do_normalize": true, "image_mean": normalization.mean, "image_std": normalization.std,
    });
    if let Structure::ImageText(_) = structure {
        keys["image_processor_type"] = json!("CLIPImageProcessor");
    }
    Some(keys)
}

/// The number of Pillow's enumeration.
fn resample(resample: Resample) -> u64 {
    match resample {
        Resample::Nearest => 0,
        Resample::Lanczos => 1,
        Resample::Bicubic => 3,
        _ => 2,
    }
}
