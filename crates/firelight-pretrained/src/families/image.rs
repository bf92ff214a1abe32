//! What the families of vision transformers have in common: patches, a class token, places, a norm before each part and one behind all.

use firelight_core::{Activation, ImagePooling, NormConfig, TransformerConfig, VisionTransformerConfig};
use firelight_data::{Normalization, Resizing};
use firelight_storage::InputError;
use firelight_vision::{ImageEncoderConfig, VisionConfig};

use super::activation;
use crate::{Description, Keys, Step, Structure, Table, WeightMapping};

/// A vision transformer, with a head for the classes of `id2label` where it has some.
pub(super) fn describe(
    keys: &Keys<'_>,
    vit: VisionTransformerConfig,
    pooler: bool,
    table: Table,
) -> Result<Description, InputError> {
    let halves = vec![0.5; vit.channels];
    let usual = (Resizing::default(), Normalization { mean: halves.clone(), std: halves });
    let pixels = keys.pixels(&vit, usual)?;
    let structure = match keys.architecture().contains("ForImageClassification") {
        true => {
            let classes = keys.labels()?;
            let vit = vit.with_n_classes(classes.len());
            Structure::Image(VisionConfig::new(classes, vit))
        }
        false => Structure::ImageEncoder(ImageEncoderConfig { pooler, ..ImageEncoderConfig::new(vit) }),
    };
    let structure = structure.with_pixels(pixels);
    Ok(Description { structure, table })
}

/// The structure, by the names that ViT and its relatives have.
pub(super) fn vit(
    keys: &Keys<'_>,
    pooling: ImagePooling,
    d_ff: usize,
    epsilon: f64,
) -> Result<VisionTransformerConfig, InputError> {
    let (d_model, n_heads) = (keys.or("hidden_size", 768)?, keys.or("num_attention_heads", 12)?);
    let stack = TransformerConfig::encoder(d_model, n_heads, keys.or("num_hidden_layers", 12)?).with_d_ff(d_ff);
    let activation: Activation = activation::plain(keys, "hidden_act", "gelu")?;
    let stack = stack.with_activation(activation).with_norm(NormConfig::Layer { epsilon, bias: true });
    let stack = stack
        .with_qkv_bias(keys.or("qkv_bias", true)?)
        .with_attention_dropout(keys.or("attention_probs_dropout_prob", 0.0)?);
    let dropout = keys.or("hidden_dropout_prob", 0.0)?;
    let stack = stack.with_residual_dropout(dropout).with_embedding_dropout(dropout);
    let size = keys.or("image_size", 224)?;
    let vit = VisionTransformerConfig::new(size, keys.or("patch_size", 16)?, 0, stack);
    Ok(vit.with_channels(keys.channels()?).with_pooling(pooling))
}

/// The rows of tokens, places and patches.
pub(super) fn embedding_rows(prefix: &str, vit: &VisionTransformerConfig) -> Vec<WeightMapping> {
    let theirs = |name: &str| format!("{prefix}.embeddings.{name}");
    let lens = vec![vit.channels, vit.patch_size, vit.patch_size];
    vec![
        WeightMapping::tensor(theirs("cls_token"), "vit.class_token"),
        WeightMapping::tensor(theirs("distillation_token"), "vit.distillation.token"),
        WeightMapping::tensor(theirs("position_embeddings"), "vit.position").step(Step::Alone),
        WeightMapping::linear(theirs("patch_embeddings.projection"), "vit.patches.projection")
            .step(Step::Merged { first: 1, lens }),
    ]
}

/// The rows of queries, keys, values and what joins them.
pub(super) fn attention_rows(prefix: &str) -> Vec<WeightMapping> {
    let theirs = |name: &str| format!("{prefix}.encoder.layer.{{}}.attention.{name}");
    let ours = |name: &str| format!("vit.transformer.blocks.{{}}.attention.{name}");
    let part =
        |name: &str| WeightMapping::linear(theirs(&format!("attention.{name}")), ours(&format!("projection.{name}")));
    vec![part("query"), part("key"), part("value"), WeightMapping::linear(theirs("output.dense"), ours("output"))]
}

/// The rows of ViT, also of DeiT, behind a prefix.
pub(super) fn vit_rows(prefix: &str, vit: &VisionTransformerConfig) -> Vec<WeightMapping> {
    let theirs = |name: &str| format!("{prefix}.encoder.layer.{{}}.{name}");
    let ours = |name: &str| format!("vit.transformer.blocks.{{}}.{name}");
    let rest = vec![
        WeightMapping::norm(theirs("layernorm_before"), ours("attention_norm")),
        WeightMapping::norm(theirs("layernorm_after"), ours("feed_forward_norm")),
        WeightMapping::linear(theirs("intermediate.dense"), ours("feed_forward.up")),
        WeightMapping::linear(theirs("output.dense"), ours("feed_forward.down")),
        WeightMapping::norm(format!("{prefix}.layernorm"), "vit.transformer.norm"),
        WeightMapping::linear(format!("{prefix}.pooler.dense"), "pooler"),
    ];
    [embedding_rows(prefix, vit), attention_rows(prefix), rest].concat()
}
