//! Where a token stands, and the ways to tell the model: three hooks, called at every call site, of which a scheme
//! implements those that it needs.
//!
//! A new scheme is one file that implements [`PositionScheme`], one variant of [`PositionConfig`] and one of
//! [`Position`].

mod learned;
mod rotary;
mod sinusoidal;

pub use learned::LearnedPosition;
pub use rotary::{Rotary, RotaryLayout, Rotation};
pub use sinusoidal::Sinusoidal;

use crate::error::{Checks, ConfigError};
use crate::init::{Init, ParamBuilder};
use burn::module::Module;
use burn::tensor::{Bool, Device, Int, Tensor};
use serde::{Deserialize, Serialize};

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
            Self::PerRow { index, .. } => burn::tensor::module::embedding(table, index.clone()),
        }
    }

    /// Each position times each frequency, in radians: `[1 | B, T, F]`.
    pub(crate) fn angles(&self, frequencies: &[f64], device: &Device) -> Tensor<3> {
        let frequencies: Vec<f32> = frequencies.iter().map(|frequency| *frequency as f32).collect();
        let frequencies = Tensor::<1>::from_floats(frequencies.as_slice(), device).unsqueeze::<3>();
        let index = match self {
            Self::Contiguous { start, len } => {
                Tensor::<1, Int>::arange(*start as i64..(start + len) as i64, device).unsqueeze()
            }
            Self::PerRow { index, .. } => index.clone(),
        };
        index.float().unsqueeze_dim::<3>(2) * frequencies
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

    /// What is added to the scores of every layer, `[B | 1, H | 1, Q, K]`, for the queries of this pass and `key_len` keys.
    fn bias(&self, _positions: &Positions, _key_len: usize, _device: &Device) -> Option<Tensor<4>> {
        None
    }
}

fn rotary_theta() -> f64 {
    10_000.0
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
    /// Rotated queries and keys, any length (Su et al. 2021).
    Rotary {
        /// Base of the frequencies. Default: 10,000.
        #[serde(default = "rotary_theta")]
        theta: f64,
        /// Which channels turn together. Default: halves, as LLaMA.
        #[serde(default)]
        layout: RotaryLayout,
    },
}

impl PositionConfig {
    /// Rotary positions with their defaults.
    pub fn rotary() -> Self {
        Self::Rotary { theta: rotary_theta(), layout: RotaryLayout::default() }
    }

    /// # Errors
    /// If a width does not suit the scheme.
    pub fn validate(&self, d_model: usize, d_head: usize) -> Result<(), ConfigError> {
        let checks = Checks::default();
        match self {
            Self::Sinusoidal => checks.require(d_model.is_multiple_of(2), || {
                format!("d_model = {d_model} must be even with sinusoidal positions")
            }),
            Self::Rotary { theta, .. } => checks
                .require(d_head.is_multiple_of(2), || {
                    format!("d_head = {d_head} (d_model / n_heads) must be even with rotary positions")
                })
                .require(*theta > 0.0, || format!("position.theta = {theta} must be above 0")),
            Self::None | Self::Learned => checks,
        }
        .finish()
    }

    /// Builds the scheme at the builder's path. `init` is the distribution of a learned table.
    pub fn init_with(&self, sizes: PositionSizes, init: Init, params: &ParamBuilder) -> Position {
        match *self {
            Self::None => Position::None(NoPosition {}),
            Self::Learned => Position::Learned(LearnedPosition::new(sizes.max_seq_len, sizes.d_model, init, params)),
            Self::Sinusoidal => Position::Sinusoidal(Sinusoidal::new(sizes.d_model)),
            Self::Rotary { theta, layout } => Position::Rotary(Rotary::new(sizes.d_head, theta, layout)),
        }
    }
}

/// The sizes a scheme is built for.
#[derive(Debug, Clone, Copy)]
pub struct PositionSizes {
    /// Width of an embedding.
    pub d_model: usize,
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

    fn bias(&self, positions: &Positions, key_len: usize, device: &Device) -> Option<Tensor<4>> {
        self.scheme().bias(positions, key_len, device)
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
