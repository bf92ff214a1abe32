//! Stretching rotary positions: a model trained on short texts reads longer ones when its channels turn more slowly.
//!
//! Sources: linear, Chen et al. 2023, §2.3, eq. 4 (<https://arxiv.org/abs/2306.15595>); NTK-aware and YaRN, Peng et al.
//! 2024, §3.1 and §3.2 to §3.4 (<https://arxiv.org/abs/2309.00071>); Llama 3, the published code of its release 3.1.
//! `factor` is their `s`, `beta_fast` and `beta_slow` YaRN's `β` and `α`. As in the published YaRN code, the ramp between
//! kept and stretched channels is linear in the channel, its ends rounded outwards to whole channels; gpt-oss leaves them as
//! they are (`truncate = false`). Dynamic, Peng et al. 2024, §3.3, as `rope_type = "dynamic"` of transformers; LongRoPE, Ding et al.
//! 2024, §3 and §4 (<https://arxiv.org/abs/2402.13753>), as the published code of Phi-3.
//!
//! # Frequencies that depend on the length
//! With dynamic and LongRoPE the frequencies are a function of the length of the text: the number of tokens that a pass can see, those
//! of its cache included. It is one number for the whole batch, and counts padding and all documents of a row. So the output at a
//! token depends on how much follows it, and a text that is read at once, one that is read in parts and each step of a decoding agree
//! as long as the frequencies stay the same. A cache cannot follow them when they change, as its keys are turned already: the stack
//! refuses such a pass; [`Transformer::cache_stays_valid`](crate::Transformer::cache_stays_valid) tells in advance. Decoders of this workspace then read
//! their text anew, so that cached and uncached decoding write the same. Differs from transformers, which goes on with keys
//! of both kinds, and where dynamic keeps the base of the longest text that was ever read.

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
    /// As `Ntk`, by a factor that grows with the length of the text: `factor * len / original_max_seq_len - (factor - 1)` beyond the
    /// original length, 1 up to it.
    ///
    /// Each token beyond the original length changes all frequencies, so that a decoder reads the whole text at every step.
    /// `Ntk` with the factor of the longest text is fast, and the same at every length.
    #[doc(alias = "dynamic NTK")]
    Dynamic {
        /// How fast the base grows.
        factor: f64,
        /// Longest text in tokens that the model was trained on.
        original_max_seq_len: usize,
    },
    /// A factor for each frequency, from one list up to the original length and from another beyond it; queries and keys
    /// grow a little.
    ///
    /// A decoder that reaches the original length reads its text anew once.
    #[doc(alias = "LongRoPE")]
    #[serde(rename = "longrope")]
    LongRope {
        /// How many times longer the texts are.
        factor: f64,
        /// Longest text in tokens that the model was trained on.
        original_max_seq_len: usize,
        /// How many times slower each pair of channels turns in texts of up to the original length, the fastest first.
        short_factor: Vec<f64>,
        /// The same in longer texts.
        long_factor: Vec<f64>,
        /// By what queries and keys grow, at every length. Default: `sqrt(1 + ln(factor) / ln(original_max_seq_len))`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attention_factor: Option<f64>,
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

    /// Notes a factor, a border or a list that nothing can be stretched by, for heads of which `width` channels turn.
    pub(super) fn check(&self, checks: Checks, width: usize) -> Checks {
        let Some(factor) = self.factor() else { return checks };
        let checks = checks.require(factor >= 1.0 && factor.is_finite(), || {
            format!("position.scaling.factor = {factor} must be at least 1")
        });
        match self {
            Self::Yarn { original_max_seq_len, beta_fast, beta_slow, attention_factor, .. } => {
                let checks = above_zero(checks, *attention_factor);
                ordered(checks, *original_max_seq_len, ["beta_slow", "beta_fast"], [*beta_slow, *beta_fast])
            }
            Self::Llama3 { original_max_seq_len, low_freq_factor: low, high_freq_factor: high, .. } => {
                ordered(checks, *original_max_seq_len, ["low_freq_factor", "high_freq_factor"], [*low, *high])
            }
            Self::Dynamic { original_max_seq_len, .. } => original(checks, *original_max_seq_len),
            Self::LongRope { original_max_seq_len, short_factor, long_factor, attention_factor, .. } => {
                let checks = original(above_zero(checks, *attention_factor), *original_max_seq_len);
                let lists = [("short_factor", short_factor), ("long_factor", long_factor)];
                lists.into_iter().fold(checks, |checks, (name, list)| factors(checks, name, list, width / 2))
            }
            Self::None | Self::Linear { .. } | Self::Ntk { .. } => checks,
        }
    }

    fn factor(&self) -> Option<f64> {
        match *self {
            Self::None => None,
            Self::Linear { factor }
            | Self::Ntk { factor }
            | Self::Dynamic { factor, .. }
            | Self::LongRope { factor, .. }
            | Self::Yarn { factor, .. }
            | Self::Llama3 { factor, .. } => Some(factor),
        }
    }

    /// The frequencies of `width` channels in a text of `len` tokens, in radians per token, the fastest first.
    pub(super) fn frequencies(&self, theta: f64, width: usize, len: usize) -> Vec<f64> {
        let plain = frequencies(theta, width);
        match self {
            Self::None => plain,
            Self::Linear { factor } => plain.into_iter().map(|f| f / factor).collect(),
            Self::Ntk { factor } => ntk(theta, width, *factor),
            Self::Dynamic { factor, original_max_seq_len } => {
                let times = len.max(*original_max_seq_len) as f64 / *original_max_seq_len as f64;
                ntk(theta, width, factor * times - (factor - 1.0))
            }
            Self::LongRope { original_max_seq_len, short_factor, long_factor, .. } => {
                let factors = if len > *original_max_seq_len { long_factor } else { short_factor };
                plain.into_iter().zip(factors).map(|(f, factor)| f / factor).collect()
            }
            Self::Yarn { factor, .. } => {
                let stretched = self.ramp(theta, width);
                plain.into_iter().zip(stretched).map(|(f, stretched)| blend(f, *factor, stretched)).collect()
            }
            Self::Llama3 { factor, original_max_seq_len, low_freq_factor: low, high_freq_factor: high } => {
                let waves = |f: f64| *original_max_seq_len as f64 * f / TAU;
                let kept = |f| ((waves(f) - low) / (high - low)).clamp(0.0, 1.0);
                plain.into_iter().map(|f| blend(f, *factor, 1.0 - kept(f))).collect()
            }
        }
    }

    /// The share of each channel that YaRN stretches.
    fn ramp(&self, theta: f64, width: usize) -> Vec<f64> {
        let Self::Yarn { original_max_seq_len, beta_fast, beta_slow, truncate, .. } = self else {
            unreachable!("YaRN alone has a ramp")
        };
        let length = *original_max_seq_len as f64;
        let channel = |turns: f64| width as f64 * (length / (turns * TAU)).ln() / (2.0 * theta.ln());
        let ends = [channel(*beta_fast), channel(*beta_slow)];
        let [low, high] = if *truncate { [ends[0].floor(), ends[1].ceil()] } else { ends };
        let (low, high) = (low.max(0.0), high.min(width as f64 - 1.0));
        let span = if low == high { 0.001 } else { high - low };
        (0..width / 2).map(|i| ((i as f64 - low) / span).clamp(0.0, 1.0)).collect()
    }

    /// Whether texts of these lengths have the same frequencies.
    pub(super) fn is_same(&self, [past, len]: [usize; 2]) -> bool {
        match self {
            Self::Dynamic { original_max_seq_len: original, .. } => past.max(*original) == len.max(*original),
            Self::LongRope { original_max_seq_len: original, .. } => (past > *original) == (len > *original),
            _ => true,
        }
    }

    /// By what queries and keys grow.
    pub(super) fn attention_factor(&self) -> f64 {
        match *self {
            Self::Yarn { factor, attention_factor, .. } => attention_factor.unwrap_or(Self::mscale(factor, 1.0)),
            Self::LongRope { factor, original_max_seq_len, attention_factor, .. } => attention_factor
                .unwrap_or_else(|| (1.0 + factor.ln().max(0.0) / (original_max_seq_len as f64).ln()).sqrt()),
            _ => 1.0,
        }
    }
}

