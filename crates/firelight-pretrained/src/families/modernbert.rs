//! ModernBERT: norms before the parts but the first, rotations, gated units, and windows on both sides in two layers of three.
//!
//! Source: Warner et al. 2024, §2.1 (<https://arxiv.org/abs/2412.13663>), and `modeling_modernbert.py` of `transformers`.

use firelight_classification::{HeadTransformConfig, PoolerConfig, PoolingConfig, TextEncoderConfig};
use firelight_core::{
    AttentionPattern, LayerConfig, NormConfig, PositionConfig, ProjectionKind, RotaryConfig, TransformerConfig,
};
use firelight_storage::InputError;
use serde_json::{Value, json};

use super::encoder::{self, Heads, head_activation, masked_rows};
use super::layer_types::{Kind, kinds};
use super::{activation, rope};
use crate::export::{encoder_keys, extended, names};
use crate::family::{Class, ConfigKeys, Family};
use crate::{Description, Keys, Step, Structure, Table, WeightMapping};

pub(crate) const FAMILY: Family = Family { name: "modernbert", class: Class::Begins("ModernBert"), describe, keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    let rows = vec![
        WeightMapping::linear("head.dense", "head.transform.dense"),
        WeightMapping::norm("head.norm", "head.transform.norm"),
    ];
    let bias = keys.or("classifier_bias", false)?;
    let transform =
        HeadTransformConfig { activation: head_activation(keys, "classifier_activation")?, bias, norm: norm(keys)? };
    let masked = masked_rows("head.dense", "head.norm", &["decoder.bias"], "decoder");
    let heads = Heads {
        table: Table { rows: self::rows(), prefix: "model.", ignored: vec!["decoder.weight"] },
        pooler: None,
        masked: (Ok(transform.activation), masked),
        sequence: (PoolerConfig::plain(pooling(keys)?), vec![WeightMapping::linear("classifier", "head.output")]),
        outputs: ["classifier"; 2],
        transform: Some((transform, rows)),
        dropout: keys.or("classifier_dropout", 0.0)?,
    };
    let mut found = encoder::describe(keys, encoder(keys)?, heads)?;
    if let Structure::Masked(model) = &mut found.structure {
        model.head.bias = bias;
    }
    Ok(found)
}

fn norm(keys: &Keys<'_>) -> Result<NormConfig, InputError> {
    Ok(NormConfig::Layer { epsilon: keys.or("norm_eps", 1e-5)?, bias: keys.or("norm_bias", false)? })
}

fn pooling(keys: &Keys<'_>) -> Result<PoolingConfig, InputError> {
    match keys.get::<String>("classifier_pooling")?.as_deref() {
        Some("cls") | None => Ok(PoolingConfig::Class),
        Some("mean") => Ok(PoolingConfig::Mean),
        Some(_) => Err(keys.unfit("classifier_pooling", "cls or mean")),
    }
}

fn encoder(keys: &Keys<'_>) -> Result<TextEncoderConfig, InputError> {
    let (d_model, n_heads): (usize, usize) = (keys.or("hidden_size", 768)?, keys.or("num_attention_heads", 12)?);
    let encoder = TextEncoderConfig::new(keys.need("vocab_size")?, d_model, n_heads, keys.layers("num_hidden_layers")?);
    let stack = encoder
        .transformer
        .clone()
        .with_norm(norm(keys)?)
        .with_embedding_norm(true)
        .with_projection(ProjectionKind::Fused);
    let stack = stack.with_bias(keys.or("mlp_bias", false)?).with_attention_bias(keys.or("attention_bias", false)?);
    let stack = stack
        .with_d_ff(keys.or("intermediate_size", 1152)?)
        .with_max_seq_len(keys.or("max_position_embeddings", 8192)?);
    let stack = stack.with_activation(activation::gated(keys, "hidden_activation", "gelu")?);
    let stack = stack
        .with_attention_dropout(keys.or("attention_dropout", 0.0)?)
        .with_embedding_dropout(keys.or("embedding_dropout", 0.0)?);
    let stack = layers(keys, stack, d_model / n_heads.max(1))?;
    Ok(encoder.with_stack(|_| stack))
}

