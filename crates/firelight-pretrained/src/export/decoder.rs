//! What a language model is called in `config.json`, by the names that several families have. What only one has is in its file.

use firelight_core::{
    AttentionPattern, ExpertsConfig, LayerConfig, PositionConfig, RotaryConfig, RotaryScaling, TransformerConfig,
};
use serde_json::{Map, Value, json};

use super::names::{activation, d_ff, epsilon};
use crate::Structure;
use crate::family::ConfigKeys;

/// The keys that decoders share; none where the structure is none.
pub(crate) fn decoder_keys(structure: &Structure) -> Option<ConfigKeys> {
    let Structure::Language(model) = structure else { return None };
    let stack = &model.transformer;
    let mut keys = Map::new();
    let ends = json!({
        "vocab_size": model.vocab_size,
        "tie_word_embeddings": model.tied,
        "use_cache": true,
    });
    for part in [ends, sizes(stack), parts(stack.first()), positions(stack), layers(stack)] {
        keys.extend(part.as_object().cloned().unwrap_or_default());
    }
    // Others stand for "none" where a family has a default of its own.
    let unknown = ["original_max_position_embeddings", "layer_types", "rope_parameters"];
    keys.retain(|key, value| !value.is_null() || !unknown.contains(&key.as_str()));
    Some(keys)
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
    json!({
        "hidden_act": activation(block.feed_forward.activation),
        "rms_norm_eps": epsilon(block.norm),
        "attention_bias": block.attention.bias,
        "mlp_bias": block.feed_forward.bias,
        "attention_dropout": block.attention.dropout,
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
    let mut keys = json!({
        "sliding_window": window,
        "layer_types": differ.then_some(kinds),
        "use_sliding_window": window.is_some(),
    });
    for (key, value) in experts(&all) {
        keys[key] = value;
    }
    keys
}

/// The numbers of the layers without experts.
pub(crate) fn dense_layers(stack: &TransformerConfig) -> Vec<usize> {
    let all = stack.layers.iter().cycle().take(stack.n_layers).enumerate();
    all.filter(|(_, layer)| layer.block.experts.is_none()).map(|(index, _)| index).collect()
}

fn experts(layers: &[&LayerConfig]) -> ConfigKeys {
    let found = layers.iter().find_map(|layer| Some((layer.block.experts?, d_ff(layer))));
    let Some((experts, width)) = found else { return Map::new() };
    let ExpertsConfig { n_experts, top_k, renormalise, .. } = experts;
    let keys = json!({
        "num_experts": n_experts,
        "num_local_experts": n_experts,
        "num_experts_per_tok": top_k,
        "norm_topk_prob": renormalise.unwrap_or(top_k > 1),
        "moe_intermediate_size": width,
    });
    keys.as_object().cloned().unwrap_or_default()
}
