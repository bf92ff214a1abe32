//! DeepSeek-V3: keys and values out of a latent, experts that are chosen in groups by sigmoids, beside one that reads every token.
//!
//! Source: DeepSeek-AI 2024, §2.1 (<https://arxiv.org/abs/2412.19437>), and `modeling_deepseek_v3.py` of `transformers`.

use firelight_core::{
    ExpertsConfig, LatentConfig, MixerConfig, PositionConfig, RotaryLayout, RotaryScaling, RouterScores, ScoreScale,
    TransformerConfig,
};
use firelight_storage::InputError;
use serde_json::{Value, json};

use super::{llama, qwen, rope};
use crate::export::{decoder_keys, dense_layers, extended};
use crate::family::{Class, ConfigKeys, Family};
use crate::{Description, Keys, Structure, WeightMapping};

pub(crate) const FAMILY: Family = Family { name: "deepseek_v3", class: Class::Begins("DeepseekV3"), describe, keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    let stack = stack(keys)?;
    let (n_layers, dense, base) = (stack.n_layers, keys.or("first_k_dense_replace", 3)?, stack.first().clone());
    let (experts, d_ff) = (experts(keys)?, keys.need("moe_intermediate_size")?);
    let sparse = qwen::with_experts(base.clone(), experts, d_ff);
    let layer = |index: usize| if index < dense { base.clone() } else { sparse.clone() };
    let stack = stack.with_layers((0..n_layers).map(layer).collect());
    llama::description(
        keys,
        stack,
        [rows(keys.get::<usize>("q_lora_rank")?.is_some()), qwen::expert_rows(), llama::rows()].concat(),
    )
}

fn stack(keys: &Keys<'_>) -> Result<TransformerConfig, InputError> {
    let (d_head, d_rotary): (usize, usize) = (keys.need("qk_nope_head_dim")?, keys.need("qk_rope_head_dim")?);
    let latent = LatentConfig {
        d_query_latent: keys.get("q_lora_rank")?,
        ..LatentConfig::new(keys.need("kv_lora_rank")?, d_rotary)
    };
    let mut rotary = rope::rotary(keys, None, d_rotary)?;
    if keys.or("rope_interleave", true)? {
        rotary.layout = RotaryLayout::Interleaved;
    }
    let stack = llama::stack(keys)?.with_d_head(d_head).with_d_value(keys.need("v_head_dim")?);
    let stack = stack.with_attention_bias(keys.or("attention_bias", false)?).with_mixer(MixerConfig::Latent(latent));
    Ok(stack.with_position(PositionConfig::Rotary(rotary)).with_attention_scale(scale(keys, d_head + d_rotary)?))
}

/// Stretched rotations make the scores of all lengths larger, by the square of a factor.
fn scale(keys: &Keys<'_>, width: usize) -> Result<ScoreScale, InputError> {
    let section = keys.section("rope_parameters").or_else(|| keys.section("rope_scaling"));
    let Some(section) = section else { return Ok(ScoreScale::InverseSqrt) };
    Ok(match (section.get("factor")?, section.get("mscale_all_dim")?) {
        (Some(factor), Some(all)) if all != 0.0 => {
            ScoreScale::Constant(RotaryScaling::mscale(factor, all).powi(2) / (width as f64).sqrt())
        }
        _ => ScoreScale::InverseSqrt,
    })
}

fn experts(keys: &Keys<'_>) -> Result<ExpertsConfig, InputError> {
    let mut experts = ExpertsConfig::new(keys.need("n_routed_experts")?);
    experts.top_k = keys.need("num_experts_per_tok")?;
    experts.renormalise = Some(keys.or("norm_topk_prob", true)?);
    experts.scores = RouterScores::Sigmoid;
    experts.correction = true;
    experts.n_groups = keys.or("n_group", 1)?;
    experts.top_groups = keys.or("topk_group", 1)?;
    experts.n_shared = keys.or("n_shared_experts", 1)?;
    experts.scale = keys.or("routed_scaling_factor", 1.0)?;
    Ok(experts)
}

/// What only this family says: its attention and its experts.
fn keys(structure: &Structure) -> Option<ConfigKeys> {
    let (shared, stack) = (decoder_keys(structure)?, structure.stacks()[0]);
    Some(extended(extended(shared, attention_keys(stack)?), expert_keys(stack)?))
}

fn attention_keys(stack: &TransformerConfig) -> Option<Value> {
    let block = &stack.first().block;
    let MixerConfig::Latent(latent) = block.mixer else { return None };
    let PositionConfig::Rotary(rotary) = &stack.position else { return None };
    Some(json!({
        "kv_lora_rank": latent.d_latent,
        "q_lora_rank": latent.d_query_latent,
        "qk_rope_head_dim": latent.d_rotary,
        "qk_nope_head_dim": block.attention.d_head,
        "v_head_dim": block.attention.d_value.or(block.attention.d_head),
        "head_dim": latent.d_rotary,
        "rope_interleave": rotary.layout == RotaryLayout::Interleaved,
    }))
}

fn expert_keys(stack: &TransformerConfig) -> Option<Value> {
    let experts = stack.layers.iter().find_map(|layer| layer.block.experts)?;
    Some(json!({
        "n_routed_experts": experts.n_experts,
        "n_group": experts.n_groups,
        "topk_group": experts.top_groups,
        "n_shared_experts": experts.n_shared,
        "routed_scaling_factor": experts.scale,
        "first_k_dense_replace": dense_layers(stack).len(),
    }))
}

/// `has_latent` says whether queries come out of a latent, too.
fn rows(has_latent: bool) -> Vec<WeightMapping> {
    let theirs = |name: &str| format!("model.layers.{{}}.{name}");
    let ours = |name: &str| format!("transformer.blocks.{{}}.{name}");
    let query = if has_latent { "q_b_proj" } else { "q_proj" };
    let shared = |name: &str| {
        WeightMapping::linear(
            theirs(&format!("mlp.shared_experts.{name}_proj")),
            ours(&format!("feed_forward.shared.{name}")),
        )
    };
    vec![
        WeightMapping::linear(theirs("self_attn.q_a_proj"), ours("attention.query_down")),
        WeightMapping::norm(theirs("self_attn.q_a_layernorm"), ours("attention.query_norm")),
        WeightMapping::linear(theirs(&format!("self_attn.{query}")), ours("attention.query")),
        WeightMapping::linear(theirs("self_attn.kv_a_proj_with_mqa"), ours("attention.down")),
        WeightMapping::norm(theirs("self_attn.kv_a_layernorm"), ours("attention.latent_norm")),
        WeightMapping::linear(theirs("self_attn.kv_b_proj"), ours("attention.up")),
        WeightMapping::tensor(theirs("mlp.gate.e_score_correction_bias"), ours("feed_forward.correction")),
        shared("gate"),
        shared("up"),
        shared("down"),
    ]
}
