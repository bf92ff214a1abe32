//! Where a token stands, and the ways to tell the model: three hooks, called at every call site, of which a scheme
//! implements those that it needs.
//!
//! A new scheme is one file that implements [`PositionScheme`], one variant of [`PositionConfig`] and one of
//! [`Position`].

mod alibi;
mod bias;
mod learned;
mod rotary;
mod scaling;
mod shaw;
mod sinusoidal;
mod t5;

pub use alibi::Alibi;
pub use bias::ScoreBias;
pub use learned::LearnedPosition;
pub use rotary::{Rotary, RotaryLayout, Rotation};
pub use scaling::RotaryScaling;
pub use shaw::ShawPosition;
pub use sinusoidal::Sinusoidal;
pub use t5::T5Bias;

use crate::error::{Checks, ConfigError};
use crate::init::{Init, ParamBuilder};
use burn::module::Module;
use burn::tensor::{Bool, Device, Int, Tensor};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The positions of the tokens of one pass, counted in tokens from 0, padding not counted.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "there is one per pass")]
pub enum Positions {
    /// Every row stands at `start .. start + len`.
    Contiguous {
        /// Position of the first token.
        start: usize,
        /// Number of tokens.
        len: usize,
    },
    /// Every row has its own, `[B, T]`, all below `bound`.
    PerRow {
        /// `[B, T]`.
        index: Tensor<2, Int>,
        /// One more than the largest position there can be.
        bound: usize,
    },
}

impl Positions {
    /// `len` positions from `start` on, the same in every row.
    pub fn contiguous(start: usize, len: usize) -> Self {
        Self::Contiguous { start, len }
    }

    /// Counts the tokens that are not padding: `padding` is `[B, K]`, of which the last `len` tokens are this pass's.
    /// With padding on the left the first real token stands at 0, wherever the row begins.
    pub fn from_padding(padding: &Tensor<2, Bool>, len: usize) -> Self {
        let [_, keys] = padding.dims();
        let count = padding.clone().bool_not().int().cumsum(1);
        let index = (count - 1).clamp_min(0).narrow(1, keys - len, len);
        Self::PerRow { index, bound: keys }
    }

    /// Counts the tokens of each document from 0, padding not counted: `documents` and `padding` are `[B, K]`, of which
    /// the last `len` tokens are this pass's.
    pub fn from_documents(documents: &Tensor<2, Int>, padding: Option<&Tensor<2, Bool>>, len: usize) -> Self {
        let [batch, keys] = documents.dims();
        let shape = [batch, len, keys];
        let queries = documents.clone().narrow(1, keys - len, len).unsqueeze_dim::<3>(2).expand(shape);
        let other = queries.not_equal(documents.clone().unsqueeze_dim::<3>(1).expand(shape));
        let future = Tensor::<2, Bool>::tril_mask([len, keys], (keys - len) as i64, &documents.device());
        let mut skipped = other.bool_or(future.unsqueeze::<3>().expand(shape));
        if let Some(padding) = padding {
            skipped = skipped.bool_or(padding.clone().unsqueeze_dim::<3>(1).expand(shape));
        }
        let count = skipped.bool_not().int().sum_dim(2).squeeze_dim::<2>(2); // [B, T]
        Self::PerRow { index: (count - 1).clamp_min(0), bound: keys }
    }

    /// One more than the largest position there can be.
    pub fn bound(&self) -> usize {
        match self {
            Self::Contiguous { start, len } => start + len,
            Self::PerRow { bound, .. } => *bound,
        }
    }

    /// The rows of `table`, `[P, D]`, at these positions: `[1 | B, T, D]`.
    pub(crate) fn rows_of(&self, table: Tensor<2>) -> Tensor<3> {
        match self {
            Self::Contiguous { start, len } => table.narrow(0, *start, *len).unsqueeze(),
            Self::PerRow { index, .. } => firelight_kernels::embedding(table, index.clone()),
        }
    }