/// The frequencies with a base that makes the slowest `factor` times slower, and keeps the fastest.
fn ntk(theta: f64, width: usize, factor: f64) -> Vec<f64> {
    match width {
        0..=2 => frequencies(theta, width), // One pair is the fastest.
        _ => frequencies(theta * factor.powf(width as f64 / (width as f64 - 2.0)), width),
    }
}

/// A frequency of which the share `stretched` is divided by `factor`.
fn blend(frequency: f64, factor: f64, stretched: f64) -> f64 {
    frequency * (1.0 - stretched) + frequency / factor * stretched
}

fn original(checks: Checks, length: usize) -> Checks {
    // The logarithm of 1 is a divisor that is none.
    checks.require(length >= 2, || format!("position.scaling.original_max_seq_len = {length} must be at least 2"))
}

/// A list of factors has one for each of `pairs` of channels.
fn factors(checks: Checks, name: &str, list: &[f64], pairs: usize) -> Checks {
    checks
        .require(list.len() == pairs, || {
            format!(
                "position.scaling.{name} has {} numbers, but {pairs} pairs of channels turn: give one for each",
                list.len()
            )
        })
        .require(list.iter().all(|factor| *factor > 0.0 && factor.is_finite()), || {
            format!("position.scaling.{name} = {list:?} must be above 0")
        })
}

