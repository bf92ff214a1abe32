//! Gemma 1 to 3, the models of text: LLaMA with embeddings times the root of their width and norms that keep what they add to 1; then
//! norms on both sides of the parts and soft caps; then norms of queries and keys and two kinds of rotations.
//!
//! Sources: Gemma Team 2024, §2 (<https://arxiv.org/abs/2403.08295>) and (<https://arxiv.org/abs/2408.00118>), 2025, §2
//! (<https://arxiv.org/abs/2503.19786>); `modeling_gemma.py`, `modeling_gemma2.py` and `modeling_gemma3.py` of `transformers`.

use firelight_core::{
    EmbeddingScale, HeadOptions, NormConfig, NormPlacement, PositionConfig, RotaryConfig, ScoreScale, TransformerConfig,
};
use firelight_storage::InputError;
use serde_json::{Value, json};

use super::layer_types::{Kind, kinds, patterns};
use super::{activation, llama, rope};
use crate::export::{decoder_keys, extended, names};
use crate::family::{Class, ConfigKeys, Family};
use crate::{Description, Keys, Structure, Table, WeightMapping};

pub(crate) const GEMMA: Family =
    Family { name: "gemma", class: Class::Begins("Gemma"), describe: describe_1, keys: keys_1 };
pub(crate) const GEMMA_2: Family =
    Family { name: "gemma2", class: Class::Begins("Gemma2"), describe: describe_2, keys: sandwich_keys };
pub(crate) const GEMMA_3: Family =
    Family { name: "gemma3_text", class: Class::Begins("Gemma3"), describe: describe_3, keys: sandwich_keys };

fn describe_1(keys: &Keys<'_>) -> Result<Description, InputError> {
    description(keys, stack(keys)?, llama::rows())
}

fn describe_2(keys: &Keys<'_>) -> Result<Description, InputError> {
    let kinds = kinds(keys, slides(keys, 2)?)?;
    let stack = sandwich(keys)?.with_patterns(patterns(keys, &kinds)?);
    description(keys, stack, sandwich_rows())
}

fn describe_3(keys: &Keys<'_>) -> Result<Description, InputError> {
    keys.only("use_bidirectional_attention", &json!(false))?;
    let kinds = kinds(keys, slides(keys, 6)?)?;
    let norm = NormConfig::Rms { epsilon: keys.or("rms_norm_eps", 1e-6)? };
    let [far, near] = rotations(keys)?;
    let stack = sandwich(keys)?.with_query_key_norm(Some(norm)).with_position(far);
    let base = stack.first().clone();
    let layer = |kind: &Kind| {
        let layer = base.clone().with_pattern(kind.pattern(keys)?);
        Ok(if *kind == Kind::Window { layer.with_position(near.clone()) } else { layer })
    };
    let layers = kinds.iter().map(layer).collect::<Result<_, InputError>>()?;
    description(keys, stack.with_layers(layers), sandwich_rows())
}

/// Whether a layer looks at a window: all do but the last of every `usual`, or as many as the folder says; of every 0 all do.
fn slides(keys: &Keys<'_>, usual: usize) -> Result<impl Fn(usize) -> bool, InputError> {
    let interval = keys.first(&["sliding_window_pattern", "_sliding_window_pattern"])?.unwrap_or(usual);
    Ok(move |layer: usize| interval == 0 || !(layer + 1).is_multiple_of(interval))
}

fn description(keys: &Keys<'_>, stack: TransformerConfig, rows: Vec<WeightMapping>) -> Result<Description, InputError> {
    let head = HeadOptions::default().with_soft_cap(keys.get("final_logit_softcapping")?);
    let model = llama::language(keys, stack, true)?.with_head(head);
    let structure = Structure::Language(model.with_scale_embedding(EmbeddingScale::SqrtWidth));
    let rows = rows.into_iter().map(|row| if row.is_norm() { row.plus(1.0) } else { row }).collect();
    Ok(Description { structure, table: Table { rows, ..llama::table() } })
}

fn stack(keys: &Keys<'_>) -> Result<TransformerConfig, InputError> {
    // Folders from before the key `hidden_activation` name another function than the models were trained with.
    let activation = activation::gated(keys, "hidden_activation", "gelu_pytorch_tanh")?;
    let stack = llama::stack(keys)?.with_activation(activation);
    Ok(stack.with_attention_bias(keys.or("attention_bias", false)?))
}

fn sandwich(keys: &Keys<'_>) -> Result<TransformerConfig, InputError> {
    let scale = keys.or("query_pre_attn_scalar", 256.0_f64)?.powf(-0.5);
    let stack = stack(keys)?.with_norm_placement(NormPlacement::Sandwich);
    let stack = stack.with_attention_scale(ScoreScale::Constant(scale));
    Ok(stack.with_attention_soft_cap(keys.get("attn_logit_softcapping")?))
}

/// The rotations of layers that see the whole text, and of those that see a window.
fn rotations(keys: &Keys<'_>) -> Result<[PositionConfig; 2], InputError> {
    let d_head = llama::d_head(keys)?;
    let far = rope::rotary(keys, Some("full_attention"), d_head)?;
    let near = match keys.get("rope_local_base_freq")? {
        Some(theta) => RotaryConfig::default().with_theta(theta),
        None => rope::rotary(keys, Some("sliding_attention"), d_head)?,
    };
    Ok([far, near].map(PositionConfig::Rotary))
}

/// What only these families say.
fn keys_1(structure: &Structure) -> Option<ConfigKeys> {
    let Structure::Language(model) = structure else { return None };
    let activation = model.transformer.first().block.feed_forward.activation;
    let own = json!({
        "hidden_activation": names::activation(activation),
        "final_logit_softcapping": model.head.soft_cap,
    });
    Some(extended(decoder_keys(structure)?, own))
}

/// What Gemma 2 and 3 say beside it.
fn sandwich_keys(structure: &Structure) -> Option<ConfigKeys> {
    let (keys, stack) = (keys_1(structure)?, structure.stacks()[0]);
    let attention = &stack.first().block.attention;
    let mut keys = extended(keys, json!({"attn_logit_softcapping": attention.soft_cap}));
    if let ScoreScale::Constant(scale) = attention.scale {
        keys.insert("query_pre_attn_scalar".into(), scalar(scale));
    }
    Some(keys)
}

/// The number whose inverse root is the factor of the scores; `transformers` takes a whole one alone.
fn scalar(scale: f64) -> Value {
    let scalar = (1.0 / (scale * scale) * 1e6).round() / 1e6;
    if scalar.fract() == 0.0 { json!(scalar as u64) } else { json!(scalar) }
}

fn sandwich_rows() -> Vec<WeightMapping> {
    let norm = |theirs: &str, ours: &str| {
        WeightMapping::norm(
            format!("model.layers.{{}}.{theirs}_layernorm"),
            format!("transformer.blocks.{{}}.{ours}_norm"),
        )
    };
    let rows = vec![
        norm("post_attention", "attention_output"),
        norm("pre_feedforward", "feed_forward"),
        norm("post_feedforward", "feed_forward_output"),
    ];
    [rows, llama::rows()].concat()
}
