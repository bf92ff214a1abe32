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

use super::{PositionScheme, Positions, RotaryAxes, RotaryScaling};
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
#[doc(alias = "RoPE")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RotaryConfig {
    /// Base of the frequencies. Default: 10,000.
    pub theta: f64,
    /// Which channels turn together. Default: halves, as LLaMA.
    pub layout: RotaryLayout,
    /// How many channels of a head turn, the first ones. Default: all, in latent attention its `d_rotary`.
    pub width: Option<usize>,
    /// How the frequencies are stretched for longer texts. Default: not.
    pub scaling: RotaryScaling,
    /// Which pairs of channels each coordinate of a token turns. Default: one position turns all.
    #[serde(deserialize_with = "crate::kind::deserialize")]
    pub axes: RotaryAxes,
}

impl Default for RotaryConfig {
    fn default() -> Self {
        Self {
            theta: 10_000.0,
            layout: RotaryLayout::default(),
            width: None,
            scaling: RotaryScaling::None,
            axes: RotaryAxes::One,
        }
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

    /// Sets which pairs of channels each coordinate of a token turns.
    pub fn with_axes(mut self, axes: RotaryAxes) -> Self {
        self.axes = axes;
        self
    }

    /// Notes what does not suit heads of which `d_turned` channels can turn.
    pub(super) fn check(&self, checks: Checks, d_turned: usize) -> Checks {
        let (theta, width) = (self.theta, self.width.unwrap_or(d_turned));
        let fits = width > 0 && width <= d_turned && width.is_multiple_of(2);
        let (is_axial, is_scaled) =
            (matches!(self.axes, RotaryAxes::Axial { .. }), self.scaling != RotaryScaling::None);
        self.axes
            .check(self.scaling.check(checks, width), width)
            .require(!is_axial || !is_scaled, || {
                "position.scaling must be none with axial axes: it is for longer texts".into()
            })
            .require(self.width.is_none() || fits, || {
                format!(
                    "position.width = {width} must be even, above 0 and at most the {d_turned} channels of a head that can turn"
                )
            })
            .require(self.width.is_some() || d_turned.is_multiple_of(2), || {
                format!("d_head = {d_turned} (d_model / n_heads) must be even with rotary positions")
            })
            .require(theta > 0.0, || format!("position.theta = {theta} must be above 0"))
    }

    /// Builds the scheme for heads of `d_head` channels.
    pub fn init(&self, d_head: usize) -> Rotary {
        let rotary = Rotary::new(self.width.unwrap_or(d_head), self.theta, self.layout);
        rotary.with_scaling(self.scaling.clone()).with_axes(self.axes.clone())
    }
}

/// Turns queries and keys.
#[doc(alias = "RoPE")]
#[derive(Module, Debug)]
pub struct Rotary {
    width: usize,
    theta: f64,
    #[module(skip)]
    layout: RotaryLayout,
    #[module(skip)]
    scaling: RotaryScaling,
    #[module(skip)]
    axes: RotaryAxes,
}

impl Rotary {
    /// Turns the first `width` channels of a head: all, or fewer.
    ///
    /// # Panics
    /// If `width` is odd.
    pub fn new(width: usize, theta: f64, layout: RotaryLayout) -> Self {
        assert!(width.is_multiple_of(2), "d_head = {width} must be even with rotary positions");
        Self { width, theta, layout, scaling: RotaryScaling::None, axes: RotaryAxes::One }
    }

    /// Sets how the frequencies are stretched.
    pub fn with_scaling(mut self, scaling: RotaryScaling) -> Self {
        self.scaling = scaling;
        self
    }

    /// Sets which pairs of channels each coordinate of a token turns.
    pub fn with_axes(mut self, axes: RotaryAxes) -> Self {
        self.axes = axes;
        self
    }

    /// How fast each pair turns in a text of `len` tokens, in radians per token.
    pub fn frequencies(&self, len: usize) -> Vec<f64> {
        self.turns(len).into_iter().map(|(_, frequency)| frequency).collect()
    }

    /// Which coordinate turns each pair, and how fast.
    fn turns(&self, len: usize) -> Vec<(usize, f64)> {
        self.axes.turns(self.width, |width| self.scaling.frequencies(self.theta, width, len))
    }

    /// Number of coordinates of a token that turn its channels: 1 of a place in a text, 2 of one in an image.
    pub fn n_axes(&self) -> usize {
        self.axes.n_axes()
    }

    /// By what queries and keys grow as they turn: 1 in most schemes, see [`RotaryScaling`].
    pub fn attention_factor(&self) -> f64 {
        self.scaling.attention_factor()
    }
}

impl PositionScheme for Rotary {
    /// # Panics
    /// If the positions are coordinates of other axes than these.
    fn rotation(&self, positions: &Positions, device: &Device) -> Option<Rotation> {
        let (found, axes) = (positions.n_axes(), self.axes.n_axes());
        assert!(
            found == 1 || found == axes,
            "{found} coordinates a token do not fit rotary positions of {axes}: see position.axes"
        );
        let angles = positions.turned(&self.turns(positions.bound()), device);
        let angles = angles.unsqueeze_dim::<4>(1); // [1 | B, 1, T, W / 2]
        let [cos, sin] = [angles.clone().cos(), angles.sin()].map(|x| match self.attention_factor() {
            1.0 => x,
            factor => x * factor,
        });
        Some(Rotation { cos, sin, layout: self.layout })
    }

