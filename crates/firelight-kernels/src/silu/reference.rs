//! SiLU from Burn primitives.

use burn::tensor::{Tensor, activation::sigmoid};

pub(crate) fn silu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let gate = sigmoid(x.clone());
    x * gate
}