fn layers(keys: &Keys<'_>, stack: TransformerConfig, d_head: usize) -> Result<TransformerConfig, InputError> {
    let every: usize = keys.or("global_attn_every_n_layers", 3)?;
    let kinds = kinds(keys, |layer| every > 0 && !layer.is_multiple_of(every))?;
    let rotary = |layer_type, older, usual| -> Result<PositionConfig, InputError> {
        let found = match keys.section("rope_parameters") {
            Some(_) => rope::rotary(keys, Some(layer_type), d_head)?,
            None => RotaryConfig::default().with_theta(keys.or(older, usual)?),
        };
        Ok(PositionConfig::Rotary(found))
    };
    let far = rotary("full_attention", "global_rope_theta", 160_000.0)?;
    let near = rotary("sliding_attention", "local_rope_theta", 10_000.0)?;
    let side = keys.or("local_attention", 128_usize)? / 2;
    let base = stack.first().clone();
    let layer = |(index, kind): (usize, &Kind)| {
        let mut layer = base.clone();
        if index == 0 {
            layer.block.attention_norm = Some(NormConfig::None);
        }
        let near = |layer: LayerConfig| {
            layer.with_pattern(AttentionPattern::SlidingWindow { left: side, right: side }).with_position(near.clone())
        };
        if *kind == Kind::Window { near(layer) } else { layer }
    };
    let layers = kinds.iter().enumerate().map(layer).collect();
    Ok(stack.with_position(far).with_layers(layers))
}

/// What only this family says.
fn keys(structure: &Structure) -> Option<ConfigKeys> {
    let (shared, stack) = (encoder_keys(structure)?, structure.stacks()[0]);
    let block = &stack.first().block;
    let own = json!({
        "hidden_activation": names::activation(block.feed_forward.activation),
        "norm_eps": names::epsilon(stack.norm),
        "norm_bias": matches!(stack.norm, NormConfig::Layer { bias: true, .. }),
        "attention_bias": block.attention.bias,
        "mlp_bias": block.feed_forward.bias,
        "embedding_dropout": stack.embedding_dropout,
    });
    Some(extended(extended(extended(shared, own), window_keys(stack)), head_keys(structure)))
}

/// Windows, and the rotations within and without them.
fn window_keys(stack: &TransformerConfig) -> Value {
    let side = stack.layers.iter().find_map(|layer| match layer.pattern {
        AttentionPattern::SlidingWindow { right, .. } => Some(right),
        _ => None,
    });
    let (PositionConfig::Rotary(far), Some(side)) = (&stack.position, side) else { return Value::Null };
    let near = match stack.layers.iter().find_map(|layer| layer.position.as_ref()) {
        Some(PositionConfig::Rotary(near)) => near,
        _ => far,
    };
    let kind = |layer: &LayerConfig| {
        if layer.pattern == AttentionPattern::Full { "full_attention" } else { "sliding_attention" }
    };
    let kinds: Vec<&str> = stack.layers.iter().cycle().take(stack.n_layers).map(kind).collect();
    let rotation = |theta: f64| json!({"rope_type": "default", "rope_theta": theta});
    json!({
        "layer_types": kinds,
        "local_attention": 2 * side,
        "rope_parameters": {"full_attention": rotation(far.theta), "sliding_attention": rotation(near.theta)},
    })
}

fn head_keys(structure: &Structure) -> Value {
    let bias = match structure {
        Structure::Masked(model) => Some(model.head.bias),
        Structure::Sequence(model) => model.head.transform.map(|transform| transform.bias),
        Structure::Token(model) => model.head.transform.map(|transform| transform.bias),
        Structure::Span(model) => model.head.transform.map(|transform| transform.bias),
        _ => None,
    };
    let mut keys = json!({"classifier_activation": "gelu"});
    if let Some(bias) = bias {
        keys["classifier_bias"] = json!(bias);
    }
    if let Structure::Sequence(model) = structure {
        let is_mean = model.head.pooler.pooling == PoolingConfig::Mean;
        keys["classifier_pooling"] = json!(if is_mean { "mean" } else { "cls" });
    }
    keys
}

fn rows() -> Vec<WeightMapping> {
    let theirs = |name: &str| format!("model.layers.{{}}.{name}");
    let ours = |name: &str| format!("encoder.transformer.blocks.{{}}.{name}");
    let half = |name: &str, index| {
        WeightMapping::linear(theirs("mlp.Wi"), ours(&format!("feed_forward.{name}"))).step(Step::Part {
            axis: 0,
            index,
            of: 2,
        })
    };
    vec![
        WeightMapping::table("model.embeddings.tok_embeddings", "encoder.embedding"),
        WeightMapping::norm("model.embeddings.norm", "encoder.transformer.embedding_norm"),
        WeightMapping::norm(theirs("attn_norm"), ours("attention_norm")),
        WeightMapping::linear(theirs("attn.Wqkv"), ours("attention.projection.qkv")),
        WeightMapping::linear(theirs("attn.Wo"), ours("attention.output")),
        WeightMapping::norm(theirs("mlp_norm"), ours("feed_forward_norm")),
        half("gate", 0),
        half("up", 1),
        WeightMapping::linear(theirs("mlp.Wo"), ours("feed_forward.down")),
        WeightMapping::norm("model.final_norm", "encoder.transformer.norm"),
    ]
}
