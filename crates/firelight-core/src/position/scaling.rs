//! Stretching rotary positions: a model trained on short texts reads longer ones when its channels turn more slowly.
//!
//! Sources: linear, Chen et al. 2023, §2.3, eq. 4 (<https://arxiv.org/abs/2306.15595>); NTK-aware and YaRN, Peng et al.
//! 2024, §3.1 and §3.2 to §3.4 (<https://arxiv.org/abs/2309.00071>); Llama 3, the published code of its release 3.1.
//! `factor` is their `s`, `beta_fast` and `beta_slow` YaRN's `β` and `α`. As in the published YaRN code, the ramp between
//! kept and stretched channels is linear in the channel, its ends rounded outwards to whole channels; gpt-oss leaves them as
//! they are (`truncate = false`).

use super::frequencies;
use crate::error::Checks;
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

/// How the frequencies of rotary positions are stretched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum RotaryScaling {
    /// As they were trained.
    #[default]
    None,
    /// Every channel turns `factor` times slower.
    Linear {
        /// How many times longer the texts are.
        factor: f64,
    },
    /// The base grows to `theta * factor^(E / (E - 2))`: the fastest channel is kept, the slowest turns `factor` times
    /// slower.
    Ntk {
        /// How many times longer the texts are.
        factor: f64,
    },
    /// Fast channels are kept, slow ones stretched, with a ramp between, and queries and keys grow a little.
    Yarn {
        /// How many times longer the texts are.
        factor: f64,
        /// Longest text in tokens that the model was trained on.
        original_max_seq_len: usize,
        /// Channels that turn more often than this within the original length are kept. Default: 32.
        #[serde(default = "beta_fast")]
        beta_fast: f64,
        /// Channels that turn less often than this are stretched by the whole factor. Default: 1.
        #[serde(default = "beta_slow")]
        beta_slow: f64,
        /// Whether the ends of the ramp are rounded outwards to whole channels. Default: true; gpt-oss: false.
        #[serde(default = "truncate")]
        truncate: bool,
        /// By what queries and keys grow. Default: `0.1 ln(factor) + 1` (§3.4).
        ///
        /// DeepSeek gives `mscale` and `mscale_all_dim` in its place, from which
        /// [`mscale`](RotaryScaling::mscale) makes the factor.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attention_factor: Option<f64>,
    },
    /// Short waves are kept, long ones stretched, with a smooth passage between.
    Llama3 {
        /// How many times longer the texts are.
        factor: f64,
        /// Longest text in tokens that the model was trained on.
        original_max_seq_len: usize,
        /// Waves that fit less often than this into the original length are stretched by the whole factor.
        low_freq_factor: f64,
        /// Waves that fit more often than this are kept.
        high_freq_factor: f64,
    },
}

fn beta_fast() -> f64 {
    32.0
}

fn beta_slow() -> f64 {
    1.0
}

fn truncate() -> bool {
    true
}

impl RotaryScaling {
    /// YaRN with its default ramp.
    pub fn yarn(factor: f64, original_max_seq_len: usize) -> Self {
        Self::Yarn {
            factor,
            original_max_seq_len,
            beta_fast: beta_fast(),
            beta_slow: beta_slow(),
            truncate: truncate(),
            attention_factor: None,
        }
    }

    /// YaRN's growth of queries and keys, `0.1 mscale ln(factor) + 1` (§3.4, where `mscale` is 1).
    ///
    /// A published DeepSeek model gives two numbers. Its attention factor is their quotient, and its scores are scaled by the
    /// square of the second beside the usual root:
    ///
    /// ```
    /// use firelight_core::{RotaryScaling, ScoreScale};
    ///
    /// let (factor, [mscale, mscale_all_dim], d_head) = (40.0, [0.707, 0.707], 192.0_f64);
    /// let all = RotaryScaling::mscale(factor, mscale_all_dim);
    /// let attention_factor = RotaryScaling::mscale(factor, mscale) / all; // For `RotaryScaling::Yarn`.
    /// let attention_scale = ScoreScale::Constant(all * all / d_head.sqrt());
    /// assert_eq!(attention_factor, 1.0);
    /// assert!(matches!(attention_scale, ScoreScale::Constant(scale) if (scale - 0.114_721).abs() < 1e-6));
    /// ```
    #[doc(alias = "mscale_all_dim")]
    pub fn mscale(factor: f64, mscale: f64) -> f64 {
        0.1 * mscale * factor.ln().max(0.0) + 1.0
    }