    fn cache_stays_valid(&self, past: usize, len: usize) -> bool {
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
            RotaryLayout::Interleaved => RotaryPairs::Interleaved,
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
    use super::super::AxisFrequencies;
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

    /// Two coordinates of three tokens, from `start` on.
    fn places(start: [f32; 2], device: &Device) -> Positions {
        let offsets = Tensor::<3>::from_floats([[[0.0, 0.0], [0.0, 1.0], [2.0, 0.5]]], device);
        Positions::Coordinates { values: offsets + Tensor::<1>::from_floats(start, device).unsqueeze::<3>(), len: 3 }
    }

    #[test]
    fn rows_turn_the_first_pairs_and_columns_the_others_by_hand() {
        // Four channels in neighbouring pairs, frequency 1 each: row 1 turns the first pair by 1, column 0 the second by nothing.
        let device = Device::default();
        let rotary = Rotary::new(4, 10_000.0, RotaryLayout::Interleaved).with_axes(RotaryAxes::axial());
        let values = Tensor::from_floats([[[1.0, 0.0]]], &device);
        let rotation = rotary.rotation(&Positions::Coordinates { values, len: 1 }, &device).expect("a rotation");
        let output = rotation.apply(Tensor::from_floats([[[[1.0, 0.0, 1.0, 0.0]]]], &device));
        assert_close(&output, &TensorData::from([[[[0.540302f32, 0.841471, 1.0, 0.0]]]]), 1e-5);
    }

    #[test]
    fn one_position_is_the_same_coordinate_on_every_axis() {
        let device = Device::default();
        let rotary = Rotary::new(8, 100.0, RotaryLayout::Halves);
        let rotary = rotary.with_axes(RotaryAxes::Sections { sections: vec![1, 3] });
        let x = Tensor::<4>::random([1, 1, 2, 8], Distribution::Default, &device);
        let turned = |positions: &Positions| rotary.rotation(positions, &device).expect("a rotation").apply(x.clone());
        let values = Tensor::from_floats([[[4.0, 4.0], [5.0, 5.0]]], &device);
        let expected = turned(&Positions::contiguous(4, 2)).into_data();
        assert_close(&turned(&Positions::Coordinates { values, len: 6 }), &expected, 1e-6);
    }

    #[test]
    #[should_panic(expected = "2 coordinates a token do not fit rotary positions of 3: see position.axes")]
    fn coordinates_of_other_axes_panic() {
        let device = Device::default();
        let rotary = Rotary::new(6, 100.0, RotaryLayout::Halves);
        rotary.with_axes(RotaryAxes::Sections { sections: vec![1; 3] }).rotation(&places([0.0; 2], &device), &device);
    }

    #[test]
    fn scores_depend_on_differences_of_coordinates_alone() {
        let device = Device::default();
        let [query, key] = [(); 2].map(|()| Tensor::<4>::random([1, 1, 3, 8], Distribution::Default, &device));
        for axes in [
            RotaryAxes::axial(),
            RotaryAxes::Axial { n_axes: 2, frequencies: AxisFrequencies::Alternating },
            RotaryAxes::Sections { sections: vec![3, 1] },
            RotaryAxes::Interleaved { sections: vec![2, 2] },
        ] {
            let rotary = Rotary::new(8, 10.0, RotaryLayout::Halves).with_axes(axes);
            let scores = |start| {
                let rotation = rotary.rotation(&places(start, &device), &device).expect("a rotation");
                rotation.apply(query.clone()).matmul(rotation.apply(key.clone()).swap_dims(2, 3)).into_data()
            };
            assert_close(&scores([0.0; 2]), &scores([-7.0, 11.5]), 1e-4);
        }
    }

    #[test]
    fn a_stretched_image_is_refused() {
        let rotary = RotaryConfig::default().with_axes(RotaryAxes::axial());
        let rotary = rotary.with_scaling(RotaryScaling::Linear { factor: 2.0 });
        let error = rotary.check(Checks::default(), 8).finish().expect_err("an image");
        assert_eq!(error.problems(), ["position.scaling must be none with axial axes: it is for longer texts"]);
    }

    #[test]
    fn axes_are_a_name_or_a_table() {
        let of =
            |axes: &str| serde_json::from_str::<RotaryConfig>(&format!(r#"{{"axes": {axes}}}"#)).expect("axes").axes;
        assert_eq!(of(r#""axial""#), RotaryAxes::axial());
        assert_eq!(of(r#"{"kind": "sections", "sections": [2, 1]}"#), RotaryAxes::Sections { sections: vec![2, 1] });
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
