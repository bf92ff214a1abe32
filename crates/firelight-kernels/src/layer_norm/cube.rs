//! Layer normalisation on a GPU: a cube of units for every row.

use super::{LayerNormExtension, LayerNormKernel};
use crate::cube::norm::NormOperations;
use crate::optional::OptionalFloat;
use burn::backend::{Cube, tensor::FloatTensor};

impl LayerNormExtension for Cube {
    fn layer_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: OptionalFloat<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        Self::norm(x, gamma, beta, true, epsilon)
    }
}

impl LayerNormKernel for Cube {
    fn forward(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: Option<FloatTensor<Self>>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        Self::norm(x, gamma, OptionalFloat::of(beta), true, epsilon)
    }

    fn backward(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        epsilon: f64,
    ) -> [FloatTensor<Self>; 3] {
        Self::norm_backward(x, gamma, grad, true, epsilon).into()
    }
}
