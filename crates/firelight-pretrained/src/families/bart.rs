//! BART, with norms behind the parts; mBART, with norms before them; Marian, with sinusoids in the place of learned positions.
//!
//! Sources: Lewis et al. 2020, §2.1 (<https://arxiv.org/abs/1910.13461>); Liu et al. 2020, §2.2 (<https://arxiv.org/abs/2001.08210>);
//! Junczys-Dowmunt et al. 2018 (<https://arxiv.org/abs/1804.00344>); `modeling_bart.py`, `modeling_mbart.py` and
//! `modeling_marian.py` of `transformers`.

use firelight_core::{
    EmbeddingScale, EncoderDecoderConfig, HeadOptions, NormPlacement, PositionConfig, TransformerConfig,
};
use firelight_seq2seq::{Seq2SeqConfig, Tying};
use firelight_storage::InputError;
use serde_json::{Value, json};

use super::activation;
use crate::export::{extended, names, seq2seq_keys};
use crate::family::{Class, ConfigKeys, Family};
use crate::{Description, Keys, Step, Structure, Table, WeightMapping};

/// Rows of the tables of positions that no token has.
const UNREAD: usize = 2;

pub(crate) const BART: Family = Family { name: "bart", class: Class::Begins("Bart"), describe, keys };
pub(crate) const MBART: Family =
    Family { name: "mbart", class: Class::Begins("MBart"), describe: describe_mbart, keys };
pub(crate) const MARIAN: Family =
    Family { name: "marian", class: Class::Is("MarianMTModel"), describe: describe_marian, keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    description(keys, |stack| stack.with_norm_placement(NormPlacement::Post).with_embedding_norm(true))
}

fn describe_mbart(keys: &Keys<'_>) -> Result<Description, InputError> {
    description(keys, |stack| stack.with_norm_placement(NormPlacement::Pre).with_embedding_norm(true))
}

fn describe_marian(keys: &Keys<'_>) -> Result<Description, InputError> {
    keys.only("share_encoder_decoder_embeddings", &json!(true))?;
    description(keys, |stack| {
        stack.with_norm_placement(NormPlacement::Post).with_position(PositionConfig::SinusoidalHalves)
    })
}

fn description(
    keys: &Keys<'_>,
    form: impl Fn(TransformerConfig) -> TransformerConfig,
) -> Result<Description, InputError> {
    let d_model = keys.or("d_model", 1024)?;
    let config = Seq2SeqConfig::new(keys.need("vocab_size")?, d_model, 1, 1);
    let stack = |side: &str| -> Result<TransformerConfig, InputError> {
        let key = |name: &str| format!("{side}_{name}");
        let (n_heads, n_layers) = (keys.or(&key("attention_heads"), 16)?, keys.or(&key("layers"), 12)?);
        let stack = match side {
            "encoder" => TransformerConfig::encoder(d_model, n_heads, n_layers),
            _ => TransformerConfig::decoder(d_model, n_heads, n_layers),
        };
        Ok(form(common(keys, stack.with_d_ff(keys.or(&key("ffn_dim"), 4096)?))?))
    };
    let mut config = Seq2SeqConfig {
        stacks: EncoderDecoderConfig { encoder: stack("encoder")?, decoder: stack("decoder")? },
        ..config.with_tying(Tying::All).with_head(HeadOptions::default().with_bias(true))
    };
    config.start_token = keys.or("decoder_start_token_id", keys.or("eos_token_id", 2)?)?;
    if keys.or("scale_embedding", false)? {
        config.scale_embedding = EmbeddingScale::SqrtWidth;
    }
    Ok(Description { structure: Structure::Seq2Seq(config), table: table() })
}

