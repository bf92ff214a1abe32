//! GPT-2: learned positions, norms before the parts, one matrix for queries, keys and values. `Conv1D` keeps matrices as ours lie.
//!
//! Source: Radford et al. 2019, §2.3, and `modeling_gpt2.py` of `transformers`.

use firelight_core::{NormConfig, ProjectionKind, ScoreScale, TransformerConfig};
use firelight_language::LanguageModelConfig;
use firelight_storage::InputError;
use serde_json::json;

use super::activation;
use crate::export::{extended, names};
use crate::family::{Class, ConfigKeys, Family};
use crate::{Description, Keys, Step, Structure, Table, WeightMapping};

pub(crate) const FAMILY: Family = Family { name: "gpt2", class: Class::Is("GPT2LMHeadModel"), describe, keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    keys.only("scale_attn_by_inverse_layer_idx", &json!(false))?;
    keys.only("add_cross_attention", &json!(false))?;
    let config = LanguageModelConfig::new(keys.or("vocab_size", 50_257)?, 1, 1, 1);
    let config = config.with_tied(keys.or("tie_word_embeddings", true)?);
    let stack = stack(keys)?;
    Ok(Description { structure: Structure::Language(config.with_transformer(|_| stack)), table: table() })
}

fn stack(keys: &Keys<'_>) -> Result<TransformerConfig, InputError> {
    let d_model: usize = keys.or("n_embd", 768)?;
    let stack = TransformerConfig::new(d_model, keys.or("n_head", 12)?, keys.or("n_layer", 12)?);
    let stack = stack.with_d_ff(keys.or("n_inner", d_model.saturating_mul(4))?).with_projection(ProjectionKind::Fused);
    let stack = stack.with_max_seq_len(keys.first(&["n_positions", "n_ctx"])?.unwrap_or(1024));
    let stack = stack.with_activation(activation::plain(keys, "activation_function", "gelu_new")?);
    let stack = stack.with_norm(NormConfig::Layer { epsilon: keys.or("layer_norm_epsilon", 1e-5)?, bias: true });
    let scale = if keys.or("scale_attn_weights", true)? { ScoreScale::InverseSqrt } else { ScoreScale::None };
    let stack = stack.with_attention_scale(scale).with_attention_dropout(keys.or("attn_pdrop", 0.1)?);
    Ok(stack.with_residual_dropout(keys.or("resid_pdrop", 0.1)?).with_embedding_dropout(keys.or("embd_pdrop", 0.1)?))
}

/// It has names of its own for everything.
fn keys(structure: &Structure) -> Option<ConfigKeys> {
    let Structure::Language(model) = structure else { return None };
    let stack = &model.transformer;
    let block = &stack.first().block;
    let keys = json!({
        "vocab_size": model.vocab_size,
        "tie_word_embeddings": model.tied,
        "n_embd": stack.d_model,
        "n_layer": stack.n_layers,
        "n_head": block.attention.n_heads,
        "n_inner": names::d_ff(stack.first()),
        "n_positions": stack.max_seq_len,
        "activation_function": names::activation(block.feed_forward.activation),
        "layer_norm_epsilon": names::epsilon(stack.norm),
        "scale_attn_weights": block.attention.scale != ScoreScale::None,
        "attn_pdrop": block.attention.dropout,
        "resid_pdrop": block.dropout,
        "embd_pdrop": stack.embedding_dropout,
    });
    Some(extended(ConfigKeys::new(), keys))
}

fn table() -> Table {
    // Models that were trained here have three matrices.
    let part = |name: &str, index| {
        let ours = format!("transformer.blocks.{{}}.attention.projection.{name}");
        WeightMapping::conv1d("transformer.h.{}.attn.c_attn", ours).step(Step::Last { index, of: 3 })
    };
    let rows = vec![
        part("query", 0),
        part("key", 1),
        part("value", 2),
        WeightMapping::table("transformer.wte", "embedding"),
        WeightMapping::table("transformer.wpe", "transformer.position"),
        WeightMapping::norm("transformer.h.{}.ln_1", "transformer.blocks.{}.attention_norm"),
        WeightMapping::conv1d("transformer.h.{}.attn.c_attn", "transformer.blocks.{}.attention.projection.qkv"),
        WeightMapping::conv1d("transformer.h.{}.attn.c_proj", "transformer.blocks.{}.attention.output"),
        WeightMapping::norm("transformer.h.{}.ln_2", "transformer.blocks.{}.feed_forward_norm"),
        WeightMapping::conv1d("transformer.h.{}.mlp.c_fc", "transformer.blocks.{}.feed_forward.up"),
        WeightMapping::conv1d("transformer.h.{}.mlp.c_proj", "transformer.blocks.{}.feed_forward.down"),
        WeightMapping::norm("transformer.ln_f", "transformer.norm"),
        WeightMapping::linear("lm_head", "head"),
    ];
    // Masks that are computed, and a head that repeats the embedding.
    let ignored = vec!["transformer.h.{}.attn.bias", "transformer.h.{}.attn.masked_bias", "lm_head.weight"];
    Table { rows, prefix: "transformer.", ignored }
}
