//! Sinusoidal positions: `PE(p, 2i) = sin(p f_i)`, `PE(p, 2i+1) = cos(p f_i)` with `f_i = 10000^(-2i/D)`, added to the
//! embeddings. Small `i` turn fast. The table has no length and no parameters.
//!
//! Source: Vaswani et al. 2017, §3.5 (<https://arxiv.org/abs/1706.03762>). With `RotaryLayout::Halves` all sines come
//! first, then all cosines, as in the Marian translation models.

use super::{PositionScheme, Positions, RotaryLayout, frequencies};
use burn::module::Module;
use burn::tensor::{Device, Tensor};

/// Sines and cosines of `D / 2` frequencies, interleaved or in halves.
#[derive(Module, Debug)]
pub struct Sinusoidal {
    d_model: usize,
    #[module(skip)]
    layout: RotaryLayout,
}

impl Sinusoidal {
    /// For embeddings of `d_model` numbers, an even count.
    pub fn new(d_model: usize) -> Self {
        Self { d_model, layout: RotaryLayout::Interleaved }
    }

    /// Sets which channels hold the sine and the cosine of one frequency.
    pub fn with_layout(mut self, layout: RotaryLayout) -> Self {
        self.layout = layout;
        self
    }

    /// The vectors at `positions`, `[1 | B, T, D]`.
    pub fn table(&self, positions: &Positions, device: &Device) -> Tensor<3> {
        let angles = positions.angles(&frequencies(10_000.0, self.d_model), device);
        let [rows, length, _] = angles.dims();
        let parts = vec![angles.clone().sin(), angles.cos()];
        if self.layout == RotaryLayout::Halves {
            return Tensor::cat(parts, 2);
        }
        let pairs = Tensor::stack::<4>(parts, 3); // [1 | B, T, D / 2, 2]
        pairs.reshape([rows, length, self.d_model])
    }
}

impl PositionScheme for Sinusoidal {
    fn embed(&self, x: Tensor<3>, positions: &Positions) -> Tensor<3> {
        let table = self.table(positions, &x.device()).cast(x.dtype());
        x + table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_kernels::assert_close;

    fn table(start: usize, len: usize, d_model: usize) -> Tensor<2> {
        let positions = Positions::contiguous(start, len);
        Sinusoidal::new(d_model).table(&positions, &Device::default()).squeeze_dim(0)
    }

    #[test]
    fn cosine_similarity_falls_with_distance() {
        // Published for D = 64: positions 0 and 1 .966, positions 0 and 50 .490.
        let table = table(0, 51, 64);
        let similarity = |p: usize| {
            let rows = table.clone().narrow(0, 0, 1) * table.clone().narrow(0, p, 1);
            rows.sum().into_scalar::<f32>() / 32.0
        };
        assert!((similarity(1) - 0.966).abs() < 1e-3, "{}", similarity(1));
        assert!((similarity(50) - 0.490).abs() < 1e-3, "{}", similarity(50));
    }

    #[test]
    fn halves_hold_all_sines_then_all_cosines() {
        // Position 1 of four channels: frequencies 1 and .01.
        let positions = Positions::contiguous(1, 1);
        let table = Sinusoidal::new(4).with_layout(RotaryLayout::Halves).table(&positions, &Device::default());
        let expected = burn::tensor::TensorData::from([[[0.841471f32, 0.0099998, 0.540302, 0.99995]]]);
        assert_close(&table, &expected, 1e-5);
    }

    #[test]
    fn a_shift_is_the_same_rotation_everywhere() {
        // §3.5: PE(p + k) is a linear function of PE(p) that does not depend on p.
        let (k, d_model) = (3, 8);
        let angles = frequencies(10_000.0, d_model).into_iter().map(|f| f * k as f64).collect::<Vec<_>>();
        let rows = table(0, 10, d_model).try_to_vec_as::<f32>().expect("a host copy");
        let turned: Vec<f32> = (rows[..7 * d_model].chunks(2).enumerate())
            .flat_map(|(i, pair)| {
                let (sin, cos) = (angles[i % (d_model / 2)] as f32).sin_cos();
                [pair[0] * cos + pair[1] * sin, pair[1] * cos - pair[0] * sin]
            })
            .collect();
        let expected = table(k, 7, d_model).reshape([7 * d_model]).into_data();
        assert_close(&burn::tensor::TensorData::from(turned.as_slice()), &expected, 1e-5);
    }
}
