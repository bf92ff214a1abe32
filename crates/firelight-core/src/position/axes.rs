//! Rotary positions of several axes: row and column of an image's patch, or time, row and column of a token of text and images.
//! Every pair of channels belongs to one axis, and is turned by that coordinate of the token alone.
//!
//! Sources: axial, the published code of Pixtral and DINOv3 (Siméoni et al. 2025, <https://arxiv.org/abs/2508.10104>) and
//! Fang et al. 2024, EVA-02 (<https://arxiv.org/abs/2303.11331>); sections, Wang et al. 2024, Qwen2-VL, §2.1, M-RoPE
//! (<https://arxiv.org/abs/2409.12191>), interleaved as in the published code of Qwen3-VL.

use crate::error::Checks;
use serde::{Deserialize, Serialize};

/// Which pairs of channels each coordinate of a token turns.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::{Pass, PositionConfig, RotaryAxes, RotaryConfig, SequenceInput, TransformerConfig};
///
/// let device = Device::flex();
/// let rotary = RotaryConfig::default().with_axes(RotaryAxes::axial());
/// let stack = TransformerConfig::encoder(16, 2, 1).with_position(PositionConfig::Rotary(rotary)).init(&device);
/// let places = Tensor::<3>::from_floats([[[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]], &device); // Rows and columns.
/// let input = SequenceInput::default().with_coordinates(places);
/// stack.forward(Tensor::ones([2, 4, 16], &device), &input, &mut Pass::default());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum RotaryAxes {
    /// One position turns all pairs, as in text.
    #[default]
    One,
    /// Equal parts of the pairs, one after the other: rows turn the first, columns the second.
    #[doc(alias = "2D RoPE")]
    Axial {
        /// Coordinates of a token. Default: 2.
        #[serde(default = "two")]
        n_axes: usize,
        /// What frequencies each axis has. Default: its own.
        #[serde(default)]
        frequencies: AxisFrequencies,
    },
    /// As many pairs for each axis, one axis after the other; the frequencies fall through all of them. Qwen2-VL has the axes
    /// time, row and column.
    #[doc(alias = "M-RoPE")]
    #[doc(alias = "mrope_section")]
    Sections {
        /// Pairs of each axis.
        sections: Vec<usize>,
    },
    /// As many pairs for each axis, in turn, the first axis for what the others leave over; the frequencies fall through all of
    /// them. Qwen3-VL.
    Interleaved {
        /// Pairs of each axis.
        sections: Vec<usize>,
    },
}

/// The frequencies of each axis of [`RotaryAxes::Axial`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AxisFrequencies {
    /// Each axis has all frequencies of a head of its own width, as in DINOv3, EVA-02 and the images of Qwen2-VL.
    #[default]
    Own,
    /// The frequencies of the whole head go to the axes in turn, as in Pixtral.
    Alternating,
}

fn two() -> usize {
    2
}

impl RotaryAxes {
    /// Rows and columns, with frequencies of their own.
    pub fn axial() -> Self {
        Self::Axial { n_axes: two(), frequencies: AxisFrequencies::Own }
    }

    /// Coordinates that turn a token.
    pub fn n_axes(&self) -> usize {
        match self {
            Self::One => 1,
            Self::Axial { n_axes, .. } => *n_axes,
            Self::Sections { sections } | Self::Interleaved { sections } => sections.len(),
        }
    }

    /// Notes axes that do not fit heads of which `width` channels turn.
    pub(super) fn check(&self, checks: Checks, width: usize) -> Checks {
        let pairs = width / 2;
        match self {
            Self::One => checks,
            Self::Axial { n_axes, .. } => checks.require(*n_axes > 0 && pairs.is_multiple_of((*n_axes).max(1)), || {
                format!("position.axes.n_axes = {n_axes} must divide the {pairs} pairs of channels that turn")
            }),
            Self::Sections { sections } => sum(checks, sections, pairs),
            Self::Interleaved { sections } => {
                // The last pair of axis `a`, whose pairs are `a`, `a + n`, `a + 2n` and so on.
                let last = |(axis, pairs): (usize, &usize)| {
                    pairs.saturating_sub(1).saturating_mul(sections.len()).saturating_add(axis)
                };
                let fits = sections.iter().enumerate().skip(1).map(last).all(|last| last < pairs);
                sum(checks, sections, pairs).require(fits, || {
                    format!(
                        "position.axes.sections = {sections:?} cannot take turns within {pairs} pairs: no section may be longer \
                         than the first"
                    )
                })
            }
        }
    }

