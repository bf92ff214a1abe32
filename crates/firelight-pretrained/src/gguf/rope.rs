//! How rotations are stretched: keys and tensors of factors on one side, `rope_parameters` on the other.

use std::f64::consts::TAU;

use firelight_storage::InputError;
use serde_json::{Value as Json, json};

use super::Shapes;
use super::config::Said;
use super::metadata::{List, Metadata, Value, shortest};

/// The length of texts that LLaMA 3 was trained on before it was stretched, and the waves that its factors keep and stretch.
const LLAMA_3: [f64; 3] = [8192.0, 1.0, 4.0];

/// The factors of LLaMA 3, one for each pair of channels. Source: Grattafiori et al. 2024, and `_compute_llama3_parameters` of
/// `transformers`.
fn llama3_factors(theta: f64, width: usize, factor: f64, [original, low, high]: [f64; 3]) -> Vec<f32> {
    let of_pair = |pair: usize| {
        let wave = TAU * theta.powf(2.0 * pair as f64 / width as f64);
        match original / wave {
            turns if turns > high => 1.0,
            turns if turns < low => factor,
            turns => {
                let smooth = (turns - low) / (high - low);
                1.0 / ((1.0 - smooth) / factor + smooth)
            }
        }
    };
    (0..width / 2).map(|pair| of_pair(pair) as f32).collect()
}

/// `rope_parameters` of a file; `width` channels of each head turn.
pub(super) fn parameters(said: &Said<'_>, width: usize) -> Result<Json, InputError> {
    let theta = said.float("rope.freq_base")?.unwrap_or(10_000.0);
    let mut found = scaling(said, theta, width)?;
    found["rope_theta"] = json!(theta);
    Ok(found)
}

fn scaling(said: &Said<'_>, theta: f64, width: usize) -> Result<Json, InputError> {
    let factors = |name: &str| said.tensors.factors.get(name);
    if let Some(all) = factors("rope_freqs.weight") {
        return of_factors(said, all, theta, width);
    }
    if let [Some(long), Some(short)] = ["rope_factors_long.weight", "rope_factors_short.weight"].map(factors) {
        return long_rope(said, long, short);
    }
    let factor = said.float("rope.scaling.factor")?;
    match (said.text("rope.scaling.type")?, factor) {
        (None | Some("none"), _) => Ok(match said.float("rope.scale_linear")?.filter(|factor| *factor != 1.0) {
            Some(factor) => json!({"rope_type": "linear", "factor": factor}),
            None => json!({"rope_type": "default"}),
        }),
        (Some(_), None) => Err(said.unfit("rope.scaling.factor", "a number, as rope.scaling.type is there")),
        (Some("linear"), Some(factor)) => Ok(json!({"rope_type": "linear", "factor": factor})),
        (Some("yarn"), Some(factor)) => yarn(said, factor),
        _ => Err(said.unfit("rope.scaling.type", "none, linear or yarn, or tensors of factors")),
    }
}

/// LLaMA 3's own numbers where the factors are made of them, else the factors themselves, which stretch texts of every length.
fn of_factors(said: &Said<'_>, factors: &[f32], theta: f64, width: usize) -> Result<Json, InputError> {
    let factor = shortest(factors.iter().copied().fold(1.0, f32::max));
    let original = said.number("rope.scaling.original_context_length")?.map_or(LLAMA_3[0], |length| length as f64);
    let is_close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-4 * b.abs();
    // Of another number of factors none are made: the width is not checked yet.
    let is_made = factors.len() == width / 2 && {
        let made = llama3_factors(theta, width, factor, [original, LLAMA_3[1], LLAMA_3[2]]);
        made.iter().zip(factors).all(is_close)
    };
    if is_made {
        return Ok(json!({
            "rope_type": "llama3", "factor": factor, "original_max_position_embeddings": original as u64,
            "low_freq_factor": LLAMA_3[1], "high_freq_factor": LLAMA_3[2],
        }));
    }
    let factors: Vec<f64> = factors.iter().copied().map(shortest).collect();
    Ok(json!({
        "rope_type": "longrope", "factor": 1.0, "short_factor": factors, "long_factor": factors, "attention_factor": 1.0,
        "original_max_position_embeddings": said.need("context_length")?,
    }))
}

