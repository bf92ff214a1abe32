//! What an encoder-decoder is called in `config.json`.

use firelight_core::{Activation, EmbeddingScale, PositionConfig, TransformerConfig};
use firelight_seq2seq::{Seq2SeqConfig, Tying};
use serde_json::{Map, Value, json};

use super::names;

/// The keys of T5 and of BART's relatives.
pub(super) fn keys(model: &Seq2SeqConfig, model_type: &str) -> Option<Map<String, Value>> {
    let mut keys = if model_type == "t5" { t5(model) } else { bart(model) };
    let more = json!({
        "is_encoder_decoder": true,
        "vocab_size": model.target_vocab_size,
        "d_model": model.stacks.decoder.d_model,
        "decoder_start_token_id": model.start_token,
        "tie_word_embeddings": model.tying == Tying::All,
    });
    keys.as_object_mut()?.extend(more.as_object().cloned().unwrap_or_default());
    keys.as_object().cloned()
}

fn t5(model: &Seq2SeqConfig) -> Value {
    let stack = &model.stacks.encoder;
    let block = &stack.first().block;
    let (n_buckets, max_distance) = match stack.position {
        PositionConfig::T5 { n_buckets, max_distance, .. } => (n_buckets, max_distance),
        _ => (0, 0),
    };
    let activation = match block.feed_forward.activation {
        Activation::Relu => "relu",
        Activation::GeGluTanh => "gated-gelu",
        _ => "gated-silu",
    };
    json!({
        "d_kv": block.attention.d_head,
        "d_ff": names::d_ff(stack.first()),
        "num_heads": block.attention.n_heads,
        "num_layers": stack.n_layers,
        "num_decoder_layers": model.stacks.decoder.n_layers,
        "relative_attention_num_buckets": n_buckets,
        "relative_attention_max_distance": max_distance,
        "layer_norm_epsilon": names::epsilon(stack.norm),
        "feed_forward_proj": activation,
        "dropout_rate": block.dropout,
        "n_positions": stack.max_seq_len,
        "scale_decoder_outputs": model.head.scale != 1.0,
    })
}

fn bart(model: &Seq2SeqConfig) -> Value {
    let decoder = &model.stacks.decoder;
    let block = &decoder.first().block;
    let mut keys = json!({
        "activation_function": names::activation(block.feed_forward.activation),
        "max_position_embeddings": decoder.max_seq_len,
        "scale_embedding": model.scale_embedding == EmbeddingScale::SqrtWidth,
        "dropout": block.dropout,
        "attention_dropout": block.attention.dropout,
        "activation_dropout": block.feed_forward.dropout,
        "share_encoder_decoder_embeddings": true,
    });
    for (side, stack) in [("encoder", &model.stacks.encoder), ("decoder", decoder)] {
        sizes(&mut keys, side, stack);
    }
    keys
}

fn sizes(keys: &mut Value, side: &str, stack: &TransformerConfig) {
    keys[format!("{side}_layers")] = json!(stack.n_layers);
    keys[format!("{side}_attention_heads")] = json!(stack.first().block.attention.n_heads);
    keys[format!("{side}_ffn_dim")] = json!(names::d_ff(stack.first()));
}
