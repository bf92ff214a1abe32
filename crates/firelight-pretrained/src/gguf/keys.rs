//! From a `config.json` to the metadata of a GGUF file: `config.rs` backwards.

use std::path::Path;

use firelight_storage::InputError;
use serde_json::{Map, Value as Json};

use super::architecture::Architecture;
use super::metadata::Value;
use super::{Metadata, Shapes, config, rope};

/// Whole numbers by their keys there and here.
const NUMBERS: &[(&str, &[&str])] = &[
    ("context_length", &["max_position_embeddings", "n_positions"]),
    ("embedding_length", &["hidden_size", "n_embd"]),
    ("block_count", &["num_hidden_layers", "n_layer"]),
    ("feed_forward_length", &["intermediate_size", "n_inner"]),
    ("attention.head_count", &["num_attention_heads", "n_head"]),
    ("attention.head_count_kv", &["num_key_value_heads", "n_head"]),
    ("vocab_size", &["vocab_size"]),
];

/// What a file says of the model that a `config.json` describes, the tensors of factors that belong to it, and what llama.cpp reads of it
/// in another way.
///
/// # Errors
/// If no GGUF file can say it.
pub(crate) fn metadata_of(
    keys: &Map<String, Json>,
    architecture: &'static Architecture,
    to: &Path,
) -> Result<(Metadata, Shapes, Vec<String>), InputError> {
    let (mut found, mut tensors) = (Metadata::of(to), Shapes::default());
    let name = architecture.name;
    found.insert("general.architecture", Value::Text(name.into()));
    found.insert("general.type", Value::Text("model".into()));
    for (key, theirs) in NUMBERS {
        if let Some(number) = theirs.iter().find_map(|key| keys.get(*key)?.as_u64()) {
            found.insert(format!("{name}.{key}"), Value::Integer(number.into()));
        }
    }
    let float = |key: &str| keys.get(key).and_then(Json::as_f64);
    let epsilon = match name {
        "gpt2" => ("layer_norm_epsilon", float("layer_norm_epsilon")),
        "gptneox" => ("layer_norm_epsilon", float("layer_norm_eps")),
        _ => ("layer_norm_rms_epsilon", float("rms_norm_eps")),
    };
    if let (key, Some(epsilon)) = epsilon {
        found.insert(format!("{name}.attention.{key}"), Value::Float(epsilon));
    }
    if name != "gpt2" {
        add_rotary(keys, name, (&mut found, &mut tensors))?;
    }
    match name {
        "gptneox" => add_flag(keys, "use_parallel_residual", name, &mut found),
        "gemma2" | "gemma3" => add_gemma(keys, name, &mut found),
        "llama" if keys.get("model_type").is_some_and(|kind| kind == "mistral") => add_window(keys, name, &mut found),
        "phi3" => add_window(keys, name, &mut found),
        _ => {}
    }
    let warnings = warnings(keys, name, &found)?;
    Ok((found, tensors, warnings))
}

/// What a file would be read as.
pub(crate) fn read_back(metadata: &Metadata, tensors: &Shapes) -> Result<Json, InputError> {
    config::config(metadata, tensors)
}

/// What llama.cpp reads in another way than a file says it: it keeps rules of its own for it.
fn warnings(keys: &Map<String, Json>, name: &str, found: &Metadata) -> Result<Vec<String>, InputError> {
    let mut warnings = Vec::new();
    let number = |key: &str| found.number(&format!("{name}.{key}"));
    if let ("llama", Some(window)) = (name, number("attention.sliding_window")?) {
        warnings.push(format!(
            "llama.cpp does not read the window of {window} tokens: it computes longer texts in another way"
        ));
    }
    if found.flags(&format!("{name}.attention.sliding_window_pattern")).is_some() {
        warnings.push("llama.cpp reads another pattern of windows: it knows those alone that repeat and end with a layer that sees the whole text".into());
    }
    let scalar = keys.get("query_pre_attn_scalar").and_then(Json::as_f64).filter(|_| name.starts_with("gemma"));
    if let Some(scalar) = scalar {
        let number = |key: &str| number(key).map(Option::unwrap_or_default);
        let [layers, width] = [number("block_count")?, number("embedding_length")?];
        let [heads, d_head] = [number("attention.head_count")?, number("attention.key_length")?];
        let usual = config::usual_scalar(name, [layers, width, heads, d_head]);
        if (scalar - usual as f64).abs() > 1e-6 * scalar.abs() {
            warnings.push(format!(
                "llama.cpp divides scores by the root of {usual} and does not read {name}.attention.scale: this model divides them by the root of {scalar}"
            ));
        }
    }
    Ok(warnings)
}

