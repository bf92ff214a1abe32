//! Rotary positions as `config.json` says them: `rope_theta` and `rope_scaling`, or since version 5 of `transformers` both in
//! `rope_parameters`.

use firelight_core::{RotaryConfig, RotaryScaling};
use firelight_storage::InputError;

use crate::Keys;

/// The rotary positions of heads of `d_head` channels; of layers of the kind `layer_type`, where these differ.
pub(super) fn rotary(keys: &Keys<'_>, layer_type: Option<&str>, d_head: usize) -> Result<RotaryConfig, InputError> {
    let parameters = keys.section("rope_parameters").or_else(|| keys.section("rope_scaling"));
    let nested = || parameters.as_ref()?.section(layer_type?);
    let section = nested().or_else(|| parameters.clone()).unwrap_or_else(|| keys.clone());
    let theta = section.get("rope_theta")?.or(keys.first(&["rope_theta", "rotary_emb_base"])?).unwrap_or(10_000.0);
    let share = section.get::<f64>("partial_rotary_factor")?;
    let share = share.or(keys.first(&["partial_rotary_factor", "rotary_pct"])?).unwrap_or(1.0);
    let rotary = RotaryConfig::default().with_theta(theta);
    let rotary = if share < 1.0 { rotary.with_width((d_head as f64 * share).round() as usize) } else { rotary };
    Ok(rotary.with_scaling(scaling(keys, &section)?))
}

fn scaling(keys: &Keys<'_>, section: &Keys<'_>) -> Result<RotaryScaling, InputError> {
    let kind: Option<String> = section.first(&["rope_type", "type"])?;
    let original = || -> Result<usize, InputError> {
        let named = section.get("original_max_position_embeddings")?;
        named.or(keys.get("original_max_position_embeddings")?).map_or_else(|| keys.need("max_position_embeddings"), Ok)
    };
    let attention_factor = section.get("attention_factor")?;
    Ok(match kind.as_deref().unwrap_or("default") {
        "default" => RotaryScaling::None,
        "linear" => RotaryScaling::Linear { factor: section.need("factor")? },
        "dynamic" => RotaryScaling::Dynamic { factor: section.need("factor")?, original_max_seq_len: original()? },
        "llama3" => RotaryScaling::Llama3 {
            factor: section.need("factor")?,
            original_max_seq_len: original()?,
            low_freq_factor: section.need("low_freq_factor")?,
            high_freq_factor: section.need("high_freq_factor")?,
        },
        "yarn" => yarn(section, original()?)?,
        // The older name of Phi-3's folders is "su".
        "longrope" | "su" => {
            let original_max_seq_len = original()?;
            let longest: usize = keys.need("max_position_embeddings")?;
            RotaryScaling::LongRope {
                factor: section.get("factor")?.unwrap_or(longest as f64 / original_max_seq_len.max(1) as f64),
                original_max_seq_len,
                short_factor: section.need("short_factor")?,
                long_factor: section.need("long_factor")?,
                attention_factor,
            }
        }
        _ => {
            let key = if section.get::<String>("rope_type")?.is_some() { "rope_type" } else { "type" };
            return Err(section.unfit(key, "default, linear, dynamic, llama3, yarn or longrope"));
        }
    })
}

fn yarn(section: &Keys<'_>, original_max_seq_len: usize) -> Result<RotaryScaling, InputError> {
    let factor = section.need("factor")?;
    // DeepSeek gives two factors, of which only their quotient counts here; the square of the second is in the scores.
    let of_both = |mscale: f64, all: f64| RotaryScaling::mscale(factor, mscale) / RotaryScaling::mscale(factor, all);
    let both = section.get("mscale")?.zip(section.get("mscale_all_dim")?);
    Ok(RotaryScaling::Yarn {
        factor,
        original_max_seq_len,
        beta_fast: section.or("beta_fast", 32.0)?,
        beta_slow: section.or("beta_slow", 1.0)?,
        truncate: section.or("truncate", true)?,
        attention_factor: section.get("attention_factor")?.or(both.map(|(mscale, all)| of_both(mscale, all))),
    })
}
