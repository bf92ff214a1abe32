//! GPT-NeoX and Pythia: attention and feed-forward network side by side, rotations of a part of each head, queries, keys and values of
//! a head beside each other in the rows of one matrix.
//!
//! Source: Black et al. 2022, §2.1 (<https://arxiv.org/abs/2204.06745>), and `modeling_gpt_neox.py` of `transformers`.

use firelight_core::{NormConfig, NormPlacement, PositionConfig, ProjectionKind, TransformerConfig};
use firelight_storage::InputError;
use serde_json::json;

use super::{activation, llama, rope};
use crate::export::{decoder_keys, extended, names};
use crate::family::{Class, ConfigKeys, Family};
use crate::{Description, Keys, Step, Structure, Table, WeightMapping};

pub(crate) const FAMILY: Family = Family { name: "gpt_neox", class: Class::Begins("GPTNeoX"), describe, keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    let structure = llama::model(keys, stack(keys)?)?;
    Ok(Description { structure, table: table(keys.need("num_attention_heads")?) })
}

fn stack(keys: &Keys<'_>) -> Result<TransformerConfig, InputError> {
    let (d_model, n_heads): (usize, usize) = (keys.need("hidden_size")?, keys.need("num_attention_heads")?);
    let stack = TransformerConfig::new(d_model, n_heads, keys.layers("num_hidden_layers")?);
    let stack = stack.with_d_ff(keys.need("intermediate_size")?).with_projection(ProjectionKind::Fused);
    let stack = stack.with_activation(activation::plain(keys, "hidden_act", "gelu")?);
    let stack = stack.with_norm(NormConfig::Layer { epsilon: keys.or("layer_norm_eps", 1e-5)?, bias: true });
    let parallel = keys.or("use_parallel_residual", true)?;
    let placement = if parallel { NormPlacement::ParallelTwoNorms } else { NormPlacement::Pre };
    let stack = stack.with_norm_placement(placement).with_attention_bias(keys.or("attention_bias", true)?);
    let stack = stack.with_max_seq_len(keys.or("max_position_embeddings", 2048)?);
    let mut rotary = rope::rotary(keys, None, d_model / n_heads.max(1))?;
    if rotary.width.is_none() && keys.get::<f64>("rotary_pct")?.is_none() && keys.section("rope_parameters").is_none() {
        rotary.width = Some(d_model / n_heads.max(1) / 4); // What folders without the key were trained with.
    }
    Ok(stack.with_position(PositionConfig::Rotary(rotary)))
}

/// What only this family says.
fn keys(structure: &Structure) -> Option<ConfigKeys> {
    let (shared, stack) = (decoder_keys(structure)?, structure.stacks()[0]);
    let block = &stack.first().block;
    let own = json!({
        "layer_norm_eps": names::epsilon(block.norm),
        "use_parallel_residual": block.norm_placement == NormPlacement::ParallelTwoNorms,
    });
    Some(extended(shared, own))
}

fn table(n_heads: usize) -> Table {
    let ours = |name: &str| format!("transformer.blocks.{{}}.{name}");
    let heads = Step::Regrouped { lens: vec![n_heads, 3, 0], order: vec![1, 0, 2] };
    let theirs = |name: &str| format!("gpt_neox.layers.{{}}.{name}");
    let rows = vec![
        WeightMapping::table("gpt_neox.embed_in", "embedding"),
        WeightMapping::norm(theirs("input_layernorm"), ours("attention_norm")),
        WeightMapping::norm(theirs("post_attention_layernorm"), ours("feed_forward_norm")),
        WeightMapping::linear(theirs("attention.query_key_value"), ours("attention.projection.qkv")).step(heads),
        WeightMapping::linear(theirs("attention.dense"), ours("attention.output")),
        WeightMapping::linear(theirs("mlp.dense_h_to_4h"), ours("feed_forward.up")),
        WeightMapping::linear(theirs("mlp.dense_4h_to_h"), ours("feed_forward.down")),
        WeightMapping::norm("gpt_neox.final_layer_norm", "transformer.norm"),
        WeightMapping::linear("embed_out", "head"),
    ];
    let ignored = vec![
        "gpt_neox.layers.{}.attention.bias",
        "gpt_neox.layers.{}.attention.masked_bias",
        "gpt_neox.layers.{}.attention.rotary_emb.inv_freq",
        "embed_out.weight",
    ];
    Table { rows, prefix: "gpt_neox.", ignored }
}
