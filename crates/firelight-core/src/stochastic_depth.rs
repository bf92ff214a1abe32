//! Leaves out the output of a part, for one row of the batch at a time, in training only.
//!
//! Source: Huang et al. 2016, §3 (<https://arxiv.org/abs/1603.09382>), with a rate `1 - p` for their survival `p`. Two
//! differences: the draw is for each row and not for the batch, and what is kept is divided by `p` in training, so that
//! nothing is scaled afterwards.

use crate::dropout;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::Tensor;

/// Dropout of whole rows.
#[doc(alias = "DropPath")]
#[doc(alias = "drop path")]
#[derive(Module, Debug)]
pub struct StochasticDepth {
    dropout: Dropout,
}

impl StochasticDepth {
    /// Leaves out a row with probability `rate`.
    pub(crate) fn new(rate: f64) -> Self {
        Self { dropout: DropoutConfig::new(rate).init() }
    }

    /// # Shapes
    /// - `x`: `[B, T, D]`; output: the same
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        if dropout::rate(&self.dropout, &x.device()) == 0.0 {
            return x;
        }
        let [batch, ..] = x.dims();
        let kept = dropout::drop(&self.dropout, Tensor::ones([batch, 1, 1], (&x.device(), x.dtype())));
        x * kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn rows_are_left_out_whole_and_in_training_only() {
        let device = Device::default();
        let depth = StochasticDepth::new(0.5);
        let x = Tensor::<3>::ones([64, 2, 3], &device);
        depth.forward(x.clone()).into_data().assert_eq(&x.into_data(), true);
        let output = depth.forward(Tensor::ones([64, 2, 3], &device.autodiff()));
        let values: Vec<f32> = output.into_data().iter::<f32>().collect();
        let rows: Vec<_> = values.chunks(6).collect();
        assert!(rows.iter().all(|row| row.iter().all(|&value| value == row[0] && (value == 0.0 || value == 2.0))));
        let kept = rows.iter().filter(|row| row[0] == 2.0).count();
        assert!((8..56).contains(&kept), "{kept} of 64 rows kept at a rate of a half");
    }
}
