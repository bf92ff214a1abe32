//! Root mean square normalisation on a GPU: a cube of units for every row.

use super::{RmsNormExtension, RmsNormKernel};
use crate::cube::norm::NormOperations;
use crate::optional::OptionalFloat;
use burn::backend::{Cube, tensor::FloatTensor};

impl RmsNormExtension for Cube {
    fn rms_norm(x: FloatTensor<Self>, gamma: FloatTensor<Self>, epsilon: f64) -> FloatTensor<Self> {
        Self::norm(x, gamma, OptionalFloat::None, false, epsilon)
    }
}

impl RmsNormKernel for Cube {
    fn forward(x: FloatTensor<Self>, gamma: FloatTensor<Self>, epsilon: f64) -> FloatTensor<Self> {
        Self::rms_norm(x, gamma, epsilon)
    }

    fn backward(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        epsilon: f64,
    ) -> [FloatTensor<Self>; 2] {
        let (d_x, d_gamma, _) = Self::norm_backward(x, gamma, grad, false, epsilon);
        [d_x, d_gamma]
    }
}
