//! What a language model is called in `config.json`, by the names of all families at once: each reads its own.

use firelight_core::{
    AttentionPattern, ExpertsConfig, LayerConfig, MixerConfig, NormPlacement, PositionConfig, RotaryConfig,
    RotaryLayout, RotaryScaling, ScoreScale, TransformerConfig,
};
use firelight_language::LanguageModelConfig;
use serde_json::{Map, Value, json};

use super::names::{activation, d_ff, epsilon};

pub(super) fn keys(model: &LanguageModelConfig) -> Map<String, Value> {
    let stack = &model.transformer;
    let mut keys = Map::new();
    let ends = json!({
        "vocab_size": model.vocab_size,
        "tie_word_embeddings": model.tied,
        "final_logit_softcapping": model.head.soft_cap,
        "embedding_dropout": stack.embedding_dropout,
        "use_cache": true,
    });
    for part in [ends, sizes(stack), parts(stack.first()), positions(stack), layers(stack)] {
        keys.extend(part.as_object().cloned().unwrap_or_default());
    }
    // Others stand for "none" where a family has a default of its own.
    let unknown = ["original_max_position_embeddings", "query_pre_attn_scalar", "layer_types", "rope_parameters"];
    keys.retain(|key, value| !value.is_null() || !unknown.contains(&key.as_str()));
    match stack.position {
        // GPT-2 has names of its own for everything, and knows no others.
        PositionConfig::Learned => gpt2(model),
        _ => keys,
    }
}

fn gpt2(model: &LanguageModelConfig) -> Map<String, Value> {
    let stack = &model.transformer;
    let first = &stack.first().block;
    let keys = json!({
        "vocab_size": model.vocab_size,
        "tie_word_embeddings": model.tied,
        "n_embd": stack.d_model,
        "n_layer": stack.n_layers,
        "n_head": first.attention.n_heads,
        "n_inner": d_ff(stack.first()),
        "n_positions": stack.max_seq_len,
        "activation_function": activation(first.feed_forward.activation),
        "layer_norm_epsilon": epsilon(stack.norm),
        "scale_attn_weights": first.attention.scale != ScoreScale::None,
        "attn_pdrop": first.attention.dropout,
        "resid_pdrop": first.dropout,
        "embd_pdrop": stack.embedding_dropout,
    });
    keys.as_object().cloned().unwrap_or_default()
}

fn sizes(stack: &TransformerConfig) -> Value {
    let first = stack.first();
    let attention = &first.block.attention;
    let d_head = attention.d_head.unwrap_or(stack.d_model / attention.n_heads.max(1));
    let dense = stack.layers.iter().find(|layer| layer.block.experts.is_none()).unwrap_or(first);
    json!({
        "hidden_size": stack.d_model,
        "num_hidden_layers": stack.n_layers,
        "num_attention_heads": attention.n_heads,
        "num_key_value_heads": attention.n_kv_heads.unwrap_or(attention.n_heads),
        "head_dim": d_head,
        "intermediate_size": d_ff(dense),
        "max_position_embeddings": stack.max_seq_len,
    })
}

fn parts(layer: &LayerConfig) -> Value {
    let block = &layer.block;
    let activation = activation(block.feed_forward.activation);
    let scalar = match block.attention.scale {
        ScoreScale::Constant(scale) => Some((1.0 / (scale * scale) * 1e6).round() / 1e6),
        _ => None,
    };
    // `transformers` takes a whole number alone.
    let scalar = scalar.map(|scalar| if scalar.fract() == 0.0 { json!(scalar as u64) } else { json!(scalar) });
    json!({
        "hidden_act": activation,
        "hidden_activation": activation,
        "rms_norm_eps": epsilon(block.norm),
        "layer_norm_eps": epsilon(block.norm),
        "norm_epsilon": epsilon(block.norm),
        "use_bias": block.feed_forward.bias,
        "attention_bias": block.attention.bias,
        "mlp_bias": block.feed_forward.bias,
        "attention_dropout": block.attention.dropout,
        "residual_dropout": block.dropout,
        "attn_logit_softcapping": block.attention.soft_cap,
        "query_pre_attn_scalar": scalar,
        "use_parallel_residual": block.norm_placement == NormPlacement::ParallelTwoNorms,
        "swiglu_limit": 7.0,
    })
}

fn positions(stack: &TransformerConfig) -> Value {
    let PositionConfig::Rotary(whole) = &stack.position else { return Value::Null };
    let attention = &stack.first().block.attention;
    let d_head = attention.d_head.unwrap_or(stack.d_model / attention.n_heads.max(1));
    let own = stack.layers.iter().find_map(|layer| match &layer.position {
        Some(PositionConfig::Rotary(rotary)) if rotary != whole => Some(rotary),
        _ => None,
    });
    let parameters = match own {
        Some(near) => json!({"full_attention": rotary(whole, d_head), "sliding_attention": rotary(near, d_head)}),
        None => rotary(whole, d_head),
    };
    let original = original(&whole.scaling);
    json!({
        "rope_theta": whole.theta,
        "rope_parameters": parameters,
        "rope_interleave": whole.layout == RotaryLayout::Interleaved,
        "original_max_position_embeddings": original,
    })
}

