//! StarCoder 2: LLaMA with biases, LayerNorm, a plain feed-forward network, and a window where the folder has one.
//!
//! Source: Lozhkov et al. 2024, §6.1 (<https://arxiv.org/abs/2402.19173>), and `modeling_starcoder2.py` of `transformers`.

use firelight_core::{NormConfig, TransformerConfig};
use firelight_storage::InputError;
use serde_json::json;

use super::{activation, llama, mistral};
use crate::export::{decoder_keys, extended, names};
use crate::family::{Class, ConfigKeys, Family};
use crate::{Description, Keys, Structure, Table, WeightMapping};

pub(crate) const FAMILY: Family = Family { name: "starcoder2", class: Class::Begins("Starcoder2"), describe, keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    let structure = Structure::Language(llama::language(keys, stack(keys)?, true)?);
    Ok(Description { structure, table: Table { rows: rows(), ..llama::table() } })
}

fn stack(keys: &Keys<'_>) -> Result<TransformerConfig, InputError> {
    let bias = keys.or("use_bias", true)?;
    let stack = mistral::windowed(keys)?.with_bias(bias).with_attention_bias(bias);
    let stack = stack.with_norm(NormConfig::Layer { epsilon: keys.or("norm_epsilon", 1e-5)?, bias: true });
    let stack = stack.with_activation(activation::plain(keys, "hidden_act", "gelu_pytorch_tanh")?);
    let stack = stack.with_n_kv_heads(keys.or("num_key_value_heads", 2)?);
    let stack = stack.with_max_seq_len(keys.or("max_position_embeddings", 4096)?);
    let stack = stack.with_residual_dropout(keys.or("residual_dropout", 0.0)?);
    Ok(stack.with_embedding_dropout(keys.or("embedding_dropout", 0.0)?))
}

/// What only this family says.
fn keys(structure: &Structure) -> Option<ConfigKeys> {
    let (shared, stack) = (decoder_keys(structure)?, structure.stacks()[0]);
    let block = &stack.first().block;
    let own = json!({
        "use_bias": block.feed_forward.bias,
        "norm_epsilon": names::epsilon(block.norm),
        "residual_dropout": block.dropout,
        "embedding_dropout": stack.embedding_dropout,
    });
    Some(extended(shared, own))
}

fn rows() -> Vec<WeightMapping> {
    let own = vec![
        WeightMapping::linear("model.layers.{}.mlp.c_fc", "transformer.blocks.{}.feed_forward.up"),
        WeightMapping::linear("model.layers.{}.mlp.c_proj", "transformer.blocks.{}.feed_forward.down"),
    ];
    [own, llama::rows()].concat()
}
