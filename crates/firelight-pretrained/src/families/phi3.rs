//! Phi-3: LLaMA with one matrix for queries, keys and values and one for both inputs of the gated units, and LongRoPE.
//!
//! Source: Abdin et al. 2024, §2 (<https://arxiv.org/abs/2404.14219>), and `modeling_phi3.py` of `transformers`.

use firelight_core::ProjectionKind;
use firelight_storage::InputError;

use super::{llama, mistral};
use crate::export::decoder_keys;
use crate::family::{Class, Family};
use crate::{Description, Keys, Step, WeightMapping};

pub(crate) const FAMILY: Family = Family { name: "phi3", class: Class::Begins("Phi3"), describe, keys: decoder_keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    let stack = mistral::windowed(keys)?.with_projection(ProjectionKind::Fused);
    let half = |name: &str, index| {
        let row = WeightMapping::linear(
            "model.layers.{}.mlp.gate_up_proj",
            format!("transformer.blocks.{{}}.feed_forward.{name}"),
        );
        row.step(Step::Part { axis: 0, index, of: 2 })
    };
    let fused = "transformer.blocks.{}.attention.projection.qkv";
    let rows = vec![WeightMapping::linear("model.layers.{}.self_attn.qkv_proj", fused), half("gate", 0), half("up", 1)];
    llama::description(keys, stack, [rows, llama::rows()].concat())
}
