//! DeepSeek-V3: keys and values out of a latent, experts that are chosen in groups by sigmoids, beside one that reads every token.
//!
//! Source: DeepSeek-AI 2024, §2.1 (<https://arxiv.org/abs/2412.19437>), and `modeling_deepseek_v3.py` of `transformers`.

use firelight_core::{
    ExpertsConfig, LatentConfig, MixerConfig, PositionConfig, RotaryLayout, RotaryScaling, RouterScores, ScoreScale,
    TransformerConfig,
};
use firelight_storage::InputError;

use super::{llama, qwen, rope};
use crate::{Description, Keys, Row};

pub(crate) fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
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

/// `has_latent` says whether queries come out of a latent, too.
fn rows(has_latent: bool) -> Vec<Row> {
    let theirs = |name: &str| format!("model.layers.{{}}.{name}");
    let ours = |name: &str| format!("transformer.blocks.{{}}.{name}");
    let query = if has_latent { "q_b_proj" } else { "q_proj" };
    let shared = |name: &str| {
        Row::linear(theirs(&format!("mlp.shared_experts.{name}_proj")), ours(&format!("feed_forward.shared.{name}")))
    };
    vec![
        Row::linear(theirs("self_attn.q_a_proj"), ours("attention.query_down")),
        Row::norm(theirs("self_attn.q_a_layernorm"), ours("attention.query_norm")),
        Row::linear(theirs(&format!("self_attn.{query}")), ours("attention.query")),
        Row::linear(theirs("self_attn.kv_a_proj_with_mqa"), ours("attention.down")),
        Row::norm(theirs("self_attn.kv_a_layernorm"), ours("attention.latent_norm")),
        Row::linear(theirs("self_attn.kv_b_proj"), ours("attention.up")),
        Row::tensor(theirs("mlp.gate.e_score_correction_bias"), ours("feed_forward.correction")),
        shared("gate"),
        shared("up"),
        shared("down"),
    ]
}
