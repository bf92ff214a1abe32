//! Elementwise functions of one number as differentiable operations: what [`gelu`](crate::gelu), [`silu`](crate::silu)
//! and [`gated`](crate::gated) are made of on the fused path.

mod autodiff;
pub(crate) mod flex;

pub(crate) use flex::{Shape, with_shape};

use burn::backend::{Backend, Dispatch, backend_extension, tensor::FloatTensor};
use burn::tensor::Tensor;

/// Which function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Curve {
    GeluExact,
    GeluTanh,
    GeluSigmoid,
    Relu,
    Sigmoid,
    Silu,
}

/// The operation that Burn's dispatch and autodiff see.
#[backend_extension(Flex, Autodiff)]
pub(crate) trait CurveExtension: Backend {
    fn curve(x: FloatTensor<Self>, curve: Curve) -> FloatTensor<Self>;
}

/// What a backend brings: the function, and the gradient of its input.
pub(crate) trait CurveKernel: Backend {
    fn forward(x: FloatTensor<Self>, curve: Curve) -> FloatTensor<Self>;
    fn backward(x: FloatTensor<Self>, grad: FloatTensor<Self>, curve: Curve) -> FloatTensor<Self>;
}

/// Applies the function to every element of a tensor on the fused path.
pub(crate) fn curve<const D: usize>(x: Tensor<D>, curve: Curve) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::curve(x.into_dispatch(), curve))
}
