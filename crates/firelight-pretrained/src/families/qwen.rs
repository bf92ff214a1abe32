//! Qwen 2, whose queries, keys and values have biases, and Qwen 3, which normalises every head's query and key instead.
//!
//! Sources: Yang et al. 2024, §2.2 (<https://arxiv.org/abs/2407.10671>); Yang et al. 2025, §2 (<https://arxiv.org/abs/2505.09388>);
//! `modeling_qwen2.py`, `modeling_qwen3.py` and `modeling_qwen3_moe.py` of `transformers`.

use firelight_core::{ExpertsConfig, LayerConfig, NormConfig, TransformerConfig};
use firelight_storage::InputError;
use serde_json::json;

use super::layer_types::{kinds, patterns};
use super::llama;
use crate::export::{decoder_keys, dense_layers, extended};
use crate::family::{Class, ConfigKeys, Family};
use crate::{Description, Keys, Structure, WeightMapping};

pub(crate) const QWEN_2: Family = Family { name: "qwen2", class: Class::Begins("Qwen2"), describe: describe_2, keys };
pub(crate) const QWEN_3: Family = Family { name: "qwen3", class: Class::Begins("Qwen3"), describe: describe_3, keys };
pub(crate) const QWEN_3_MOE: Family =
    Family { name: "qwen3_moe", class: Class::Begins("Qwen3Moe"), describe: describe_3_moe, keys: keys_moe };

fn describe_2(keys: &Keys<'_>) -> Result<Description, InputError> {
    llama::description(keys, windowed(keys)?.with_qkv_bias(true), llama::rows())
}

fn describe_3(keys: &Keys<'_>) -> Result<Description, InputError> {
    llama::description(keys, normed(keys)?, llama::rows())
}

fn describe_3_moe(keys: &Keys<'_>) -> Result<Description, InputError> {
    let stack = normed(keys)?;
    let (n_layers, dense) = (stack.n_layers, keys.or("mlp_only_layers", Vec::<usize>::new())?);
    let step = keys.or("decoder_sparse_step", 1)?;
    let is_sparse = |layer: usize| !dense.contains(&layer) && step > 0 && (layer + 1).is_multiple_of(step);
    let (experts, d_ff) = (experts(keys)?, keys.need("moe_intermediate_size")?);
    let first = stack.layers.clone();
    let layer = |index: usize| {
        let layer = first[index % first.len()].clone();
        if is_sparse(index) { with_experts(layer, experts, d_ff) } else { layer }
    };
    let stack = stack.with_layers((0..n_layers).map(layer).collect());
    llama::description(keys, stack, [expert_rows(), llama::rows()].concat())
}

/// Experts in the place of a layer's feed-forward network.
pub(super) fn with_experts(mut layer: LayerConfig, experts: ExpertsConfig, d_ff: usize) -> LayerConfig {
    layer.block.experts = Some(experts);
    layer.block.feed_forward.d_ff = Some(d_ff);
    layer
}

fn windowed(keys: &Keys<'_>) -> Result<TransformerConfig, InputError> {
    let first = keys.or("max_window_layers", 28)?;
    let slides = keys.or("use_sliding_window", false)?;
    let kinds = kinds(keys, |layer| slides && layer >= first)?;
    Ok(llama::stack(keys)?.with_patterns(patterns(keys, &kinds)?))
}

fn normed(keys: &Keys<'_>) -> Result<TransformerConfig, InputError> {
    let norm = NormConfig::Rms { epsilon: keys.or("rms_norm_eps", 1e-6)? };
    Ok(windowed(keys)?.with_query_key_norm(Some(norm)).with_attention_bias(keys.or("attention_bias", false)?))
}

fn experts(keys: &Keys<'_>) -> Result<ExpertsConfig, InputError> {
    let mut experts = ExpertsConfig::new(keys.first(&["num_experts", "num_local_experts"])?.unwrap_or(128));
    experts.top_k = keys.need("num_experts_per_tok")?;
    experts.renormalise = Some(keys.or("norm_topk_prob", false)?);
    Ok(experts)
}

/// What only these families say: windows, where there are any, begin with the first layer.
fn keys(structure: &Structure) -> Option<ConfigKeys> {
    Some(extended(decoder_keys(structure)?, json!({"max_window_layers": 0})))
}

fn keys_moe(structure: &Structure) -> Option<ConfigKeys> {
    let (keys, stack) = (keys(structure)?, structure.stacks()[0]);
    Some(extended(keys, json!({"mlp_only_layers": dense_layers(stack), "decoder_sparse_step": 1})))
}

/// Experts by the names that Qwen and DeepSeek have.
pub(super) fn expert_rows() -> Vec<WeightMapping> {
    let ours = "transformer.blocks.{}.feed_forward";
    let part = |name: &str| {
        WeightMapping::linear(
            format!("model.layers.{{}}.mlp.experts.{{}}.{name}_proj"),
            format!("{ours}.experts.{{}}.{name}"),
        )
    };
    let router = WeightMapping::linear("model.layers.{}.mlp.gate", format!("{ours}.router"));
    vec![router, part("gate"), part("up"), part("down")]
}