    /// Each position times each frequency, in radians: `[1 | B, T, F]`.
    pub(crate) fn angles(&self, frequencies: &[f64], device: &Device) -> Tensor<3> {
        let frequencies: Vec<f32> = frequencies.iter().map(|frequency| *frequency as f32).collect();
        let frequencies = Tensor::<1>::from_floats(frequencies.as_slice(), device).unsqueeze::<3>();
        self.index(device).float().unsqueeze_dim::<3>(2) * frequencies
    }

    /// How many tokens each key stands after each query, negative for the past: `[1 | B, Q, K]`.
    pub(crate) fn distances(&self, keys: &Self, device: &Device) -> Tensor<3, Int> {
        keys.index(device).unsqueeze_dim::<3>(1) - self.index(device).unsqueeze_dim::<3>(2)
    }

    /// The distances of [`distances`](Self::distances) where all rows stand alike: that of the last query to the first key,
    /// and so on to that of the first query to the last key.
    pub(crate) fn common_distances(&self, keys: &Self) -> Option<Range<i64>> {
        let (Self::Contiguous { start, len }, Self::Contiguous { start: first, len: keys }) = (self, keys) else {
            return None;
        };
        let nearest = *first as i64 - (start + len) as i64 + 1;
        Some(nearest..nearest + (len + keys) as i64 - 1)
    }

    /// `[1 | B, T]`.
    fn index(&self, device: &Device) -> Tensor<2, Int> {
        match self {
            Self::Contiguous { start, len } => {
                Tensor::<1, Int>::arange(*start as i64..(start + len) as i64, device).unsqueeze()
            }
            Self::PerRow { index, .. } => index.clone(),
        }
    }
}

/// The frequencies `base^(-2i / width)` for `i` in `0 .. width / 2`, in radians per token, the fastest first.
fn frequencies(base: f64, width: usize) -> Vec<f64> {
    (0..width / 2).map(|i| base.powf(-2.0 * i as f64 / width as f64)).collect()
}

/// The three places where a model can learn of positions. Every default does nothing.
pub trait PositionScheme {
    /// Adds to the embeddings, `[B, T, D] -> [B, T, D]`.
    fn embed(&self, x: Tensor<3>, _positions: &Positions) -> Tensor<3> {
        x
    }

    /// How queries and keys are turned in every layer.
    fn rotation(&self, _positions: &Positions, _device: &Device) -> Option<Rotation> {
        None
    }

    /// What is added to the scores of every layer, for the queries of this pass and all keys, those of the cache included.
    fn bias(&self, _queries: &Positions, _keys: &Positions, _device: &Device) -> Option<ScoreBias> {
        None
    }
}

fn rotary_theta() -> f64 {
    10_000.0
}

fn n_buckets() -> usize {
    32
}

fn t5_max_distance() -> usize {
    128
}

fn shaw_max_distance() -> usize {
    16
}

/// Which scheme a model uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum PositionConfig {
    /// None: the model cannot tell the order of tokens but through its mask.
    None,
    /// A trained vector per position, as GPT and BERT. The table ends at `max_seq_len`.
    #[default]
    Learned,
    /// Sines and cosines, any length (Vaswani et al. 2017).
    Sinusoidal,
    /// The same with all sines before all cosines, as Marian.
    SinusoidalHalves,
    /// Rotated queries and keys, any length (Su et al. 2021).
    Rotary {
        /// Base of the frequencies. Default: 10,000.
        #[serde(default = "rotary_theta")]
        theta: f64,
        /// Which channels turn together. Default: halves, as LLaMA.
        #[serde(default)]
        layout: RotaryLayout,
        /// How many channels of a head turn, the first ones. Default: all.
        #[serde(default)]
        width: Option<usize>,
        /// How the frequencies are stretched for longer texts. Default: not.
        #[serde(default)]
        scaling: RotaryScaling,
    },
    /// Scores fall with the distance, by a slope per head, any length (Press et al. 2022).
    Alibi,
    /// A trained bias per head and bucket of distances, any length (Raffel et al. 2020).
    T5 {
        /// Number of buckets. Default: 32.
        #[serde(default = "n_buckets")]
        n_buckets: usize,
        /// Distances from here on share the last bucket. Default: 128.
        #[serde(default = "t5_max_distance")]
        max_distance: usize,
        /// Gives half of the buckets to the future, for stacks that see it. Default: false.
        #[serde(default)]
        bidirectional: bool,
    },
    /// A trained vector per distance, added to the key, any length (Shaw et al. 2018).
    Shaw {
        /// Farther distances count as this one. Default: 16.
        #[serde(default = "shaw_max_distance")]
        max_distance: usize,
    },
}

