//! What an encoder is called in `config.json`, by the names of all families at once.

use firelight_classification::{HeadTransformConfig, PoolingConfig, ProblemType, TextEncoderConfig};
use firelight_core::{Activation, AttentionPattern, LayerConfig, NormConfig, PositionConfig, TransformerConfig};
use serde_json::{Map, Value, json};

use super::names;
use crate::Structure;

/// Families whose positions begin behind the number of their padding, which is 1.
const PADDED: [&str; 4] = ["roberta", "xlm-roberta", "camembert", "mpnet"];

/// The keys of a family.
pub(super) fn keys(structure: &Structure, model_type: &str) -> Option<Map<String, Value>> {
    let (encoder, head) = match structure {
        Structure::Encoder(model) => (&model.encoder, json!({})),
        Structure::Masked(model) => {
            (&model.encoder, json!({"tie_word_embeddings": model.head.tied, "classifier_bias": model.head.bias}))
        }
        Structure::Sequence(model) => {
            let mut keys = names::labels(&model.labels);
            keys["problem_type"] = json!(problem_type(model.problem_type));
            keys["classifier_pooling"] =
                if model.head.pooler.pooling == PoolingConfig::Mean { json!("mean") } else { json!("cls") };
            (&model.encoder, with_bias(keys, model.head.transform))
        }
        Structure::Token(model) => (&model.encoder, with_bias(names::labels(&model.labels), model.head.transform)),
        Structure::Span(model) => (&model.encoder, with_bias(json!({}), model.head.transform)),
        _ => return None,
    };
    let mut keys = Map::new();
    for part in [stack(encoder), layers(&encoder.transformer), head] {
        keys.extend(part.as_object().cloned().unwrap_or_default());
    }
    keys.retain(|_, value| !value.is_null());
    if PADDED.contains(&model_type) {
        keys.insert("pad_token_id".into(), json!(1));
        keys.insert("max_position_embeddings".into(), json!(encoder.transformer.max_seq_len + 2));
    }
    Some(keys)
}

/// What ModernBERT says of the layers in its heads.
fn with_bias(mut keys: Value, transform: Option<HeadTransformConfig>) -> Value {
    keys["classifier_bias"] = json!(transform.map(|transform| transform.bias));
    keys
}

fn problem_type(problem: ProblemType) -> &'static str {
    match problem {
        ProblemType::SingleLabel => "single_label_classification",
        ProblemType::MultiLabel => "multi_label_classification",
        _ => "regression",
    }
}

fn stack(encoder: &TextEncoderConfig) -> Value {
    let stack = &encoder.transformer;
    let block = &stack.first().block;
    let (d_ff, activation) = (names::d_ff(stack.first()), names::activation(block.feed_forward.activation));
    let (dropout, attention_dropout) = (block.dropout, block.attention.dropout);
    let turns = if stack.share_layers { stack.layers.len().max(1) } else { 1 };
    let norm_bias = matches!(stack.norm, NormConfig::Layer { bias: true, .. });
    let (n_heads, epsilon) = (block.attention.n_heads, names::epsilon(stack.norm));
    json!({
        "vocab_size": encoder.vocab_size,
        // Families without segments do not have the key; the others need one at least.
        "type_vocab_size": Some(encoder.n_segments).filter(|segments| *segments > 0),
        "embedding_size": stack.d_embedding(),
        "hidden_size": stack.d_model, "dim": stack.d_model,
        "num_hidden_layers": stack.n_layers / turns, "n_layers": stack.n_layers,
        "inner_group_num": turns, "num_hidden_groups": 1,
        "num_attention_heads": n_heads, "n_heads": n_heads,
        "intermediate_size": d_ff, "hidden_dim": d_ff,
        "hidden_act": activation, "activation": activation, "hidden_activation": activation,
        "classifier_activation": "gelu",
        "max_position_embeddings": stack.max_seq_len,
        "layer_norm_eps": epsilon, "norm_eps": epsilon, "norm_bias": norm_bias,
        "attention_bias": block.attention.bias, "mlp_bias": block.feed_forward.bias,
        "hidden_dropout_prob": dropout, "dropout": dropout, "embedding_dropout": stack.embedding_dropout,
        "attention_probs_dropout_prob": attention_dropout, "attention_dropout": attention_dropout,
    })
}

/// What only some families have: buckets of distances, windows, rotations.
fn layers(stack: &TransformerConfig) -> Value {
    let mut keys = json!({});
    let own = stack.layers.iter().find_map(|layer| layer.position.as_ref());
    if let Some(PositionConfig::T5 { n_buckets, .. }) = own {
        keys["relative_attention_num_buckets"] = json!(n_buckets);
    }
    let side = stack.layers.iter().find_map(|layer| match layer.pattern {
        AttentionPattern::SlidingWindow { right, .. } => Some(right),
        _ => None,
    });
    if let (PositionConfig::Rotary(far), Some(side)) = (&stack.position, side) {
        let kind = |layer: &LayerConfig| {
            if layer.pattern == AttentionPattern::Full { "full_attention" } else { "sliding_attention" }
        };
        let near = match own {
            Some(PositionConfig::Rotary(near)) => near,
            _ => far,
        };
        keys["layer_types"] = json!(stack.layers.iter().cycle().take(stack.n_layers).map(kind).collect::<Vec<_>>());
        keys["local_attention"] = json!(2 * side);
        let rotation = |theta: f64| json!({"rope_type": "default", "rope_theta": theta});
        keys["rope_parameters"] =
            json!({"full_attention": rotation(far.theta), "sliding_attention": rotation(near.theta)});
    }
    keys
}

/// Whether the units are gated, which only ModernBERT's are.
pub(super) fn is_gated(structure: &Structure) -> bool {
    structure.stacks()[0].first().block.feed_forward.activation == Activation::GeGlu
}
