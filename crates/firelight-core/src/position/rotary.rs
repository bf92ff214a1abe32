//! Rotary positions: every pair of channels of a query or key is turned by an angle proportional to its position, so
//! that scores depend on the difference of positions alone.
//!
//! ```text
//! (a, b) at position p becomes (a cos pθ_i - b sin pθ_i, a sin pθ_i + b cos pθ_i)        θ_i = theta^(-2i/E), i = 0 .. E/2
//! ```
//!
//! Source: Su et al. 2021, §3.2.2, eq. 15 (<https://arxiv.org/abs/2104.09864>); our `E` is their `d`, `theta` the base of
//! their `θ_i = theta^(-2i/E)`. Differs from the paper: by default channel `i` is paired with `i + E/2`, as in the
//! published LLaMA weights; `RotaryLayout::Interleaved` pairs neighbours, as the paper. Where fewer channels than `E` turn,
//! the last ones stay as they are, as in GPT-NeoX.

use super::{PositionScheme, Positions, RotaryScaling};
use crate::error::Checks;
use burn::module::Module;
use burn::tensor::{Device, FloatDType, Tensor};
use firelight_kernels::{RotaryPairs, rotary};
use serde::{Deserialize, Serialize};

/// Which channels form a pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RotaryLayout {
    /// Channel `i` with `i + E/2`, as LLaMA.
    #[default]
    Halves,
    /// Channel `2i` with `2i + 1`, as the paper.
    Interleaved,
}

/// The settings of rotary positions.
///
/// ```
/// use firelight_core::{PositionConfig, RotaryConfig, RotaryScaling, TransformerConfig};
///
/// let rotary = RotaryConfig::default().with_theta(1e6).with_scaling(RotaryScaling::yarn(4.0, 4096));
/// let stack = TransformerConfig::new(64, 4, 12).with_position(PositionConfig::Rotary(rotary));
/// assert_eq!(stack.validate(), Ok(()));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RotaryConfig {
    /// Base of the frequencies. Default: 10,000.
    pub theta: f64,
    /// Which channels turn together. Default: halves, as LLaMA.
    pub layout: RotaryLayout,
    /// How many channels of a head turn, the first ones. Default: all.
    pub width: Option<usize>,
    /// How the frequencies are stretched for longer texts. Default: not.
    pub scaling: RotaryScaling,
}

impl Default for RotaryConfig {
    fn default() -> Self {
        Self { theta: 10_000.0, layout: RotaryLayout::default(), width: None, scaling: RotaryScaling::None }
    }
}

impl RotaryConfig {
    /// Sets the base of the frequencies.
    pub fn with_theta(mut self, theta: f64) -> Self {
        self.theta = theta;
        self
    }

    /// Sets which channels turn together.
    pub fn with_layout(mut self, layout: RotaryLayout) -> Self {
        self.layout = layout;
        self
    }

    /// Sets how many channels of a head turn, the first ones.
    pub fn with_width(mut self, width: usize) -> Self {
        self.width = Some(width);
        self
    }

    /// Sets how the frequencies are stretched.
    pub fn with_scaling(mut self, scaling: RotaryScaling) -> Self {
        self.scaling = scaling;
        self
    }

    /// Notes what does not suit heads of `d_head` channels.
    pub(super) fn check(&self, checks: Checks, d_head: usize) -> Checks {
        let (theta, width) = (self.theta, self.width.unwrap_or(d_head));
        let fits = width > 0 && width <= d_head && width.is_multiple_of(2);
        self.scaling
            .check(checks, width)
            .require(self.width.is_none() || fits, || {
                format!("position.width = {width} must be even, above 0 and at most d_head = {d_head}")
            })
            .require(self.width.is_some() || d_head.is_multiple_of(2), || {
                format!("d_head = {d_head} (d_model / n_heads) must be even with rotary positions")
            })
            .require(theta > 0.0, || format!("position.theta = {theta} must be above 0"))
    }

    /// Builds the scheme for heads of `d_head` channels.
    pub fn init(&self, d_head: usize) -> Rotary {
        let rotary = Rotary::new(self.width.unwrap_or(d_head), self.theta, self.layout);
        rotary.with_scaling(self.scaling.clone())
    }
}

/// Turns queries and keys.
#[derive(Module, Debug)]
pub struct Rotary {
    width: usize,
    theta: f64,
    #[module(skip)]
    layout: RotaryLayout,
    #[module(skip)]
    scaling: RotaryScaling,
}

impl Rotary {
    /// Turns the first `width` channels of a head: all, or fewer.
    ///
    /// # Panics
    /// If `width` is odd.
    pub fn new(width: usize, theta: f64, layout: RotaryLayout) -> Self {
        assert!(width.is_multiple_of(2), "d_head = {width} must be even with rotary positions");
        Self { width, theta, layout, scaling: RotaryScaling::None }
    }

