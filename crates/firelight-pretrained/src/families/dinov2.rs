//! DINOv2: ViT with trained factors of what each part adds.
//!
//! Source: Oquab et al. 2023, §4 (<https://arxiv.org/abs/2304.07193>), and `modeling_dinov2.py` of `transformers`.

use firelight_core::ImagePooling;
use firelight_storage::InputError;
use serde_json::json;

use super::image::{self, attention_rows, embedding_rows};
use crate::export::{extended, image_keys, names};
use crate::family::{Class, ConfigKeys, Family};
use crate::{Description, Keys, Structure, Table, WeightMapping};

pub(crate) const FAMILY: Family = Family { name: "dinov2", class: Class::Begins("Dinov2"), describe, keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    keys.only("use_swiglu_ffn", &json!(false))?;
    let has_head = keys.architecture().contains("For");
    let pooling = if has_head { ImagePooling::ClassAndMean } else { ImagePooling::ClassToken };
    let d_model: usize = keys.or("hidden_size", 768)?;
    let d_ff = d_model.saturating_mul(keys.or("mlp_ratio", 4)?);
    let mut vit = image::vit(keys, pooling, d_ff, keys.or("layer_norm_eps", 1e-6)?)?;
    vit.transformer = vit.transformer.with_layer_scale(keys.or("layerscale_value", 1.0)?);
    let theirs = |name: &str| format!("dinov2.encoder.layer.{{}}.{name}");
    let ours = |name: &str| format!("vit.transformer.blocks.{{}}.{name}");
    let rest = vec![
        WeightMapping::norm(theirs("norm1"), ours("attention_norm")),
        WeightMapping::tensor(theirs("layer_scale1.lambda1"), ours("attention_scale.gamma")),
        WeightMapping::norm(theirs("norm2"), ours("feed_forward_norm")),
        WeightMapping::linear(theirs("mlp.fc1"), ours("feed_forward.up")),
        WeightMapping::linear(theirs("mlp.fc2"), ours("feed_forward.down")),
        WeightMapping::tensor(theirs("layer_scale2.lambda1"), ours("feed_forward_scale.gamma")),
        WeightMapping::norm("dinov2.layernorm", "vit.transformer.norm"),
        WeightMapping::linear("classifier", "vit.head"),
    ];
    let rows = [embedding_rows("dinov2", &vit), attention_rows("dinov2"), rest].concat();
    let ignored = vec!["dinov2.embeddings.mask_token"];
    image::describe(keys, vit, false, Table { rows, prefix: "dinov2.", ignored })
}

/// What only this family says.
fn keys(structure: &Structure) -> Option<ConfigKeys> {
    let (shared, stack) = (image_keys(structure)?, structure.stacks()[0]);
    let first = stack.first();
    let own = json!({
        "mlp_ratio": names::d_ff(first) / stack.d_model.max(1),
        "layerscale_value": first.block.layer_scale,
    });
    Some(extended(shared, own))
}
