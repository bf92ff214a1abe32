//! LLaMA, and what the families that follow it have in common.
//!
//! Source: Touvron et al. 2023, §2.2 (<https://arxiv.org/abs/2302.13971>), and `modeling_llama.py` of `transformers`.

use firelight_core::{NormConfig, PositionConfig, TransformerConfig};
use firelight_language::LanguageModelConfig;
use firelight_storage::InputError;
use serde_json::json;

use super::{activation, rope};
use crate::export::decoder_keys;
use crate::family::{Class, Family};
use crate::{Description, Keys, Structure, Table, WeightMapping};

pub(crate) const FAMILY: Family = Family { name: "llama", class: Class::Begins("Llama"), describe, keys: decoder_keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    let bias = keys.or("attention_bias", false)?;
    let feed_forward_bias = keys.or("mlp_bias", false)?;
    let stack = stack(keys)?.with_bias(feed_forward_bias).with_attention_bias(bias);
    description(keys, stack, rows())
}

/// A language model around a stack, with the rows of its parts.
pub(super) fn description(
    keys: &Keys<'_>,
    stack: TransformerConfig,
    rows: Vec<WeightMapping>,
) -> Result<Description, InputError> {
    Ok(Description { structure: model(keys, stack)?, table: Table { rows, ..table() } })
}

/// A language model around a stack, its head untied where the folder does not say.
pub(super) fn model(keys: &Keys<'_>, stack: TransformerConfig) -> Result<Structure, InputError> {
    Ok(Structure::Language(language(keys, stack, false)?))
}

/// A language model around a stack; `tied` says whether its head repeats the embedding where the folder does not say.
pub(super) fn language(
    keys: &Keys<'_>,
    stack: TransformerConfig,
    tied: bool,
) -> Result<LanguageModelConfig, InputError> {
    let config = LanguageModelConfig::new(keys.need("vocab_size")?, 1, 1, 1);
    Ok(config.with_tied(keys.or("tie_word_embeddings", tied)?).with_transformer(|_| stack))
}

/// What all these families share: no biases, gated units, root mean square norms before the parts, rotary positions.
pub(super) fn stack(keys: &Keys<'_>) -> Result<TransformerConfig, InputError> {
    keys.only("pretraining_tp", &json!(1))?;
    let (d_model, n_heads) = (keys.need("hidden_size")?, keys.need("num_attention_heads")?);
    let d_head = d_head(keys)?;
    let stack = TransformerConfig::new(d_model, n_heads, keys.layers("num_hidden_layers")?).with_bias(false);
    let stack = stack.with_d_ff(keys.need("intermediate_size")?).with_d_head(d_head);
    let stack = stack.with_n_kv_heads(keys.or("num_key_value_heads", n_heads)?);
    let stack = stack.with_activation(activation::gated(keys, "hidden_act", "silu")?);
    let stack = stack.with_norm(NormConfig::Rms { epsilon: keys.or("rms_norm_eps", 1e-6)? });
    let stack = stack.with_max_seq_len(keys.or("max_position_embeddings", 2048)?);
    let stack = stack.with_attention_dropout(keys.or("attention_dropout", 0.0)?);
    Ok(stack.with_position(PositionConfig::Rotary(rope::rotary(keys, None, d_head)?)))
}

/// The width of a head.
pub(super) fn d_head(keys: &Keys<'_>) -> Result<usize, InputError> {
    let (d_model, n_heads): (usize, usize) = (keys.need("hidden_size")?, keys.need("num_attention_heads")?);
    keys.or("head_dim", d_model / n_heads.max(1))
}

/// Without rows.
pub(super) fn table() -> Table {
    // A head that repeats the embedding, and frequencies that are computed.
    let ignored = vec!["lm_head.weight", "model.layers.{}.self_attn.rotary_emb.inv_freq"];
    Table { rows: Vec::new(), prefix: "model.", ignored }
}

pub(super) fn rows() -> Vec<WeightMapping> {
    vec![
        WeightMapping::table("model.embed_tokens", "embedding"),
        WeightMapping::norm("model.layers.{}.input_layernorm", "transformer.blocks.{}.attention_norm"),
        WeightMapping::linear("model.layers.{}.self_attn.q_proj", "transformer.blocks.{}.attention.projection.query"),
        WeightMapping::linear("model.layers.{}.self_attn.k_proj", "transformer.blocks.{}.attention.projection.key"),
        WeightMapping::linear("model.layers.{}.self_attn.v_proj", "transformer.blocks.{}.attention.projection.value"),
        WeightMapping::linear("model.layers.{}.self_attn.o_proj", "transformer.blocks.{}.attention.output"),
        WeightMapping::norm("model.layers.{}.self_attn.q_norm", "transformer.blocks.{}.attention.query_norm"),
        WeightMapping::norm("model.layers.{}.self_attn.k_norm", "transformer.blocks.{}.attention.key_norm"),
        WeightMapping::norm("model.layers.{}.post_attention_layernorm", "transformer.blocks.{}.feed_forward_norm"),
        WeightMapping::linear("model.layers.{}.mlp.gate_proj", "transformer.blocks.{}.feed_forward.gate"),
        WeightMapping::linear("model.layers.{}.mlp.up_proj", "transformer.blocks.{}.feed_forward.up"),
        WeightMapping::linear("model.layers.{}.mlp.down_proj", "transformer.blocks.{}.feed_forward.down"),
        WeightMapping::norm("model.norm", "transformer.norm"),
        WeightMapping::linear("lm_head", "head"),
    ]
}
