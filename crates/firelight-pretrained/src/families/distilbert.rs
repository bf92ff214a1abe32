//! DistilBERT: BERT without segments and pooler, by other names.
//!
//! Source: Sanh et al. 2019, §3 (<https://arxiv.org/abs/1910.01108>), and `modeling_distilbert.py` of `transformers`.

use firelight_classification::{PoolerConfig, TextEncoderConfig};
use firelight_core::NormConfig;
use firelight_storage::InputError;
use serde_json::json;

use super::activation;
use super::encoder::{self, Heads, embedding_rows, head_activation, masked_rows, sequence_rows};
use crate::export::{encoder_keys, extended, names};
use crate::family::{Class, ConfigKeys, Family};
use crate::{Description, Keys, Structure, Table, WeightMapping};

pub(crate) const FAMILY: Family = Family { name: "distilbert", class: Class::Begins("DistilBert"), describe, keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    let masked = masked_rows("vocab_transform", "vocab_layer_norm", &["vocab_projector.bias"], "vocab_projector");
    let heads = Heads {
        table: Table { rows: rows(), prefix: "distilbert.", ignored: IGNORED.to_vec() },
        pooler: None,
        masked: (head_activation(keys, "activation"), masked),
        sequence: (PoolerConfig::distilbert(), sequence_rows("pre_classifier", "classifier")),
        outputs: encoder::OUTPUTS,
        transform: None,
        dropout: keys.or("seq_classif_dropout", 0.2)?,
    };
    encoder::describe(keys, encoder(keys)?, heads)
}

fn encoder(keys: &Keys<'_>) -> Result<TextEncoderConfig, InputError> {
    let (d_model, n_heads, n_layers) = (keys.or("dim", 768_usize)?, keys.or("n_heads", 12)?, keys.or("n_layers", 6)?);
    let encoder = TextEncoderConfig::bert(keys.need("vocab_size")?, d_model, n_heads, n_layers).with_n_segments(0);
    let activation = activation::plain(keys, "activation", "gelu")?;
    let (d_ff, longest) = (keys.or("hidden_dim", d_model.saturating_mul(4))?, keys.or("max_position_embeddings", 512)?);
    let (dropout, attention_dropout) = (keys.or("dropout", 0.1)?, keys.or("attention_dropout", 0.1)?);
    Ok(encoder.with_stack(|stack| {
        let stack = stack.with_d_ff(d_ff).with_activation(activation).with_max_seq_len(longest);
        let stack = stack.with_norm(NormConfig::Layer { epsilon: 1e-12, bias: true });
        stack.with_dropout(dropout).with_attention_dropout(attention_dropout)
    }))
}

/// What only this family says: other names of the same.
fn keys(structure: &Structure) -> Option<ConfigKeys> {
    let (shared, stack) = (encoder_keys(structure)?, structure.stacks()[0]);
    let block = &stack.first().block;
    let own = json!({
        "dim": stack.d_model,
        "n_layers": stack.n_layers,
        "n_heads": block.attention.n_heads,
        "hidden_dim": names::d_ff(stack.first()),
        "activation": names::activation(block.feed_forward.activation),
        "dropout": block.dropout,
    });
    Some(extended(shared, own))
}

fn rows() -> Vec<WeightMapping> {
    let theirs = |name: &str| format!("distilbert.transformer.layer.{{}}.{name}");
    let ours = |name: &str| format!("encoder.transformer.blocks.{{}}.{name}");
    let layer = vec![
        WeightMapping::linear(theirs("attention.q_lin"), ours("attention.projection.query")),
        WeightMapping::linear(theirs("attention.k_lin"), ours("attention.projection.key")),
        WeightMapping::linear(theirs("attention.v_lin"), ours("attention.projection.value")),
        WeightMapping::linear(theirs("attention.out_lin"), ours("attention.output")),
        WeightMapping::norm(theirs("sa_layer_norm"), ours("attention_norm")),
        WeightMapping::linear(theirs("ffn.lin1"), ours("feed_forward.up")),
        WeightMapping::linear(theirs("ffn.lin2"), ours("feed_forward.down")),
        WeightMapping::norm(theirs("output_layer_norm"), ours("feed_forward_norm")),
    ];
    [embedding_rows("distilbert"), layer].concat()
}

const IGNORED: &[&str] = &["distilbert.embeddings.position_ids", "vocab_projector.weight"];