impl PositionConfig {
    /// Rotary positions with their defaults.
    pub fn rotary() -> Self {
        let (theta, layout) = (rotary_theta(), RotaryLayout::default());
        Self::Rotary { theta, layout, width: None, scaling: RotaryScaling::None }
    }

    /// Relative position buckets with their defaults.
    pub fn t5(bidirectional: bool) -> Self {
        Self::T5 { n_buckets: n_buckets(), max_distance: t5_max_distance(), bidirectional }
    }

    /// Relative position vectors with their defaults.
    pub fn shaw() -> Self {
        Self::Shaw { max_distance: shaw_max_distance() }
    }

    /// Whether it adds to the embeddings, before all layers; else it acts in each layer, or does nothing.
    pub(crate) fn adds_to_embeddings(&self) -> bool {
        match self {
            Self::Learned | Self::Sinusoidal | Self::SinusoidalHalves => true,
            Self::None | Self::Rotary { .. } | Self::Alibi | Self::T5 { .. } | Self::Shaw { .. } => false,
        }
    }

    /// # Errors
    /// If a width does not suit the scheme.
    pub fn validate(&self, d_model: usize, d_head: usize) -> Result<(), ConfigError> {
        let checks = Checks::default();
        match self {
            Self::Sinusoidal | Self::SinusoidalHalves => checks.require(d_model.is_multiple_of(2), || {
                format!("d_model = {d_model} must be even with sinusoidal positions")
            }),
            Self::Rotary { theta, width, scaling, .. } => scaling
                .check(checks)
                .require(width.is_none_or(|width| width > 0 && width <= d_head && width.is_multiple_of(2)), || {
                    let width = width.unwrap_or_default();
                    format!("position.width = {width} must be even, above 0 and at most d_head = {d_head}")
                })
                .require(width.is_some() || d_head.is_multiple_of(2), || {
                    format!("d_head = {d_head} (d_model / n_heads) must be even with rotary positions")
                })
                .require(*theta > 0.0, || format!("position.theta = {theta} must be above 0")),
            Self::T5 { n_buckets, max_distance, bidirectional } => {
                validate_t5(*n_buckets, *max_distance, *bidirectional)
            }
            Self::Shaw { max_distance } => checks.size("position.max_distance", *max_distance),
            Self::None | Self::Learned | Self::Alibi => checks,
        }
        .finish()
    }

    /// Builds the scheme at the builder's path. `init` is the distribution of a learned table.
    pub fn init_with(&self, sizes: PositionSizes, init: Init, params: &ParamBuilder) -> Position {
        match *self {
            Self::None => Position::None(NoPosition {}),
            Self::Learned => Position::Learned(LearnedPosition::new(sizes.max_seq_len, sizes.d_model, init, params)),
            Self::Sinusoidal => Position::Sinusoidal(Sinusoidal::new(sizes.d_model)),
            Self::SinusoidalHalves => {
                Position::Sinusoidal(Sinusoidal::new(sizes.d_model).with_layout(RotaryLayout::Halves))
            }
            Self::Rotary { theta, layout, width, scaling } => {
                let rotary = Rotary::new(width.unwrap_or(sizes.d_head), theta, layout);
                Position::Rotary(rotary.with_scaling(scaling))
            }
            Self::Alibi => Position::Alibi(Alibi::new(sizes.n_heads)),
            Self::T5 { n_buckets, max_distance, bidirectional } => {
                let shape = [n_buckets, sizes.n_heads];
                Position::T5(T5Bias::new(shape, max_distance, bidirectional, init, params))
            }
            Self::Shaw { max_distance } => Position::Shaw(ShawPosition::new(max_distance, sizes.d_head, init, params)),
        }
    }
}

