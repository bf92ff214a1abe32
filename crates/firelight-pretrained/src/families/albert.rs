//! ALBERT: one layer in every turn, and embeddings of less width than the stack.
//!
//! Source: Lan et al. 2020, §3.1 (<https://arxiv.org/abs/1909.11942>), and `modeling_albert.py` of `transformers`.

use firelight_classification::{PoolerConfig, TextEncoderConfig};
use firelight_core::{AttentionPattern, EmbeddingProjectionConfig, ProjectionPlacement};
use firelight_storage::InputError;
use serde_json::json;

use super::encoder::{self, Heads, bert, embedding_rows, head_activation, masked_rows};
use crate::export::{encoder_keys, extended};
use crate::family::{Class, ConfigKeys, Family};
use crate::{Description, Keys, Structure, Table, WeightMapping};

pub(crate) const FAMILY: Family = Family { name: "albert", class: Class::Begins("Albert"), describe, keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    keys.only("num_hidden_groups", &json!(1))?;
    let biases = ["predictions.bias", "predictions.decoder.bias"];
    let masked = masked_rows("predictions.dense", "predictions.LayerNorm", &biases, "predictions.decoder");
    let sequence = vec![
        WeightMapping::linear("albert.pooler", "head.pooler.dense"),
        WeightMapping::linear("classifier", "head.output"),
    ];
    let heads = Heads {
        table: Table { rows: rows(), prefix: "albert.", ignored: IGNORED.to_vec() },
        pooler: keys.architecture().ends_with("Model").then_some("albert.pooler"),
        masked: (head_activation(keys, "hidden_act"), masked),
        sequence: (PoolerConfig::bert(), sequence),
        outputs: encoder::OUTPUTS,
        transform: None,
        dropout: keys.or("classifier_dropout_prob", 0.1)?,
    };
    encoder::describe(keys, encoder(keys)?, heads)
}

fn encoder(keys: &Keys<'_>) -> Result<TextEncoderConfig, InputError> {
    let d_embedding = keys.or("embedding_size", 128)?;
    let inner = keys.or("inner_group_num", 1_usize)?.min(64);
    let projection = EmbeddingProjectionConfig { d_embedding, bias: true, placement: ProjectionPlacement::AfterNorm };
    Ok(bert(keys)?.with_stack(|mut stack| {
        stack.n_layers = stack.n_layers.saturating_mul(inner.max(1));
        let stack = stack.with_patterns(vec![AttentionPattern::Full; inner.max(1)]).with_share_layers(true);
        stack.with_embedding_projection(Some(projection))
    }))
}

/// What only this family says: its layers are counted by turns.
fn keys(structure: &Structure) -> Option<ConfigKeys> {
    let (shared, stack) = (encoder_keys(structure)?, structure.stacks()[0]);
    let inner = if stack.share_layers { stack.layers.len().max(1) } else { 1 };
    let own = json!({
        "num_hidden_layers": stack.n_layers / inner,
        "inner_group_num": inner,
        "num_hidden_groups": 1,
    });
    Some(extended(shared, own))
}

fn rows() -> Vec<WeightMapping> {
    let theirs = |name: &str| format!("albert.encoder.albert_layer_groups.0.albert_layers.{{}}.{name}");
    let ours = |name: &str| format!("encoder.transformer.blocks.{{}}.{name}");
    let projection = |name: &str| {
        WeightMapping::linear(theirs(&format!("attention.{name}")), ours(&format!("attention.projection.{name}")))
    };
    let layer = vec![
        WeightMapping::linear("albert.encoder.embedding_hidden_mapping_in", "encoder.transformer.embedding_projection"),
        projection("query"),
        projection("key"),
        projection("value"),
        WeightMapping::linear(theirs("attention.dense"), ours("attention.output")),
        WeightMapping::norm(theirs("attention.LayerNorm"), ours("attention_norm")),
        WeightMapping::linear(theirs("ffn"), ours("feed_forward.up")),
        WeightMapping::linear(theirs("ffn_output"), ours("feed_forward.down")),
        WeightMapping::norm(theirs("full_layer_layer_norm"), ours("feed_forward_norm")),
    ];
    [embedding_rows("albert"), layer].concat()
}

const IGNORED: &[&str] = &["albert.embeddings.position_ids", "albert.pooler.*", "predictions.*", "sop_classifier.*"];