fn add_flag(keys: &Map<String, Json>, key: &str, name: &str, found: &mut Metadata) {
    if let Some(flag) = keys.get(key).and_then(Json::as_bool) {
        found.insert(format!("{name}.{key}"), Value::Flag(flag));
    }
}

fn add_window(keys: &Map<String, Json>, name: &str, found: &mut Metadata) {
    if let Some(window) = keys.get("sliding_window").and_then(Json::as_u64) {
        found.insert(format!("{name}.attention.sliding_window"), Value::Integer(window.into()));
    }
}

/// The width of heads, and how they turn.
fn add_rotary(keys: &Map<String, Json>, name: &str, into: (&mut Metadata, &mut Shapes)) -> Result<(), InputError> {
    let number = |key: &str| keys.get(key).and_then(Json::as_u64).unwrap_or(0);
    let d_head = match keys.get("head_dim").and_then(Json::as_u64) {
        Some(width) => width,
        None => number("hidden_size") / number("num_attention_heads").max(1),
    };
    let (metadata, tensors) = into;
    for key in ["key_length", "value_length"] {
        metadata.insert(format!("{name}.attention.{key}"), Value::Integer(d_head.into()));
    }
    let all = keys.get("rope_parameters").unwrap_or(&Json::Null);
    let far = all.get("full_attention").unwrap_or(all);
    let share = far["partial_rotary_factor"].as_f64().unwrap_or(1.0);
    let turned = (d_head as f64 * share).round() as u64;
    metadata.insert(format!("{name}.rope.dimension_count"), Value::Integer(turned.into()));
    if let Some(near) = all["sliding_attention"]["rope_theta"].as_f64() {
        metadata.insert(format!("{name}.rope.freq_base_swa"), Value::Float(near));
    }
    let to = metadata.file().to_path_buf();
    rope::write(far, name, turned as usize, (metadata, tensors)).map_err(|kind| {
        InputError::in_file(&to, format!("cannot say that rotations are stretched as \"{kind}\""))
            .advise("export the model into a folder: give a path that does not end in .gguf")
    })
}