/// Each direction needs two buckets, and the widening ones a distance to reach.
fn validate_t5(n_buckets: usize, max_distance: usize, bidirectional: bool) -> Checks {
    let directions = if bidirectional { 2 } else { 1 };
    let near = n_buckets / (2 * directions);
    Checks::default()
        .size("position.n_buckets", n_buckets)
        .size("position.max_distance", max_distance)
        .require(n_buckets.is_multiple_of(2 * directions), || {
            format!("position.n_buckets = {n_buckets} must be a multiple of {}", 2 * directions)
        })
        .require(max_distance > near, || {
            format!("position.max_distance = {max_distance} must be above the {near} distances with a bucket each")
        })
}

/// The sizes a scheme is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PositionSizes {
    /// Width of an embedding.
    pub d_model: usize,
    /// Number of query heads.
    pub n_heads: usize,
    /// Width of a head.
    pub d_head: usize,
    /// Positions of a learned table.
    pub max_seq_len: usize,
}

/// A position scheme.
#[derive(Module, Debug)]
pub enum Position {
    /// No positions.
    None(NoPosition),
    /// A trained table.
    Learned(LearnedPosition),
    /// Sines and cosines.
    Sinusoidal(Sinusoidal),
    /// Rotated queries and keys.
    Rotary(Rotary),
    /// Scores that fall with the distance.
    Alibi(Alibi),
    /// A trained bias per bucket of distances.
    T5(T5Bias),
    /// A trained vector per distance.
    Shaw(ShawPosition),
}

/// No positions: every hook does nothing.
#[derive(Module, Debug)]
pub struct NoPosition {}

impl PositionScheme for NoPosition {}

impl Position {
    fn scheme(&self) -> &dyn PositionScheme {
        match self {
            Self::None(scheme) => scheme,
            Self::Learned(scheme) => scheme,
            Self::Sinusoidal(scheme) => scheme,
            Self::Rotary(scheme) => scheme,
            Self::Alibi(scheme) => scheme,
            Self::T5(scheme) => scheme,
            Self::Shaw(scheme) => scheme,
        }
    }
}

impl PositionScheme for Position {
    fn embed(&self, x: Tensor<3>, positions: &Positions) -> Tensor<3> {
        self.scheme().embed(x, positions)
    }

    fn rotation(&self, positions: &Positions, device: &Device) -> Option<Rotation> {
        self.scheme().rotation(positions, device)
    }

    fn bias(&self, queries: &Positions, keys: &Positions, device: &Device) -> Option<ScoreBias> {
        self.scheme().bias(queries, keys, device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_not_counted() {
        let device = Device::default();
        let padding = Tensor::<2, Bool>::from_bool([[true, true, false, false], [false, false, false, true]], &device);
        let Positions::PerRow { index, bound } = Positions::from_padding(&padding, 3) else {
            panic!("padding gives rows of their own");
        };
        assert_eq!(index.try_to_vec_as::<i64>().expect("a host copy"), [0, 0, 1, 1, 2, 2]);
        assert_eq!(bound, 4);
    }

    #[test]
    fn every_document_begins_at_0() {
        let device = Device::default();
        let documents = Tensor::<2, Int>::from_ints([[5, 5, 2, 2, 2]], &device);
        let padding = Tensor::<2, Bool>::from_bool([[false, false, true, false, false]], &device);
        let index = |padding, len| {
            let Positions::PerRow { index, .. } = Positions::from_documents(&documents, padding, len) else {
                panic!("documents give rows of their own");
            };
            index.try_to_vec_as::<i64>().expect("a host copy")
        };
        assert_eq!(index(None, 5), [0, 1, 0, 1, 2]);
        assert_eq!(index(Some(&padding), 4), [1, 0, 0, 1]);
    }
}
