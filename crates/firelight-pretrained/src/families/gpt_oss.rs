//! gpt-oss: sinks, windows in every other layer, experts with biases whose gates and ups alternate in the columns of one matrix. The
//! weights in bfloat16; those in MXFP4 are refused.
//!
//! Source: OpenAI 2025, §2 (<https://arxiv.org/abs/2508.10925>), and `modeling_gpt_oss.py` of `transformers`.

use firelight_core::{Activation, ExpertsConfig};
use firelight_storage::InputError;
use serde_json::json;

use super::layer_types::{kinds, patterns};
use super::llama;
use crate::export::{decoder_keys, extended};
use crate::family::{Class, ConfigKeys, Family};
use crate::{Description, Keys, Step, Structure, WeightMapping};

/// Inputs of the gated units are cut off there.
const LIMIT: f64 = 7.0;

pub(crate) const FAMILY: Family = Family { name: "gpt_oss", class: Class::Begins("GptOss"), describe, keys };

fn describe(keys: &Keys<'_>) -> Result<Description, InputError> {
    if keys.section("quantization_config").is_some() {
        return Err(keys.unfit("quantization_config", "weights in bfloat16: save them so with transformers first"));
    }
    keys.only("swiglu_limit", &json!(LIMIT))?;
    let mut experts = ExpertsConfig::new(keys.need("num_local_experts")?);
    experts.top_k = keys.first(&["num_experts_per_tok", "experts_per_token"])?.unwrap_or(4);
    experts.router_bias = true;
    // The softmax is over the chosen ones.
    experts.renormalise = Some(true);
    let kinds = kinds(keys, |layer| layer.is_multiple_of(2))?;
    let stack = llama::stack(keys)?.with_bias(true).with_attention_bias(keys.or("attention_bias", true)?);
    let stack = stack.with_activation(Activation::ClampedSwiGlu).with_attention_sinks(true);
    let stack = stack.with_experts(experts).with_patterns(patterns(keys, &kinds)?);
    llama::description(keys, stack, [rows(), llama::rows()].concat())
}

/// What only this family says.
fn keys(structure: &Structure) -> Option<ConfigKeys> {
    Some(extended(decoder_keys(structure)?, json!({"swiglu_limit": LIMIT})))
}

fn rows() -> Vec<WeightMapping> {
    let (theirs, ours) = ("model.layers.{}.mlp", "transformer.blocks.{}.feed_forward");
    let part = |tensor: &str, part: &str, parameter: &str| {
        let ours = format!("{ours}.experts.{{}}.{part}.{parameter}");
        WeightMapping::tensor(format!("{theirs}.experts.{tensor}"), ours).step(Step::Item)
    };
    let every = |axis, start| Step::Every { axis, start, step: 2 };
    vec![
        WeightMapping::tensor("model.layers.{}.self_attn.sinks", "transformer.blocks.{}.attention.sinks"),
        WeightMapping::linear(format!("{theirs}.router"), format!("{ours}.router")),
        part("gate_up_proj", "gate", "weight").step(every(1, 0)),
        part("gate_up_proj", "up", "weight").step(every(1, 1)),
        part("gate_up_proj_bias", "gate", "bias").step(every(0, 0)),
        part("gate_up_proj_bias", "up", "bias").step(every(0, 1)),
        part("down_proj", "down", "weight"),
        part("down_proj_bias", "down", "bias"),
    ]
}