    /// Sets how the frequencies are stretched.
    pub fn with_scaling(mut self, scaling: RotaryScaling) -> Self {
        self.scaling = scaling;
        self
    }

    /// How fast each pair turns in a text of `len` tokens, in radians per token.
    pub fn frequencies(&self, len: usize) -> Vec<f64> {
        self.scaling.frequencies(self.theta, self.width, len)
    }

    /// By what queries and keys grow as they turn: 1 in most schemes, see [`RotaryScaling`].
    pub fn attention_factor(&self) -> f64 {
        self.scaling.attention_factor()
    }
}

impl PositionScheme for Rotary {
    fn rotation(&self, positions: &Positions, device: &Device) -> Option<Rotation> {
        let angles = positions.angles(&self.frequencies(positions.bound()), device);
        let angles = angles.unsqueeze_dim::<4>(1); // [1 | B, 1, T, W / 2]
        let [cos, sin] = [angles.clone().cos(), angles.sin()].map(|x| match self.attention_factor() {
            1.0 => x,
            factor => x * factor,
        });
        Some(Rotation { cos, sin, layout: self.layout })
    }

    fn continues(&self, past: usize, len: usize) -> bool {
        self.scaling.is_same([past, len])
    }
}

/// The rotation of one pass: cosines and sines of its positions, computed once for all layers.
#[derive(Debug, Clone)]
pub struct Rotation {
    cos: Tensor<4>,
    sin: Tensor<4>,
    layout: RotaryLayout,
}

impl Rotation {
    /// Turns every head of `x` by its token's position.
    ///
    /// # Shapes
    /// - `x`: `[B, H, T, E]`; output: the same
    pub fn apply(&self, x: Tensor<4>) -> Tensor<4> {
        let pairs = match self.layout {
            RotaryLayout::Halves => RotaryPairs::Halves,
            RotaryLayout::Interleaved => RotaryPairs::Neighbours,
        };
        rotary(x, self.cos.clone(), self.sin.clone(), pairs)
    }

    /// The same in another type.
    pub(crate) fn cast(self, dtype: FloatDType) -> Self {
        Self { cos: self.cos.cast(dtype), sin: self.sin.cast(dtype), layout: self.layout }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Distribution, TensorData};
    use firelight_kernels::assert_close;

    #[test]
    fn a_quarter_turn_by_hand() {
        // One pair at position 1 with frequency 1: (1, 0) -> (cos 1, sin 1) = (.540302, .841471).
        let device = Device::default();
        let x = Tensor::<4>::from_floats([[[[1.0, 0.0]]]], &device);
        let rotary = Rotary::new(2, 10_000.0, RotaryLayout::Halves);
        let rotation = rotary.rotation(&Positions::contiguous(1, 1), &device).expect("a rotation");
        let expected = TensorData::from([[[[0.540302f32, 0.841471]]]]);
        assert_close(&rotation.apply(x), &expected, 1e-5);
    }

    #[test]
    fn channels_beyond_the_width_stay() {
        let device = Device::default();
        let positions = Positions::contiguous(1, 1);
        let rotary = Rotary::new(2, 10_000.0, RotaryLayout::Halves);
        let rotation = rotary.rotation(&positions, &device).expect("a rotation");
        let output = rotation.apply(Tensor::from_floats([[[[1.0, 0.0, 5.0, 7.0]]]], &device)).into_data();
        let expected = TensorData::from([[[[0.540302f32, 0.841471, 5.0, 7.0]]]]);
        assert_close(&output, &expected, 1e-5);
    }

    #[test]
    fn scores_depend_on_the_distance_alone() {
        let device = Device::default();
        let [query, key] = [(); 2].map(|()| Tensor::<4>::random([1, 1, 3, 8], Distribution::Default, &device));
        let rotary = |width, layout| Rotary::new(width, 10_000.0, layout);
        for rotary in [
            rotary(8, RotaryLayout::Halves),
            rotary(8, RotaryLayout::Interleaved),
            rotary(4, RotaryLayout::Halves),
            rotary(6, RotaryLayout::Interleaved).with_scaling(RotaryScaling::yarn(4.0, 16)),
        ] {
            let scores = |start| {
                let positions = Positions::contiguous(start, 3);
                let rotation = rotary.rotation(&positions, &device).expect("a rotation");
                rotation.apply(query.clone()).matmul(rotation.apply(key.clone()).swap_dims(2, 3)).into_data()
            };
            assert_close(&scores(0), &scores(40), 1e-4);
        }
    }
}