    /// Axis and frequency of every pair of `width` channels; `series` gives the frequencies of a width.
    pub(super) fn turns(&self, width: usize, series: impl Fn(usize) -> Vec<f64>) -> Vec<(usize, f64)> {
        match self {
            Self::One => series(width).into_iter().map(|frequency| (0, frequency)).collect(),
            Self::Axial { n_axes, frequencies } => {
                let of_axis = |axis: usize| match frequencies {
                    AxisFrequencies::Own => series(width / n_axes),
                    AxisFrequencies::Alternating => series(width).into_iter().skip(axis).step_by(*n_axes).collect(),
                };
                (0..*n_axes)
                    .flat_map(|axis| of_axis(axis).into_iter().map(move |frequency| (axis, frequency)))
                    .collect()
            }
            Self::Sections { sections } => {
                let axes = sections.iter().enumerate().flat_map(|(axis, pairs)| std::iter::repeat_n(axis, *pairs));
                axes.zip(series(width)).collect()
            }
            Self::Interleaved { sections } => {
                let axis = |pair: usize| {
                    let axis = pair % sections.len();
                    if pair / sections.len() < sections[axis] { axis } else { 0 }
                };
                series(width).into_iter().enumerate().map(|(pair, frequency)| (axis(pair), frequency)).collect()
            }
        }
    }
}

fn sum(checks: Checks, sections: &[usize], pairs: usize) -> Checks {
    let sum = sections.iter().fold(0, |sum: usize, pairs| sum.saturating_add(*pairs));
    checks.require(sum == pairs && sections.iter().all(|pairs| *pairs > 0), || {
        format!(
            "position.axes.sections = {sections:?} must be above 0 and sum to the {pairs} pairs of channels that turn"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Axes and frequencies of eight channels, which fall from 8 by one a pair, and of four, by two.
    fn turns(axes: &RotaryAxes) -> Vec<(usize, f64)> {
        axes.turns(8, |width| (0..width / 2).map(|pair| 8.0 - (8 / width * pair) as f64).collect())
    }

    #[test]
    fn every_pair_has_its_axis_and_frequency_by_hand() {
        assert_eq!(turns(&RotaryAxes::One), [(0, 8.0), (0, 7.0), (0, 6.0), (0, 5.0)]);
        assert_eq!(turns(&RotaryAxes::axial()), [(0, 8.0), (0, 6.0), (1, 8.0), (1, 6.0)]);
        let alternating = RotaryAxes::Axial { n_axes: 2, frequencies: AxisFrequencies::Alternating };
        assert_eq!(turns(&alternating), [(0, 8.0), (0, 6.0), (1, 7.0), (1, 5.0)]);
        let sections = || vec![2, 1, 1];
        assert_eq!(turns(&RotaryAxes::Sections { sections: sections() }), [(0, 8.0), (0, 7.0), (1, 6.0), (2, 5.0)]);
        assert_eq!(turns(&RotaryAxes::Interleaved { sections: sections() }), [(0, 8.0), (1, 7.0), (2, 6.0), (0, 5.0)]);
    }

    #[test]
    fn axes_that_do_not_fit_are_refused() {
        let problem = |axes: RotaryAxes| axes.check(Checks::default(), 14).finish().map_err(|error| error.to_string());
        let refused = |axes, text: &str| assert_eq!(problem(axes), Err(text.into()));
        refused(RotaryAxes::axial(), "position.axes.n_axes = 2 must divide the 7 pairs of channels that turn");
        refused(
            RotaryAxes::Sections { sections: vec![3, 3] },
            "position.axes.sections = [3, 3] must be above 0 and sum to the 7 pairs of channels that turn",
        );
        refused(
            RotaryAxes::Interleaved { sections: vec![2, 4, 1] },
            "position.axes.sections = [2, 4, 1] cannot take turns within 7 pairs: no section may be longer than the first",
        );
        assert_eq!(problem(RotaryAxes::Interleaved { sections: vec![3, 2, 2] }), Ok(()));
    }
}
