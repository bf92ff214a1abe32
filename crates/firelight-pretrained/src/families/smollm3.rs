//! SmolLM 3: LLaMA in which every fourth layer has no positions.
//!
//! Source: Bakouch et al. 2025, "SmolLM3: smol, multilingual, long-context reasoner", "Architecture changes"
//! (<https://huggingface.co/blog/smollm3>), and `modeling_smollm3.py` of `transformers`.

use firelight_core::{LayerConfig, PositionConfig};
use firelight_storage::InputError;
use serde_json::json;

use super::layer_types::{kinds, patterns};
use super::llama;
use crate::export::{decoder_keys, extended};
use crate::family::{Class, ConfigKeys, Family};
use crate::{Description, Keys, Structure, Table};

pub(crate) const FAMILY: Family = Family { name: "smollm3", class: Class::Begins("SmolLM3"), describe, keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    let stack = llama::stack(keys)?.with_attention_bias(keys.or("attention_bias", false)?);
    let stack = stack.with_bias(keys.or("mlp_bias", false)?);
    let patterns = patterns(keys, &kinds(keys, |_| false)?)?;
    let (n_layers, turned, base) = (stack.n_layers, turned(keys)?, stack.first().clone());
    let layer = |index: usize| {
        let layer = base.clone().with_pattern(patterns[index % patterns.len()]);
        let without = |layer: LayerConfig| layer.with_position(PositionConfig::None);
        if turned(index) { layer } else { without(layer) }
    };
    let stack = stack.with_layers((0..n_layers).map(layer).collect());
    let structure = Structure::Language(llama::language(keys, stack, true)?);
    Ok(Description { structure, table: Table { rows: llama::rows(), ..llama::table() } })
}

/// What only this family says: which layers have positions.
fn keys(structure: &Structure) -> Option<ConfigKeys> {
    let (shared, stack) = (decoder_keys(structure)?, structure.stacks()[0]);
    let turned = |layer: &LayerConfig| u8::from(layer.position != Some(PositionConfig::None));
    let flags: Vec<u8> = stack.layers.iter().cycle().take(stack.n_layers).map(turned).collect();
    Some(extended(shared, json!({"no_rope_layers": flags})))
}

/// Which layers turn queries and keys: where the list `no_rope_layers`, in spite of its name, has a 1.
fn turned(keys: &Keys<'_>) -> Result<impl Fn(usize) -> bool, InputError> {
    let flags: Option<Vec<usize>> = keys.get("no_rope_layers")?;
    let interval: usize = keys.or("no_rope_layer_interval", 4)?;
    Ok(move |layer: usize| match &flags {
        Some(flags) => flags.get(layer).is_none_or(|flag| *flag != 0),
        None => interval == 0 || !(layer + 1).is_multiple_of(interval),
    })
}
