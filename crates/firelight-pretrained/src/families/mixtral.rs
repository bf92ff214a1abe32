//! Mixtral: Mistral with experts, two of which read a token.
//!
//! Source: Jiang et al. 2024, §2 (<https://arxiv.org/abs/2401.04088>), and `modeling_mixtral.py` of `transformers`.

use firelight_core::ExpertsConfig;
use firelight_storage::InputError;

use super::{llama, mistral};
use crate::export::decoder_keys;
use crate::family::{Class, Family};
use crate::{Description, Keys, WeightMapping};

pub(crate) const FAMILY: Family =
    Family { name: "mixtral", class: Class::Begins("Mixtral"), describe, keys: decoder_keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    let mut experts = ExpertsConfig::new(keys.or("num_local_experts", 8)?);
    experts.top_k = keys.or("num_experts_per_tok", 2)?;
    experts.renormalise = Some(true);
    llama::description(keys, mistral::windowed(keys)?.with_experts(experts), [rows(), llama::rows()].concat())
}

fn rows() -> Vec<WeightMapping> {
    let (theirs, ours) = ("model.layers.{}.block_sparse_moe", "transformer.blocks.{}.feed_forward");
    let part = |name: &str, part: &str| {
        WeightMapping::linear(format!("{theirs}.experts.{{}}.{name}"), format!("{ours}.experts.{{}}.{part}"))
    };
    let router = WeightMapping::linear(format!("{theirs}.gate"), format!("{ours}.router"));
    vec![router, part("w1", "gate"), part("w3", "up"), part("w2", "down")]
}