fn long_rope(said: &Said<'_>, long: &[f32], short: &[f32]) -> Result<Json, InputError> {
    let [long, short] = [long, short].map(|factors| factors.iter().copied().map(shortest).collect::<Vec<f64>>());
    let original = said.need("rope.scaling.original_context_length")?;
    let usual = usual_growth(said.need("context_length")?, original);
    // A file always says it; what both lengths make of it anyway is no number of the model's own.
    let is_own = |growth: &f64| (growth - usual).abs() > usual * f64::from(f32::EPSILON);
    Ok(json!({
        "rope_type": "longrope", "short_factor": short, "long_factor": long,
        "attention_factor": said.float("rope.scaling.attn_factor")?.filter(is_own),
        "original_max_position_embeddings": original,
    }))
}

/// By what queries and keys grow with LongRoPE where a model does not say it. Source: `Phi3MiniModel` in `convert_hf_to_gguf.py` of
/// llama.cpp.
fn usual_growth(longest: usize, original: usize) -> f64 {
    let times = longest as f64 / original as f64;
    if times > 1.0 { (1.0 + times.ln() / (original as f64).ln()).sqrt() } else { 1.0 }
}

fn yarn(said: &Said<'_>, factor: f64) -> Result<Json, InputError> {
    // There the factor of attention multiplies what YaRN makes of the factor of lengths.
    let grown = |times: f64| times * (0.1 * factor.ln() + 1.0);
    Ok(json!({
        "rope_type": "yarn", "factor": factor,
        "original_max_position_embeddings": said.need("rope.scaling.original_context_length")?,
        "beta_fast": said.float("rope.scaling.yarn_beta_fast")?,
        "beta_slow": said.float("rope.scaling.yarn_beta_slow")?,
        "attention_factor": said.float("rope.scaling.attn_factor")?.map(grown),
    }))
}

/// Writes `rope_parameters` as keys of an architecture and tensors of factors; the error is the type that no file can say.
pub(super) fn write(
    parameters: &Json,
    architecture: &str,
    width: usize,
    into: (&mut Metadata, &mut Shapes),
) -> Result<(), String> {
    let (metadata, tensors) = into;
    let longest = metadata.number(&format!("{architecture}.context_length")).ok().flatten();
    let original = parameters["original_max_position_embeddings"].as_u64();
    let number = |key: &str| parameters[key].as_f64();
    let mut key = |name: &str, value: Option<f64>| {
        if let Some(value) = value {
            metadata.insert(format!("{architecture}.rope.{name}"), Value::Float(value));
        }
    };
    let theta = number("rope_theta").unwrap_or(10_000.0);
    key("freq_base", Some(theta));
    let kind = parameters["rope_type"].as_str().unwrap_or("default");
    let lists = ["long_factor", "short_factor"].map(|list| floats(&parameters[list]));
    let mut keep = |name: &str, factors: Vec<f32>| {
        tensors.shapes.insert(name.into(), vec![factors.len()]);
        tensors.factors.insert(name.into(), factors);
    };
    match (kind, lists) {
        ("default", _) => {}
        ("linear", _) => key("scaling.factor", number("factor")),
        ("yarn", _) => {
            let factor = number("factor").unwrap_or(1.0);
            key("scaling.factor", Some(factor));
            key("scaling.yarn_beta_fast", number("beta_fast"));
            key("scaling.yarn_beta_slow", number("beta_slow"));
            key("scaling.attn_factor", number("attention_factor").map(|grown| grown / (0.1 * factor.ln() + 1.0)));
        }
        ("llama3", _) => {
            let of = ["original_max_position_embeddings", "low_freq_factor", "high_freq_factor"].map(number);
            let [Some(original), Some(low), Some(high)] = of else { return Err(kind.into()) };
            let factor = number("factor").unwrap_or(1.0);
            keep("rope_freqs.weight", llama3_factors(theta, width, factor, [original, low, high]));
        }
        ("longrope", [long, short]) if architecture == "phi3" => {
            keep("rope_factors_long.weight", long);
            keep("rope_factors_short.weight", short);
            let usual = longest.zip(original).map(|(longest, original)| usual_growth(longest, original as usize));
            key("scaling.attn_factor", number("attention_factor").or(usual));
        }
        ("longrope", [long, short]) if long == short && number("attention_factor") == Some(1.0) => {
            keep("rope_freqs.weight", long);
            return Ok(());
        }
        (other, _) => return Err(other.into()),
    }
    if ["linear", "yarn"].contains(&kind) {
        metadata.insert(format!("{architecture}.rope.scaling.type"), Value::Text(kind.into()));
    }
    if let Some(original) = original {
        let key = format!("{architecture}.rope.scaling.original_context_length");
        metadata.insert(key, Value::Integer(original.into()));
    }
    Ok(())
}