    /// Notes a factor or a border that is no number to stretch by.
    pub(super) fn check(&self, checks: Checks) -> Checks {
        let factor = match *self {
            Self::None => return checks,
            Self::Linear { factor } | Self::Ntk { factor } => factor,
            Self::Yarn { factor, .. } | Self::Llama3 { factor, .. } => factor,
        };
        let checks = checks.require(factor >= 1.0 && factor.is_finite(), || {
            format!("position.scaling.factor = {factor} must be at least 1")
        });
        match *self {
            Self::Yarn { original_max_seq_len, beta_fast, beta_slow, attention_factor, .. } => {
                let checks = positive(checks, attention_factor);
                ordered(checks, original_max_seq_len, ["beta_slow", "beta_fast"], [beta_slow, beta_fast])
            }
            Self::Llama3 { original_max_seq_len, low_freq_factor: low, high_freq_factor: high, .. } => {
                ordered(checks, original_max_seq_len, ["low_freq_factor", "high_freq_factor"], [low, high])
            }
            _ => checks,
        }
    }

    /// The frequencies of `width` channels, in radians per token, the fastest first.
    pub(super) fn frequencies(&self, theta: f64, width: usize) -> Vec<f64> {
        let plain = frequencies(theta, width);
        match *self {
            Self::None => plain,
            Self::Linear { factor } => plain.into_iter().map(|f| f / factor).collect(),
            Self::Ntk { .. } if width <= 2 => plain, // One pair is the fastest.
            Self::Ntk { factor } => frequencies(theta * factor.powf(width as f64 / (width as f64 - 2.0)), width),
            Self::Yarn { factor, original_max_seq_len, beta_fast, beta_slow, truncate, .. } => {
                let channel =
                    |turns: f64| width as f64 * (original_max_seq_len as f64 / (turns * TAU)).ln() / (2.0 * theta.ln());
                let ends = [channel(beta_fast), channel(beta_slow)];
                let [low, high] = if truncate { [ends[0].floor(), ends[1].ceil()] } else { ends };
                let (low, high) = (low.max(0.0), high.min(width as f64 - 1.0));
                let span = if low == high { 0.001 } else { high - low };
                let stretched = |i: usize| ((i as f64 - low) / span).clamp(0.0, 1.0);
                plain.iter().enumerate().map(|(i, f)| blend(*f, factor, stretched(i))).collect()
            }
            Self::Llama3 { factor, original_max_seq_len, low_freq_factor, high_freq_factor } => {
                let waves = |f: f64| original_max_seq_len as f64 * f / TAU;
                let kept = |f| ((waves(f) - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0.0, 1.0);
                plain.into_iter().map(|f| blend(f, factor, 1.0 - kept(f))).collect()
            }
        }
    }

    /// By what queries and keys grow.
    pub(super) fn attention_factor(&self) -> f64 {
        match *self {
            Self::Yarn { factor, attention_factor, .. } => attention_factor.unwrap_or(Self::mscale(factor, 1.0)),
            _ => 1.0,
        }
    }
}

/// A frequency of which the share `stretched` is divided by `factor`.
fn blend(frequency: f64, factor: f64, stretched: f64) -> f64 {
    frequency * (1.0 - stretched) + frequency / factor * stretched
}

fn positive(checks: Checks, attention_factor: Option<f64>) -> Checks {
    let factor = attention_factor.unwrap_or(1.0);
    checks.require(factor > 0.0 && factor.is_finite(), || {
        format!("position.scaling.attention_factor = {factor} must be above 0")
    })
}

fn ordered(checks: Checks, length: usize, [low, high]: [&str; 2], [least, most]: [f64; 2]) -> Checks {
    checks
        .size("position.scaling.original_max_seq_len", length)
        .require(0.0 < least && least < most && most.is_finite(), || {
            format!("position.scaling.{low} = {least} must be above 0 and below {high} = {most}")
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_kernels::assert_close;

    #[test]
    fn frequencies_by_hand() {
        // theta 16 and four channels: 1 and 1 / 4.
        let of = |scaling: RotaryScaling| scaling.frequencies(16.0, 4);
        assert_eq!(of(RotaryScaling::None), [1.0, 0.25]);
        assert_eq!(of(RotaryScaling::Linear { factor: 2.0 }), [0.5, 0.125]);
        assert_eq!(of(RotaryScaling::Ntk { factor: 2.0 }), [1.0, 0.125]); // The base is 16 * 2^2.
    }

    #[test]
    fn a_ramp_begins_and_ends_at_whole_channels_or_where_it_is_computed() {
        // theta e^4 and 8 channels: channel(turns) = ln(length / (turns 2π)). With length 2π e^2.5 the ramp goes from .5 for e^2
        // turns to 2.5 for one; rounded outwards from 0 to 3.
        let plain = frequencies(4f64.exp(), 8);
        let stretched = |truncate| {
            let ends = [2.5 - 2.0, 2.5];
            let length = 1_000_000; // Long enough that its rounding does not show.
            let [beta_fast, beta_slow] = ends.map(|channel: f64| length as f64 / (TAU * channel.exp()));
            let (factor, attention_factor) = (2.0, Some(1.5));
            let scaling = RotaryScaling::Yarn {
                factor,
                original_max_seq_len: length,
                beta_fast,
                beta_slow,
                truncate,
                attention_factor,
            };
            assert_eq!(scaling.attention_factor(), 1.5);
            let ratios = scaling.frequencies(4f64.exp(), 8).into_iter().zip(&plain).map(|(found, plain)| found / plain);
            ratios.map(|ratio| 2.0 * (1.0 - ratio)).collect::<Vec<f64>>() // The share that is stretched.
        };
        assert_close(&stretched(true), &[0.0, 1.0 / 3.0, 2.0 / 3.0, 1.0], 1e-9);
        assert_close(&stretched(false), &[0.0, 0.25, 0.75, 1.0], 1e-9);
    }

    #[test]
    fn a_factor_of_one_changes_nothing() {
        let (length, plain) = (64, frequencies(10_000.0, 16));
        let llama = |factor| RotaryScaling::Llama3 {
            factor,
            original_max_seq_len: length,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
        };
        for scaling in [RotaryScaling::yarn(1.0, length), llama(1.0), RotaryScaling::Ntk { factor: 1.0 }] {
            let found = scaling.frequencies(10_000.0, 16);
            let ratios: Vec<f64> = found.iter().zip(&plain).map(|(a, b)| a / b).collect();
            assert_eq!((found.len(), ratios.len()), (8, 8));
            assert_close(&ratios, &[1.0; 8], 1e-12);
            assert_eq!(scaling.attention_factor(), 1.0);
        }
    }

    #[test]
    fn a_ramp_that_falls_is_refused() {
        let scaling = RotaryScaling::Yarn {
            factor: 0.5,
            original_max_seq_len: 64,
            beta_fast: 1.0,
            beta_slow: 32.0,
            truncate: true,
            attention_factor: Some(0.0),
        };
        let error = scaling.check(Checks::default()).finish().expect_err("three problems");
        assert_eq!(
            error.problems(),
            [
                "position.scaling.factor = 0.5 must be at least 1",
                "position.scaling.attention_factor = 0 must be above 0",
                "position.scaling.beta_slow = 32 must be above 0 and below beta_fast = 1",
            ]
        );
    }
}
