//! MPNet: BERT with biases of scores by buckets of distances beside its positions, which begin behind the padding's number.
//!
//! Source: Song et al. 2020, §2 (<https://arxiv.org/abs/2004.09297>), and `modeling_mpnet.py` of `transformers`.

use firelight_classification::{HeadActivation, PoolerConfig, TextEncoderConfig};
use firelight_core::PositionConfig;
use firelight_storage::InputError;
use serde_json::json;

use super::encoder::{self, Heads, bert, embedding_rows, sequence_rows};
use super::roberta::{self, PADDING};
use crate::export::extended;
use crate::family::{Class, ConfigKeys, Family};
use crate::{Description, Keys, Structure, Table, WeightMapping};

pub(crate) const FAMILY: Family = Family { name: "mpnet", class: Class::Begins("MPNet"), describe, keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    let heads = Heads {
        table: Table { rows: roberta::rows(PADDING, rows()), prefix: "mpnet.", ignored: IGNORED.to_vec() },
        pooler: keys.architecture().ends_with("Model").then_some("mpnet.pooler.dense"),
        masked: (Ok(HeadActivation::Gelu), roberta::lm_head_rows()),
        sequence: (PoolerConfig::bert(), sequence_rows("classifier.dense", "classifier.out_proj")),
        outputs: encoder::OUTPUTS,
        transform: None,
        dropout: keys.or("hidden_dropout_prob", 0.1)?,
    };
    encoder::describe(keys, encoder(keys)?, heads)
}

fn encoder(keys: &Keys<'_>) -> Result<TextEncoderConfig, InputError> {
    let n_buckets = keys.or("relative_attention_num_buckets", 32)?;
    let encoder = roberta::shortened(keys, PADDING, bert(keys)?)?.with_n_segments(0);
    let buckets = PositionConfig::T5 { n_buckets, max_distance: 128, bidirectional: true };
    Ok(encoder.with_stack(|stack| stack.each_layer(|layer| layer.position = Some(buckets.clone()))))
}

/// What only this family says.
fn keys(structure: &Structure) -> Option<ConfigKeys> {
    let (shared, stack) = (roberta::keys(structure)?, structure.stacks()[0]);
    let n_buckets = stack.layers.iter().find_map(|layer| match layer.position {
        Some(PositionConfig::T5 { n_buckets, .. }) => Some(n_buckets),
        _ => None,
    })?;
    Some(extended(shared, json!({"relative_attention_num_buckets": n_buckets})))
}

fn rows() -> Vec<WeightMapping> {
    let theirs = |name: &str| format!("mpnet.encoder.layer.{{}}.{name}");
    let ours = |name: &str| format!("encoder.transformer.blocks.{{}}.{name}");
    let layer = vec![
        WeightMapping::table("mpnet.encoder.relative_attention_bias", "encoder.transformer.layer_positions.0"),
        WeightMapping::linear(theirs("attention.attn.q"), ours("attention.projection.query")),
        WeightMapping::linear(theirs("attention.attn.k"), ours("attention.projection.key")),
        WeightMapping::linear(theirs("attention.attn.v"), ours("attention.projection.value")),
        WeightMapping::linear(theirs("attention.attn.o"), ours("attention.output")),
        WeightMapping::norm(theirs("attention.LayerNorm"), ours("attention_norm")),
        WeightMapping::linear(theirs("intermediate.dense"), ours("feed_forward.up")),
        WeightMapping::linear(theirs("output.dense"), ours("feed_forward.down")),
        WeightMapping::norm(theirs("output.LayerNorm"), ours("feed_forward_norm")),
    ];
    [embedding_rows("mpnet"), layer].concat()
}

const IGNORED: &[&str] = &["mpnet.embeddings.position_ids", "mpnet.pooler.dense.*", "lm_head.*"];
