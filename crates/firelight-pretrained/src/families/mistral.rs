//! Mistral: LLaMA with a window over the last tokens in every layer.
//!
//! Source: Jiang et al. 2023, §2 (<https://arxiv.org/abs/2310.06825>), and `modeling_mistral.py` of `transformers`.

use firelight_core::TransformerConfig;
use firelight_storage::InputError;

use super::layer_types::{kinds, patterns};
use super::llama;
use crate::export::decoder_keys;
use crate::family::{Class, Family};
use crate::{Description, Keys};

pub(crate) const FAMILY: Family =
    Family { name: "mistral", class: Class::Begins("Mistral"), describe, keys: decoder_keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    llama::description(keys, windowed(keys)?, llama::rows())
}

/// LLaMA's stack with a window where `sliding_window` is a number.
pub(super) fn windowed(keys: &Keys<'_>) -> Result<TransformerConfig, InputError> {
    let slides = keys.get::<usize>("sliding_window")?.is_some();
    Ok(llama::stack(keys)?.with_patterns(patterns(keys, &kinds(keys, |_| slides)?)?))
}
