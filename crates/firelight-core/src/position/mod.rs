//! Where a token stands, and the ways to tell the model: three hooks, called at every call site, of which a scheme
//! implements those that it needs.
//!
//! A new scheme is one file that implements [`PositionScheme`], one variant of [`PositionConfig`] and one of
//! [`Position`].

mod alibi;
mod axes;
mod bias;
mod learned;
mod positions;
mod rotary;
mod scaling;
mod shaw;
mod sinusoidal;
mod t5;

pub use alibi::Alibi;
pub use axes::{AxisFrequencies, RotaryAxes};
pub use bias::ScoreBias;
pub use learned::LearnedPosition;
pub use positions::Positions;
pub use rotary::{Rotary, RotaryConfig, RotaryLayout, Rotation};
pub use scaling::RotaryScaling;
pub use shaw::ShawPosition;
pub use sinusoidal::Sinusoidal;
pub use t5::T5Bias;

use crate::error::{Checks, ConfigError};
use crate::init::{Init, ParamBuilder};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

/// The frequencies `base^(-2i / width)` for `i` in `0 .. width / 2`, in radians per token, the fastest first.
fn frequencies(base: f64, width: usize) -> Vec<f64> {
    (0..width / 2).map(|i| base.powf(-2.0 * i as f64 / width as f64)).collect()
}

/// The three places where a model can learn of positions, and whether a cache may go on. Every default does nothing.
pub trait PositionScheme {
    /// Adds to the embeddings, `[B, T, D] -> [B, T, D]`.
    fn embed(&self, x: Tensor<3>, _positions: &Positions) -> Tensor<3> {
        x
    }

    /// The rotation of queries and keys, the same in every layer.
    fn rotation(&self, _positions: &Positions, _device: &Device) -> Option<Rotation> {
        None
    }

    /// Whether keys that were rotated in a text of `past` tokens stay valid in a text of `len`. They do not where the rotation depends on
    /// the length, see [`RotaryScaling`].
    fn cache_stays_valid(&self, _past: usize, _len: usize) -> bool {
        true
    }

    /// The bias of the attention scores in every layer, for the queries of this pass and all keys, those of the cache included.
    fn bias(&self, _queries: &Positions, _keys: &Positions, _device: &Device) -> Option<ScoreBias> {
        None
    }
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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum PositionConfig {
    /// None: the model cannot tell the order of tokens but through its mask.
    #[doc(alias = "NoPE")]
    None,
    /// A trained vector per position, as GPT and BERT. The table ends at `max_seq_len`.
    #[default]
    Learned,
    /// Sines and cosines, any length (Vaswani et al. 2017).
    Sinusoidal,
    /// The same with all sines before all cosines, as Marian.
    SinusoidalHalves,
    /// Rotated queries and keys, any length (Su et al. 2021).
    #[doc(alias = "RoPE")]
    Rotary(RotaryConfig),
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
        Self::Rotary(RotaryConfig::default())
    }

    /// Relative position buckets with their defaults.
    pub fn t5(bidirectional: bool) -> Self {
        Self::T5 { n_buckets: n_buckets(), max_distance: t5_max_distance(), bidirectional }
    }

    /// Relative position vectors with their defaults.
    pub fn shaw() -> Self {
        Self::Shaw { max_distance: shaw_max_distance() }
    }

    /// Coordinates of a token that it knows: 1, but for rotary positions with several axes.
    pub fn n_axes(&self) -> usize {
        match self {
            Self::Rotary(rotary) => rotary.axes.n_axes(),
            _ => 1,
        }
    }

    /// Whether it adds to the embeddings, before all layers; else it acts in each layer, or does nothing.
    pub(crate) fn adds_to_embeddings(&self) -> bool {
        match self {
            Self::Learned | Self::Sinusoidal | Self::SinusoidalHalves => true,
            Self::None | Self::Rotary(_) | Self::Alibi | Self::T5 { .. } | Self::Shaw { .. } => false,
        }
    }

    /// # Errors
    /// If a width does not suit the scheme: of an embedding, or of the part of a head that turns by its position.
    pub fn validate(&self, d_model: usize, d_turned: usize) -> Result<(), ConfigError> {
        let checks = Checks::default();
        match self {
            Self::Sinusoidal | Self::SinusoidalHalves => checks.require(d_model.is_multiple_of(2), || {
                format!("d_model = {d_model} must be even with sinusoidal positions")
            }),
            Self::Rotary(rotary) => rotary.check(checks, d_turned),
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
        match self {
            Self::None => Position::None(NoPosition {}),
            Self::Learned => Position::Learned(LearnedPosition::new(sizes.max_seq_len, sizes.d_model, init, params)),
            Self::Sinusoidal => Position::Sinusoidal(Sinusoidal::new(sizes.d_model)),
            Self::SinusoidalHalves => {
                Position::Sinusoidal(Sinusoidal::new(sizes.d_model).with_layout(RotaryLayout::Halves))
            }
            Self::Rotary(rotary) => Position::Rotary(rotary.init(sizes.d_head)),
            Self::Alibi => Position::Alibi(Alibi::new(sizes.n_heads)),
            Self::T5 { n_buckets, max_distance, bidirectional } => {
                let shape = [*n_buckets, sizes.n_heads];
                Position::T5(T5Bias::new(shape, *max_distance, *bidirectional, init, params))
            }
            Self::Shaw { max_distance } => Position::Shaw(ShawPosition::new(*max_distance, sizes.d_head, init, params)),
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

    fn cache_stays_valid(&self, past: usize, len: usize) -> bool {
        self.scheme().cache_stays_valid(past, len)
    }

    fn bias(&self, queries: &Positions, keys: &Positions, device: &Device) -> Option<ScoreBias> {
        self.scheme().bias(queries, keys, device)
    }
}