fn floats(list: &Json) -> Vec<f32> {
    list.as_array().into_iter().flatten().filter_map(Json::as_f64).map(|number| number as f32).collect()
}

/// Which layers look at a window: as a number where all do but the last of every so many, else as a list.
pub(super) fn windows(kinds: &[Json]) -> Value {
    let flags: Vec<bool> = kinds.iter().map(|kind| kind == "sliding_attention").collect();
    // Of layers that all look at a window, the number is 0.
    let interval = flags.iter().position(|flag| !flag).map_or(0, |first| first + 1);
    let is_last = |layer: usize| interval > 0 && (layer + 1).is_multiple_of(interval);
    match flags.iter().enumerate().all(|(layer, flag)| *flag != is_last(layer)) {
        true => Value::Integer(interval as i128),
        false => Value::List(List::Flags(flags)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_and_keys_grow_with_the_length_of_texts() {
        assert!((usual_growth(64, 16) - 1.5_f64.sqrt()).abs() < 1e-15, "1 + ln 4 / ln 16");
        assert_eq!((usual_growth(16, 16), usual_growth(8, 16)), (1.0, 1.0));
    }

    #[test]
    fn windows_are_a_number_where_every_so_many_layers_end_with_one_that_sees_all() {
        let windows = |kinds: &str| {
            let name = |kind| if kind == 's' { "sliding_attention" } else { "full_attention" };
            windows(&kinds.chars().map(|kind| json!(name(kind))).collect::<Vec<_>>())
        };
        for (kinds, interval) in [("sf", 2), ("ssfs", 3), ("ssfssf", 3), ("fff", 1), ("ss", 0)] {
            assert_eq!(windows(kinds), Value::Integer(interval), "{kinds}");
        }
        for kinds in ["fs", "sff", "ssfsfs"] {
            let flags = kinds.chars().map(|kind| kind == 's').collect();
            assert_eq!(windows(kinds), Value::List(List::Flags(flags)), "{kinds}");
        }
    }

    /// By hand: waves of 2π and 2π·10; turns within 20 are 3.18 and 0.318.
    #[test]
    fn the_factors_of_llama_3_keep_short_waves_and_stretch_long_ones() {
        let found = llama3_factors(100.0, 4, 8.0, [20.0, 1.0, 3.0]);
        assert_eq!(found, [1.0, 8.0]);
        let [between, long] = llama3_factors(100.0, 4, 8.0, [20.0, 1.0, 4.0])[..] else { panic!("two pairs") };
        let smooth = (20.0 / TAU - 1.0) / 3.0;
        assert!((f64::from(between) - 1.0 / ((1.0 - smooth) / 8.0 + smooth)).abs() < 1e-6, "{between}");
        assert_eq!(long, 8.0);
    }
}