fn original(scaling: &RotaryScaling) -> Option<usize> {
    match scaling {
        RotaryScaling::LongRope { original_max_seq_len, .. } => Some(*original_max_seq_len),
        _ => None,
    }
}

fn rotary(rotary: &RotaryConfig, d_head: usize) -> Value {
    let mut keys = scaling(&rotary.scaling);
    keys["rope_theta"] = json!(rotary.theta);
    if let Some(width) = rotary.width {
        keys["partial_rotary_factor"] = json!(width as f64 / d_head.max(1) as f64);
    }
    if let Some(keys) = keys.as_object_mut() {
        keys.retain(|_, value| !value.is_null());
    }
    keys
}

fn scaling(scaling: &RotaryScaling) -> Value {
    match scaling {
        RotaryScaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
        RotaryScaling::Dynamic { factor, original_max_seq_len } => {
            json!({"rope_type": "dynamic", "factor": factor, "original_max_position_embeddings": original_max_seq_len})
        }
        RotaryScaling::Llama3 { factor, original_max_seq_len, low_freq_factor, high_freq_factor } => json!({
            "rope_type": "llama3",
            "factor": factor,
            "original_max_position_embeddings": original_max_seq_len,
            "low_freq_factor": low_freq_factor,
            "high_freq_factor": high_freq_factor,
        }),
        RotaryScaling::Yarn { factor, original_max_seq_len, beta_fast, beta_slow, truncate, attention_factor } => {
            json!({
                "rope_type": "yarn",
                "factor": factor,
                "original_max_position_embeddings": original_max_seq_len,
                "beta_fast": beta_fast,
                "beta_slow": beta_slow,
                "truncate": truncate,
                "attention_factor": attention_factor,
            })
        }
        RotaryScaling::LongRope { factor, original_max_seq_len, short_factor, long_factor, attention_factor } => {
            json!({
                "rope_type": "longrope",
                "factor": factor,
                "original_max_position_embeddings": original_max_seq_len,
                "short_factor": short_factor,
                "long_factor": long_factor,
                "attention_factor": attention_factor,
            })
        }
        _ => json!({"rope_type": "default"}),
    }
}

/// What differs from layer to layer.
fn layers(stack: &TransformerConfig) -> Value {
    let all: Vec<&LayerConfig> = stack.layers.iter().cycle().take(stack.n_layers).collect();
    let window = all.iter().find_map(|layer| match layer.pattern {
        AttentionPattern::SlidingWindow { left, .. } => Some(left + 1),
        _ => None,
    });
    let kind = |layer: &&LayerConfig| match layer.pattern {
        AttentionPattern::SlidingWindow { .. } => "sliding_attention",
        _ => "full_attention",
    };
    let kinds: Vec<&str> = all.iter().map(kind).collect();
    let differ = kinds.windows(2).any(|pair| pair[0] != pair[1]);
    let turned = |layer: &&LayerConfig| u8::from(layer.position != Some(PositionConfig::None));
    let mut keys = json!({
        "sliding_window": window,
        "layer_types": differ.then_some(kinds),
        "max_window_layers": 0,
        "use_sliding_window": window.is_some(),
        "no_rope_layers": all.iter().map(turned).collect::<Vec<_>>(),
    });
    let more = [experts(&all), latent(stack.first())];
    for (key, value) in more.into_iter().flatten() {
        keys[key] = value;
    }
    keys
}

fn experts(layers: &[&LayerConfig]) -> Map<String, Value> {
    let found = layers.iter().find_map(|layer| Some((layer.block.experts?, d_ff(layer))));
    let Some((experts, width)) = found else { return Map::new() };
    let dense: Vec<usize> = (0..layers.len()).filter(|&index| layers[index].block.experts.is_none()).collect();
    let ExpertsConfig { n_experts, top_k, renormalise, n_groups, top_groups, n_shared, scale, .. } = experts;
    let keys = json!({
        "num_experts": n_experts,
        "num_local_experts": n_experts,
        "n_routed_experts": n_experts,
        "num_experts_per_tok": top_k,
        "norm_topk_prob": renormalise.unwrap_or(top_k > 1),
        "n_group": n_groups,
        "topk_group": top_groups,
        "n_shared_experts": n_shared,
        "routed_scaling_factor": scale,
        "moe_intermediate_size": width,
        "first_k_dense_replace": dense.len(),
        "mlp_only_layers": dense,
        "decoder_sparse_step": 1,
    });
    keys.as_object().cloned().unwrap_or_default()
}

fn latent(layer: &LayerConfig) -> Map<String, Value> {
    let MixerConfig::Latent(latent) = layer.block.mixer else { return Map::new() };
    let attention = &layer.block.attention;
    let keys = json!({
        "kv_lora_rank": latent.d_latent,
        "q_lora_rank": latent.d_query_latent,
        "qk_rope_head_dim": latent.d_rotary,
        "qk_nope_head_dim": attention.d_head,
        "v_head_dim": attention.d_value.or(attention.d_head),
        "head_dim": latent.d_rotary,
    });
    keys.as_object().cloned().unwrap_or_default()
}