fn add_gemma(keys: &Map<String, Json>, name: &str, found: &mut Metadata) {
    add_window(keys, name, found);
    let float = |key: &str| keys.get(key).and_then(Json::as_f64);
    for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
        if let Some(cap) = float(key) {
            found.insert(format!("{name}.{key}"), Value::Float(cap));
        }
    }
    if let Some(scalar) = float("query_pre_attn_scalar") {
        found.insert(format!("{name}.attention.scale"), Value::Float(scalar.powf(-0.5)));
    }
    if let Some(kinds) = keys.get("layer_types").and_then(Json::as_array) {
        found.insert(format!("{name}.attention.sliding_window_pattern"), rope::windows(kinds));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is written of a model of these keys, what that is read as, and the warnings.
    fn written(architecture: &str, more: &Json) -> (Metadata, Json, Vec<String>) {
        let keys = json!({
            "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
            "intermediate_size": 24, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "vocab_size": 48,
        });
        let mut keys = keys.as_object().cloned().unwrap();
        keys.extend(more.as_object().cloned().unwrap());
        let architecture = Architecture::of_family(architecture).unwrap();
        let (metadata, mut shapes, warnings) = metadata_of(&keys, architecture, Path::new("a.gguf")).unwrap();
        shapes.shapes.insert("token_embd.weight".into(), vec![48, 16]);
        let read = read_back(&metadata, &shapes).unwrap();
        (metadata, read, warnings)
    }

    #[test]
    fn windows_of_gemma_are_a_number_or_a_list_that_is_told() {
        let [near, far] = ["sliding_attention", "full_attention"];
        let gemma = |family: &str, kinds: &[&str]| {
            written(family, &json!({"sliding_window": 3, "query_pre_attn_scalar": 4, "layer_types": kinds}))
        };
        for (family, key) in [("gemma2", "gemma2"), ("gemma3_text", "gemma3")] {
            let key = format!("{key}.attention.sliding_window_pattern");
            let (metadata, read, warnings) = gemma(family, &[near, near, far, near]);
            assert_eq!(metadata.get(&key), Some(&Value::Integer(3)));
            assert_eq!((&read["sliding_window_pattern"], warnings), (&json!(3), Vec::new()));
            let (metadata, read, warnings) = gemma(family, &[far, near, far, near]);
            assert_eq!(metadata.flags(&key), Some(&[false, true, false, true][..]));
            assert_eq!(read["layer_types"], json!([far, near, far, near]));
            assert!(
                warnings.len() == 1 && warnings[0].contains("llama.cpp reads another pattern of windows"),
                "{warnings:?}"
            );
        }
    }

    #[test]
    fn a_scale_that_llama_cpp_does_not_read_is_told() {
        let (metadata, read, warnings) = written("gemma2", &json!({"sliding_window": 3, "query_pre_attn_scalar": 9}));
        assert_eq!(metadata.float("gemma2.attention.scale"), Ok(Some(0.333_333_34)));
        assert_eq!(read["query_pre_attn_scalar"], json!(9));
        assert!(
            warnings.len() == 1 && warnings[0].contains("the root of 4 and does not read gemma2.attention.scale"),
            "{warnings:?}"
        );
        assert_eq!(config::usual_scalar("gemma2", [46, 4608, 32, 128]), 144, "the 27 billion parameters");
        assert_eq!(config::usual_scalar("gemma3", [46, 4608, 32, 128]), 128);
    }

    #[test]
    fn a_window_of_mistral_is_told() {
        let (_, read, warnings) = written("mistral", &json!({"model_type": "mistral", "sliding_window": 3}));
        assert_eq!((&read["model_type"], &read["sliding_window"]), (&json!("mistral"), &json!(3)));
        assert!(warnings.len() == 1 && warnings[0].contains("does not read the window of 3 tokens"), "{warnings:?}");
        assert_eq!(written("mistral", &json!({"model_type": "mistral"})).2, [""; 0]);
    }

    #[test]
    fn the_growth_of_longrope_is_always_said_and_read_where_it_is_a_model_s_own() {
        let rope = json!({"rope_type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [1.0, 3.0],
            "original_max_position_embeddings": 16});
        let phi = |growth: Option<f64>| {
            let mut rope = rope.clone();
            rope["attention_factor"] = json!(growth);
            let (metadata, read, _) = written("phi3", &json!({"rope_parameters": rope}));
            let said = metadata.float("phi3.rope.scaling.attn_factor").unwrap().unwrap();
            (said, read["rope_parameters"]["attention_factor"].clone())
        };
        let (said, read) = phi(None);
        assert!(
            (said - 1.5_f64.sqrt()).abs() < 1e-6 && read.is_null(),
            "1 + ln 4 / ln 16, found {said}, read as {read}"
        );
        assert_eq!(phi(Some(1.25)), (1.25, json!(1.25)));
    }

    #[test]
    fn a_share_of_a_head_is_the_number_of_channels_that_it_was_made_of() {
        for turned in 0..=100_u64 {
            let rope = json!({"rope_type": "default", "partial_rotary_factor": turned as f64 / 100.0});
            let (metadata, ..) = written("llama", &json!({"head_dim": 100, "rope_parameters": rope}));
            assert_eq!(metadata.number("llama.rope.dimension_count"), Ok(Some(turned as usize)));
        }
    }

    #[test]
    fn heads_and_channels_that_cannot_be_are_refused() {
        let (metadata, ..) = written("llama", &json!({}));
        let mut shapes = Shapes::default();
        shapes.shapes.insert("token_embd.weight".into(), vec![48, 16]);
        let refused = |key: &str, number: i128| {
            let mut metadata = metadata.clone();
            metadata.insert(key, Value::Integer(number));
            read_back(&metadata, &shapes).unwrap_err().to_string()
        };
        for key in ["llama.attention.head_count", "llama.attention.head_count_kv"] {
            let error = refused(key, 0);
            assert!(error.contains(&format!("has {key} = 0: expected 1 to 65536 heads")), "{error}");
        }
        let error = refused("llama.rope.dimension_count", 5);
        assert!(error.contains("expected at most 4, the width of a head"), "{error}");
    }
}
