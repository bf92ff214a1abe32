//! The forms of GELU from Burn primitives.

use super::GeluForm;
use burn::tensor::{Tensor, activation::sigmoid};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

pub(crate) fn gelu<const D: usize>(x: Tensor<D>, form: GeluForm) -> Tensor<D> {
    match form {
        GeluForm::Exact => gelu_exact(x),
        GeluForm::Tanh => gelu_tanh(x),
        GeluForm::Sigmoid => gelu_sigmoid(x),
    }
}

/// Burn has this form as one operation, but on most backends its backward pass is that of the tanh form, which is wrong
/// by up to a thousandth; the derivative of `erf` is exact on all.
fn gelu_exact<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let probability = ((x.clone() * FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
    x * probability
}

/// Two times `sqrt(2/π)`: `(1 + tanh(u)) / 2 = sigmoid(2u)`, which Burn differentiates as one operation.
const TWICE_SQRT_2_OVER_PI: f64 = 2.0 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2;

fn gelu_tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let slope = x.clone().square() * (0.044715 * TWICE_SQRT_2_OVER_PI) + TWICE_SQRT_2_OVER_PI;
    let gate = sigmoid(slope * x.clone());
    x * gate
}

fn gelu_sigmoid<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let gate = sigmoid(x.clone() * 1.702);
    x * gate
}
