//! OLMo 2: LLaMA with norms behind the parts and of all queries and keys at once.
//!
//! Source: OLMo Team 2025, §2.1 (<https://arxiv.org/abs/2501.00656>), and `modeling_olmo2.py` of `transformers`.

use firelight_core::{NormConfig, NormPlacement, NormSpan};
use firelight_storage::InputError;

use super::llama;
use crate::export::decoder_keys;
use crate::family::{Class, Family};
use crate::{Description, Keys, WeightMapping};

pub(crate) const FAMILY: Family = Family { name: "olmo2", class: Class::Begins("Olmo2"), describe, keys: decoder_keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    let norm = NormConfig::Rms { epsilon: keys.or("rms_norm_eps", 1e-5)? };
    let stack = llama::stack(keys)?.with_norm(norm).with_norm_placement(NormPlacement::Output);
    let stack = stack.with_query_key_norm(Some(norm)).with_query_key_norm_span(NormSpan::AllHeads);
    let stack = stack.with_attention_bias(keys.or("attention_bias", false)?);
    let rows = vec![
        WeightMapping::norm("model.layers.{}.post_attention_layernorm", "transformer.blocks.{}.attention_output_norm"),
        WeightMapping::norm(
            "model.layers.{}.post_feedforward_layernorm",
            "transformer.blocks.{}.feed_forward_output_norm",
        ),
    ];
    llama::description(keys, stack, [rows, llama::rows()].concat())
}