fn common(keys: &Keys<'_>, stack: TransformerConfig) -> Result<TransformerConfig, InputError> {
    let stack = stack.with_activation(activation::plain(keys, "activation_function", "gelu")?);
    let stack = stack.with_max_seq_len(keys.or("max_position_embeddings", 1024)?);
    let stack = stack.with_dropout(keys.or("dropout", 0.1)?).with_attention_dropout(keys.or("attention_dropout", 0.0)?);
    Ok(stack.with_feed_forward_dropout(keys.or("activation_dropout", 0.0)?))
}

/// What only these families say.
fn keys(structure: &Structure) -> Option<ConfigKeys> {
    let Structure::Seq2Seq(model) = structure else { return None };
    let (encoder, decoder) = (&model.stacks.encoder, &model.stacks.decoder);
    let block = &decoder.first().block;
    let own = json!({
        "activation_function": names::activation(block.feed_forward.activation),
        "max_position_embeddings": decoder.max_seq_len,
        "scale_embedding": model.scale_embedding == EmbeddingScale::SqrtWidth,
        "dropout": block.dropout,
        "attention_dropout": block.attention.dropout,
        "activation_dropout": block.feed_forward.dropout,
        "share_encoder_decoder_embeddings": true,
    });
    let keys = extended(seq2seq_keys(structure)?, own);
    Some(extended(extended(keys, size_keys("encoder", encoder)), size_keys("decoder", decoder)))
}

fn size_keys(side: &str, stack: &TransformerConfig) -> Value {
    let first = stack.first();
    json!({
        format!("{side}_layers"): stack.n_layers,
        format!("{side}_attention_heads"): first.block.attention.n_heads,
        format!("{side}_ffn_dim"): names::d_ff(first),
    })
}

fn table() -> Table {
    let mut rows = vec![
        WeightMapping::table("model.shared", "embedding"),
        WeightMapping::table("model.decoder.embed_tokens", "embedding"),
        WeightMapping::tensor("final_logits_bias", "head.bias").step(Step::Alone),
        WeightMapping::linear("lm_head", "head"),
    ];
    rows.extend(["encoder", "decoder"].into_iter().flat_map(stack_rows));
    let ignored = vec![
        "lm_head.weight",
        "model.encoder.embed_tokens.weight",
        "model.decoder.embed_tokens.weight",
        // Marian's are computed; where positions are learned, the rows above have read them.
        "model.encoder.embed_positions.weight",
        "model.decoder.embed_positions.weight",
    ];
    Table { rows, prefix: "model.", ignored }
}

fn stack_rows(stack: &str) -> Vec<WeightMapping> {
    let theirs = |name: &str| format!("model.{stack}.layers.{{}}.{name}");
    let ours = |name: &str| format!("stacks.{stack}.blocks.{{}}.{name}");
    let positions = WeightMapping::table(format!("model.{stack}.embed_positions"), format!("stacks.{stack}.position"));
    let mut rows = vec![
        positions.step(Step::Behind(UNREAD)),
        WeightMapping::norm(format!("model.{stack}.layernorm_embedding"), format!("stacks.{stack}.embedding_norm")),
        WeightMapping::norm(format!("model.{stack}.layer_norm"), format!("stacks.{stack}.norm")),
        WeightMapping::norm(theirs("self_attn_layer_norm"), ours("attention_norm")),
        WeightMapping::norm(theirs("encoder_attn_layer_norm"), ours("cross_attention_norm")),
        WeightMapping::norm(theirs("final_layer_norm"), ours("feed_forward_norm")),
        WeightMapping::linear(theirs("fc1"), ours("feed_forward.up")),
        WeightMapping::linear(theirs("fc2"), ours("feed_forward.down")),
    ];
    for (attention, part) in [("self_attn", "attention"), ("encoder_attn", "cross_attention")] {
        for (name, projection) in
            [("q", "projection.query"), ("k", "projection.key"), ("v", "projection.value"), ("out", "output")]
        {
            rows.push(WeightMapping::linear(
                theirs(&format!("{attention}.{name}_proj")),
                ours(&format!("{part}.{projection}")),
            ));
        }
    }
    rows
}
