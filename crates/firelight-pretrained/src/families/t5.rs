//! T5, also in its forms 1.1 and Flan: no biases, scores that are not scaled, biases of scores by buckets of distances, which all layers of
//! a stack share.
//!
//! Source: Raffel et al. 2020, §2.1 (<https://arxiv.org/abs/1910.10683>), and `modeling_t5.py` of `transformers`.

use firelight_core::{
    Activation, EncoderDecoderConfig, HeadOptions, NormConfig, PositionConfig, ScoreScale, TransformerConfig,
};
use firelight_seq2seq::{Seq2SeqConfig, Tying};
use firelight_storage::InputError;
use serde_json::json;

use crate::export::{extended, names, seq2seq_keys};
use crate::family::{Class, ConfigKeys, Family};
use crate::{Description, Keys, Structure, Table, WeightMapping};

pub(crate) const FAMILY: Family = Family { name: "t5", class: Class::Begins("T5"), describe, keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    let (d_model, n_heads) = (keys.or("d_model", 512)?, keys.or("num_heads", 8)?);
    let n_layers = keys.or("num_layers", 6)?;
    let config = Seq2SeqConfig::new(keys.or("vocab_size", 32_128)?, d_model, n_heads, n_layers);
    let encoder = stack(keys, TransformerConfig::encoder(d_model, n_heads, n_layers), true)?;
    let decoder = TransformerConfig::decoder(d_model, n_heads, keys.or("num_decoder_layers", n_layers)?);
    let decoder = stack(keys, decoder, false)?;
    let gated = decoder.first().block.feed_forward.activation.is_gated();
    let tied = keys.or("tie_word_embeddings", true)?;
    // What a tied head reads is narrowed, for embeddings are drawn wider than heads.
    let scale = if keys.or("scale_decoder_outputs", tied)? { (d_model as f64).powf(-0.5) } else { 1.0 };
    let mut config = Seq2SeqConfig { stacks: EncoderDecoderConfig { encoder, decoder }, ..config };
    config.start_token = keys.or("decoder_start_token_id", keys.or("pad_token_id", 0)?)?;
    let config = config.with_head(HeadOptions::default().with_scale(scale)).with_tying(Tying::All);
    Ok(Description { structure: Structure::Seq2Seq(config), table: table(gated) })
}

fn stack(keys: &Keys<'_>, stack: TransformerConfig, bidirectional: bool) -> Result<TransformerConfig, InputError> {
    let position = PositionConfig::T5 {
        n_buckets: keys.or("relative_attention_num_buckets", 32)?,
        max_distance: keys.or("relative_attention_max_distance", 128)?,
        bidirectional,
    };
    let stack = stack.with_bias(false).with_position(position).with_attention_scale(ScoreScale::None);
    let stack = stack.with_d_head(keys.or("d_kv", 64)?).with_d_ff(keys.or("d_ff", 2048)?);
    let stack = stack.with_norm(NormConfig::Rms { epsilon: keys.or("layer_norm_epsilon", 1e-6)? });
    let dropout = keys.or("dropout_rate", 0.1)?;
    let stack = stack.with_dropout(dropout).with_feed_forward_dropout(dropout);
    Ok(stack.with_activation(activation(keys)?).with_max_seq_len(keys.or("n_positions", 512)?))
}

/// Its "gelu" of gated units is the tanh form.
fn activation(keys: &Keys<'_>) -> Result<Activation, InputError> {
    Ok(match keys.or("feed_forward_proj", "relu".to_string())?.as_str() {
        "relu" => Activation::Relu,
        "gated-gelu" => Activation::GeGluTanh,
        "gated-silu" => Activation::SwiGlu,
        _ => return Err(keys.unfit("feed_forward_proj", "relu, gated-gelu or gated-silu")),
    })
}

/// What only this family says.
fn keys(structure: &Structure) -> Option<ConfigKeys> {
    let Structure::Seq2Seq(model) = structure else { return None };
    let stack = &model.stacks.encoder;
    let block = &stack.first().block;
    let PositionConfig::T5 { n_buckets, max_distance, .. } = stack.position else { return None };
    let activation = match block.feed_forward.activation {
        Activation::Relu => "relu",
        Activation::GeGluTanh => "gated-gelu",
        _ => "gated-silu",
    };
    let own = json!({
        "d_kv": block.attention.d_head.unwrap_or(stack.d_model / block.attention.n_heads.max(1)),
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
    });
    Some(extended(seq2seq_keys(structure)?, own))
}

fn table(gated: bool) -> Table {
    let shared = ["shared", "decoder.embed_tokens", "encoder.embed_tokens"];
    let ends = shared
        .map(|name| WeightMapping::table(name, "embedding"))
        .into_iter()
        .chain([WeightMapping::linear("lm_head", "head")]);
    let rows = ends.chain(stack_rows("encoder", 1, gated)).chain(stack_rows("decoder", 2, gated)).collect();
    let ignored = vec![
        "encoder.embed_tokens.weight",
        "decoder.embed_tokens.weight",
        // A bias that old files have, which nothing reads.
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
    ];
    Table { rows, prefix: "", ignored }
}

/// The rows of a stack whose feed-forward networks have this number in a layer.
fn stack_rows(stack: &str, last: usize, gated: bool) -> Vec<WeightMapping> {
    let up = if gated { "DenseReluDense.wi_1" } else { "DenseReluDense.wi" };
    let theirs = |layer: usize, name: &str| format!("{stack}.block.{{}}.layer.{layer}.{name}");
    let ours = |name: &str| format!("stacks.{stack}.blocks.{{}}.{name}");
    let bias = format!("{stack}.block.0.layer.0.SelfAttention.relative_attention_bias");
    let mut rows = vec![
        WeightMapping::table(bias, format!("stacks.{stack}.position")),
        WeightMapping::norm(format!("{stack}.final_layer_norm"), format!("stacks.{stack}.norm")),
        WeightMapping::norm(theirs(0, "layer_norm"), ours("attention_norm")),
        WeightMapping::norm(
            theirs(1, "layer_norm"),
            ours(if last == 1 { "feed_forward_norm" } else { "cross_attention_norm" }),
        ),
        WeightMapping::norm(theirs(last, "layer_norm"), ours("feed_forward_norm")),
        WeightMapping::linear(theirs(last, "DenseReluDense.wi_0"), ours("feed_forward.gate")),
        WeightMapping::linear(theirs(last, up), ours("feed_forward.up")),
        WeightMapping::linear(theirs(last, "DenseReluDense.wo"), ours("feed_forward.down")),
    ];
    for (layer, attention, part) in [(0, "SelfAttention", "attention"), (1, "EncDecAttention", "cross_attention")] {
        for (name, projection) in
            [("q", "projection.query"), ("k", "projection.key"), ("v", "projection.value"), ("o", "output")]
        {
            rows.push(WeightMapping::linear(
                theirs(layer, &format!("{attention}.{name}")),
                ours(&format!("{part}.{projection}")),
            ));
        }
    }
    rows
}
