//! `recipe.toml` of an imported model: the structure as a training asks for it, so that one can begin from the model, and what measures
//! a run finds what it needs.

use firelight_core::{TransformerConfig, VisionTransformerConfig};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::Structure;

const HEAD: &str = "# Written for an imported model: its structure, to begin trainings from.\n\n";

/// The recipe of a structure.
pub(crate) fn recipe(structure: &Structure) -> String {
    let mut keys = json!({ "task": structure.task(), "model": own(structure) });
    keys["model"].as_object_mut().into_iter().for_each(|model| model.extend(stack(structure.stacks()[0])));
    let keys = without_nulls(keys);
    HEAD.to_string() + &toml::to_string(&keys).unwrap_or_default()
}

fn stack(stack: &TransformerConfig) -> Map<String, Value> {
    value(stack).as_object().cloned().unwrap_or_default()
}

fn value(part: &impl Serialize) -> Value {
    serde_json::to_value(part).unwrap_or_default()
}

/// The keys that are not the stack's.
fn own(structure: &Structure) -> Value {
    match structure {
        Structure::Language(model) => json!({
            "tied": model.tied,
            "scale_embedding": value(&model.scale_embedding),
            "head": value(&model.head),
        }),
        Structure::Encoder(model) => json!({ "n_segments": model.encoder.n_segments }),
        Structure::Masked(model) => json!({ "n_segments": model.encoder.n_segments, "tied": model.head.tied }),
        Structure::Sequence(model) => json!({
            "n_segments": model.encoder.n_segments,
            "pooling": value(&model.head.pooler.pooling),
            "pooler": value(&model.head.pooler.dense),
            "head_dropout": model.head.dropout,
        }),
        Structure::Token(model) => {
            json!({ "n_segments": model.encoder.n_segments, "head_dropout": model.head.dropout })
        }
        Structure::Seq2Seq(model) => json!({
            "tying": value(&model.tying),
            "scale_embedding": value(&model.scale_embedding),
            "head": value(&model.head),
        }),
        Structure::Image(model) => image(&model.vit),
        Structure::ImageEncoder(model) => image(&model.vit),
        Structure::ImageText(model) => image(&model.vit),
        Structure::Span(model) => json!({ "n_segments": model.encoder.n_segments }),
    }
}

fn image(vit: &VisionTransformerConfig) -> Value {
    json!({
        "patch_size": vit.patch_size,
        "patch_bias": vit.patch_bias,
        "pooling": value(&vit.pooling),
        "patch_position": value(&vit.patch_position),
        "patch_coordinates": value(&vit.patch_coordinates),
    })
}

/// TOML has no null: what is not said is left out.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(keys) => {
            let said = keys.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(said.map(|(key, value)| (key, without_nulls(value))).collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(without_nulls).collect()),
        other => other,
    }
}
