//! How keys and values that several kinds of models have are called in `config.json`.

use firelight_core::{Activation, LayerConfig, NormConfig, TransformerConfig};
use serde_json::{Map, Value, json};

/// The keys of a stack that BERT has, and vision transformers and CLIP after it.
pub(crate) fn stack(stack: &TransformerConfig) -> Value {
    let block = &stack.first().block;
    json!({
        "hidden_size": stack.d_model,
        "num_hidden_layers": stack.n_layers,
        "num_attention_heads": block.attention.n_heads,
        "intermediate_size": d_ff(stack.first()),
        "hidden_act": activation(block.feed_forward.activation),
        "layer_norm_eps": epsilon(stack.norm),
    })
}

/// The inner width of a feed-forward network.
pub(crate) fn d_ff(layer: &LayerConfig) -> usize {
    let feed_forward = &layer.block.feed_forward;
    feed_forward.d_ff.unwrap_or_else(|| feed_forward.activation.default_d_ff(feed_forward.d_model))
}

/// An activation function, or that of a gate.
pub(crate) fn activation(activation: Activation) -> &'static str {
    match activation {
        Activation::Relu | Activation::ReGlu => "relu",
        Activation::Gelu | Activation::GeGlu => "gelu",
        Activation::GeluTanh => "gelu_new",
        Activation::GeGluTanh => "gelu_pytorch_tanh",
        Activation::QuickGelu => "quick_gelu",
        Activation::SquaredRelu => "relu2",
        _ => "silu",
    }
}

/// What a norm adds.
pub(crate) fn epsilon(norm: NormConfig) -> f64 {
    match norm {
        NormConfig::Layer { epsilon, .. } | NormConfig::Rms { epsilon } => epsilon,
        _ => 0.0,
    }
}

/// The names of classes.
pub(crate) fn labels(labels: &[String]) -> Value {
    let numbered = || labels.iter().enumerate();
    let by_id: Map<String, Value> = numbered().map(|(id, label)| (id.to_string(), json!(label))).collect();
    let by_label: Map<String, Value> = numbered().map(|(id, label)| (label.clone(), json!(id))).collect();
    json!({"id2label": by_id, "label2id": by_label})
}
