//! The residual stream: what every part of every layer reads and adds to.
//!
//! Source of the picture: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", "Virtual weights and the
//! residual stream" (<https://transformer-circuits.pub/2021/framework/index.html>).

use crate::norm::Norm;
use burn::tensor::Tensor;
use std::ops::Add;

/// The residual stream, `[B, T, D]`. The last output is added lazily, when the sum is read: a norm that reads it does the addition in the
/// same pass over memory.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::{NormConfig, ResidualStream};
///
/// let device = Device::flex();
/// let norm = NormConfig::rms().init(2, &device);
/// let x = Tensor::<3>::from_floats([[[3.0, 4.0]]], &device);
/// let (stream, normed) = ResidualStream::new(x).normed(&norm); // the input of a part
/// let sum = (stream + normed).into_sum(); // x + f(norm(x))
/// assert!((sum.mean().into_scalar::<f32>() - (3.5 + 3.5 / 12.5f32.sqrt())).abs() < 1e-4);
/// ```
#[doc(alias = "residual stream")]
#[doc(alias = "skip connection")]
#[derive(Debug)]
pub struct ResidualStream {
    x: Tensor<3>,
    /// What was added last, where it has not been summed yet.
    pending: Option<Tensor<3>>,
}

impl ResidualStream {
    /// A stream that carries `x`, `[B, T, D]`.
    pub fn new(x: Tensor<3>) -> Self {
        Self { x, pending: None }
    }

    /// The stream, and its norm, `[B, T, D]`.
    pub fn normed(self, norm: &Norm) -> (Self, Tensor<3>) {
        let (x, normed) = match self.pending {
            Some(output) => norm.forward_sum(self.x, output),
            None => (self.x.clone(), norm.forward(self.x)),
        };
        (Self::new(x), normed)
    }

    /// The stream, and what a part reads of it: its norm, or where there is none what it carries.
    pub(crate) fn read(self, norm: &Option<Norm>) -> (Self, Tensor<3>) {
        match norm {
            Some(norm) => self.normed(norm),
            None => {
                let x = self.into_sum();
                (Self::new(x.clone()), x)
            }
        }
    }

    /// A copy of what it carries, `[B, T, D]`.
    pub(crate) fn sum(&self) -> Tensor<3> {
        Self { x: self.x.clone(), pending: self.pending.clone() }.into_sum()
    }

    /// The sum, `[B, T, D]`.
    pub fn into_sum(self) -> Tensor<3> {
        match self.pending {
            Some(output) => self.x + output,
            None => self.x,
        }
    }
}

/// Adds the output of a part, `[B, T, D]`.
impl Add<Tensor<3>> for ResidualStream {
    type Output = Self;

    fn add(self, output: Tensor<3>) -> Self {
        Self { x: self.into_sum(), pending: Some(output) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::norm::NormConfig;
    use burn::tensor::Device;
    use firelight_kernels::{assert_close, assert_same_bits};

    #[test]
    fn what_is_added_is_in_every_sum_and_every_norm_to_the_bit() {
        let device = Device::default();
        let tensor = |a: f32, b: f32| Tensor::<3>::from_floats([[[a, b]]], &device);
        let norm = NormConfig::default().init(2, &device);
        let stream = ResidualStream::new(tensor(1.0, 2.0)) + tensor(0.3, 0.1) + tensor(-4.0, 0.2);
        let (stream, normed) = stream.normed(&norm);
        let sum = stream.into_sum();
        assert_close(&sum, &[-2.7, 2.3], 1e-6);
        assert_same_bits(&normed.into_data(), &norm.forward(sum).into_data());
    }
}