fn above_zero(checks: Checks, attention_factor: Option<f64>) -> Checks {
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
        let of = |scaling: RotaryScaling| scaling.frequencies(16.0, 4, 1);
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
            let ratios =
                scaling.frequencies(4f64.exp(), 8, 1).into_iter().zip(&plain).map(|(found, plain)| found / plain);
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
            let found = scaling.frequencies(10_000.0, 16, 1);
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
        let error = scaling.check(Checks::default(), 8).finish().expect_err("three problems");
        assert_eq!(
            error.problems(),
            [
                "position.scaling.factor = 0.5 must be at least 1",
                "position.scaling.attention_factor = 0 must be above 0",
                "position.scaling.beta_slow = 32 must be above 0 and below beta_fast = 1",
            ]
        );
    }
    #[test]
    fn the_base_grows_with_the_length_by_hand() {
        // theta 16, four channels, factor 3 from 8 tokens on: with 16 tokens the factor is 3 * 2 - 2 = 4, the base 16 * 4^2.
        let scaling = RotaryScaling::Dynamic { factor: 3.0, original_max_seq_len: 8 };
        let of = |len| scaling.frequencies(16.0, 4, len);
        assert_eq!([of(1), of(8), of(16)], [[1.0, 0.25], [1.0, 0.25], [1.0, 0.0625]]);
        assert_eq!(scaling.frequencies(16.0, 2, 16), [1.0]);
        for (lengths, same) in [([1, 8], true), ([8, 9], false), ([9, 10], false), ([16, 16], true), ([16, 8], false)] {
            assert_eq!(scaling.is_same(lengths), same, "{lengths:?}");
            assert_eq!(of(lengths[0]) == of(lengths[1]), same, "{lengths:?}");
        }
    }

    fn longrope(short_factor: Vec<f64>, long_factor: Vec<f64>) -> RotaryScaling {
        let (factor, original_max_seq_len, attention_factor) = (8.0, 8, None);
        RotaryScaling::LongRope { factor, original_max_seq_len, short_factor, long_factor, attention_factor }
    }

    #[test]
    fn each_length_has_its_list_by_hand() {
        let scaling = longrope(vec![1.0, 2.0], vec![4.0, 5.0]);
        let of = |len| scaling.frequencies(16.0, 4, len);
        assert_eq!([of(8), of(9)], [[1.0, 0.125], [0.25, 0.05]]);
        assert_eq!(scaling.attention_factor(), 2f64.sqrt()); // ln 8 / ln 8.
        for (lengths, same) in [([1, 8], true), ([8, 9], false), ([9, 10], true), ([9, 8], false)] {
            assert_eq!(scaling.is_same(lengths), same, "{lengths:?}");
        }
        let text = serde_json::to_string(&scaling).expect("text");
        assert!(text.contains(r#""kind":"longrope""#), "{text}");
        assert_eq!(serde_json::from_str::<RotaryScaling>(&text).expect("its own text"), scaling);
    }

    #[test]
    fn lists_of_another_length_are_refused() {
        let error =
            longrope(vec![1.0], vec![1.0, -1.0]).check(Checks::default(), 4).finish().expect_err("two problems");
        assert_eq!(
            error.problems(),
            [
                "position.scaling.short_factor has 1 numbers, but 2 pairs of channels turn: give one for each",
                "position.scaling.long_factor = [1.0, -1.0] must be above 0",
            ]
        );
        let scaling = RotaryScaling::Dynamic { factor: 2.0, original_max_seq_len: 0 };
        let error = scaling.check(Checks::default(), 4).finish().expect_err("no length");
        assert_eq!(error.problems(), ["position.scaling.original_max_seq_len = 0 must be at least 2"]);
    }
}
