//! Elementwise activation functions as differentiable operations: the fused paths of [`gelu`](crate::gelu),
//! [`silu`](crate::silu) and [`gated`](crate::gated) share them.

mod autodiff;
pub(crate) mod flex;

pub(crate) use flex::{Elementwise, with_function};

use burn::backend::{Backend, Dispatch, backend_extension, tensor::FloatTensor};
use burn::tensor::Tensor;

/// The activation functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    GeluExact,
    GeluTanh,
    GeluSigmoid,
    Relu,
    Sigmoid,
    Silu,
}

/// The operation that Burn's dispatch and autodiff see.
#[backend_extension(Flex, Autodiff)]
pub(crate) trait ActivationExtension: Backend {
    fn activate(x: FloatTensor<Self>, activation: Activation) -> FloatTensor<Self>;
}

/// What a backend provides: the activation function, and the gradient of its input.
pub(crate) trait ActivationKernel: Backend {
    fn forward(x: FloatTensor<Self>, activation: Activation) -> FloatTensor<Self>;
    fn backward(x: FloatTensor<Self>, grad: FloatTensor<Self>, activation: Activation) -> FloatTensor<Self>;
}

/// Applies an activation function to every element of a tensor, on the fused path.
pub(crate) fn activate<const D: usize>(x: Tensor<D>, activation: Activation) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::activate(x.into_dispatch(), activation))
}
