//! CLIP: a tower of images and one of texts, projected into one space.
//!
//! Source: Radford et al. 2021, §2.3 and §2.4 (<https://arxiv.org/abs/2103.00020>), and `modeling_clip.py` of `transformers`.

use firelight_core::{NormConfig, TransformerConfig, VisionTransformerConfig};
use firelight_data::{Normalization, Resample, ResizeTo, Resizing};
use firelight_storage::InputError;
use firelight_vision::ImageTextConfig;
use serde_json::json;

use super::activation;
use crate::export::{extended, names, patches};
use crate::family::{Class, ConfigKeys, Family};
use crate::{Description, Keys, Step, Structure, Table, WeightMapping};

/// What `transformers` wrote before it knew the end token: it takes the highest one then.
const UNKNOWN_END: u32 = 2;

pub(crate) const FAMILY: Family = Family { name: "clip", class: Class::Begins("CLIP"), describe, keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    if !keys.architecture().ends_with("Model") {
        return Err(keys.unfit("architectures", "CLIPModel, which has both towers"));
    }
    let (image, text) = (keys.section_or_empty("vision_config"), keys.section_or_empty("text_config"));
    let vit = vit(&image)?;
    let stack = tower(&text, TransformerConfig::new, [512, 8, 2048])?;
    let stack = stack.with_max_seq_len(text.or("max_position_embeddings", 77)?);
    let end = text.or("eos_token_id", 49_407)?;
    let pixels = keys.pixels(&vit, usual(&vit))?;
    let config =
        ImageTextConfig::new(text.or("vocab_size", 49_408)?, vit, stack).with_width(keys.or("projection_dim", 512)?);
    let config = config.with_end_token((end != UNKNOWN_END).then_some(end));
    let table = table(&config.vit);
    Ok(Description { structure: Structure::ImageText(config).with_pixels(pixels), table })
}

/// What CLIP's image processor does: the middle of an image, with `OPENAI_CLIP_MEAN` and `OPENAI_CLIP_STD` where it is in colour.
fn usual(vit: &VisionTransformerConfig) -> (Resizing, Normalization) {
    let shorter = vit.image_size[0].min(vit.image_size[1]);
    let resizing = Resizing { resample: Resample::Bicubic, size: Some(ResizeTo::ShortestEdge(shorter)), crop: None };
    let normalization = match vit.channels {
        3 => Normalization {
            mean: vec![0.481_454_66, 0.457_827_5, 0.408_210_73],
            std: vec![0.268_629_54, 0.261_302_6, 0.275_777_1],
        },
        channels => Normalization { mean: vec![0.5; channels], std: vec![0.5; channels] },
    };
    (resizing, normalization)
}

fn vit(keys: &Keys<'_>) -> Result<VisionTransformerConfig, InputError> {
    let stack = tower(keys, TransformerConfig::encoder, [768, 12, 3072])?.with_embedding_norm(true);
    let vit = VisionTransformerConfig::new(keys.or("image_size", 224)?, keys.or("patch_size", 32)?, 0, stack);
    Ok(vit.with_channels(keys.channels()?).with_patch_bias(false))
}

/// A stack, by the keys that both towers have; width, heads and inner width are those where nobody says otherwise.
fn tower(
    keys: &Keys<'_>,
    form: fn(usize, usize, usize) -> TransformerConfig,
    [width, heads, inner]: [usize; 3],
) -> Result<TransformerConfig, InputError> {
    let (d_model, n_heads) = (keys.or("hidden_size", width)?, keys.or("num_attention_heads", heads)?);
    let stack = form(d_model, n_heads, keys.or("num_hidden_layers", 12)?);
    let stack = stack.with_d_ff(keys.or("intermediate_size", inner)?);
    let stack = stack.with_activation(activation::plain(keys, "hidden_act", "quick_gelu")?);
    let epsilon = keys.or("layer_norm_eps", 1e-5)?;
    let stack = stack.with_norm(NormConfig::Layer { epsilon, bias: true });
    Ok(stack.with_attention_dropout(keys.or("attention_dropout", 0.0)?))
}

/// It has names of its own for everything.
fn keys(structure: &Structure) -> Option<ConfigKeys> {
    let Structure::ImageText(model) = structure else { return None };
    let image = json!({
        "model_type": "clip_vision_model",
        "projection_dim": model.width,
    });
    let text = json!({
        "model_type": "clip_text_model",
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.text.max_seq_len,
        "eos_token_id": model.end_token.unwrap_or(UNKNOWN_END),
        "projection_dim": model.width,
    });
    let towers = json!({
        "projection_dim": model.width,
        "vision_config": extended(extended(tower_keys(&model.vit.transformer), patches(&model.vit)), image),
        "text_config": extended(tower_keys(&model.text), text),
    });
    Some(extended(ConfigKeys::new(), towers))
}

fn tower_keys(stack: &TransformerConfig) -> ConfigKeys {
    let own = json!({"attention_dropout": stack.first().block.attention.dropout});
    extended(extended(ConfigKeys::new(), names::stack(stack)), own)
}

fn table(vit: &VisionTransformerConfig) -> Table {
    let lens = vec![vit.channels, vit.patch_size, vit.patch_size];
    let image = |name: &str| format!("vision_model.{name}");
    let mut rows = vec![
        WeightMapping::tensor(image("embeddings.class_embedding"), "vit.class_token").step(Step::InFront(2)),
        WeightMapping::tensor(image("embeddings.position_embedding.weight"), "vit.position"),
        WeightMapping::linear(image("embeddings.patch_embedding"), "vit.patches.projection")
            .step(Step::Merged { first: 1, lens }),
        // The misspelling is theirs.
        WeightMapping::norm(image("pre_layrnorm"), "vit.transformer.embedding_norm"),
        WeightMapping::norm(image("post_layernorm"), "vit.transformer.norm"),
        WeightMapping::table("text_model.embeddings.token_embedding", "text.embedding"),
        WeightMapping::table("text_model.embeddings.position_embedding", "text.transformer.position"),
        WeightMapping::norm("text_model.final_layer_norm", "text.transformer.norm"),
        WeightMapping::linear("visual_projection", "image_projection"),
        WeightMapping::linear("text_projection", "text_projection"),
        WeightMapping::tensor("logit_scale", "log_scale").step(Step::InFront(1)),
    ];
    rows.extend(layer_rows("vision_model", "vit"));
    rows.extend(layer_rows("text_model", "text"));
    let ignored = vec!["vision_model.embeddings.position_ids", "text_model.embeddings.position_ids"];
    Table { rows, prefix: "", ignored }
}

fn layer_rows(theirs: &str, ours: &str) -> Vec<WeightMapping> {
    let theirs = |name: &str| format!("{theirs}.encoder.layers.{{}}.{name}");
    let ours = |name: &str| format!("{ours}.transformer.blocks.{{}}.{name}");
    let mut rows = vec![
        WeightMapping::norm(theirs("layer_norm1"), ours("attention_norm")),
        WeightMapping::norm(theirs("layer_norm2"), ours("feed_forward_norm")),
        WeightMapping::linear(theirs("mlp.fc1"), ours("feed_forward.up")),
        WeightMapping::linear(theirs("mlp.fc2"), ours("feed_forward.down")),
    ];
    rows.extend(
        [("q", "projection.query"), ("k", "projection.key"), ("v", "projection.value"), ("out", "output")].map(
            |(name, part)| {
                WeightMapping::linear(theirs(&format!("self_attn.{name}_proj")), ours(&format!("attention.{part}")))
            },
        ),
    );
    rows
}
