//! Elementwise activation functions as differentiable operations: the fused paths of [`gelu`](crate::gelu),
//! [`silu`](crate::silu) and [`gated`](crate::gated) share them.

pub(crate) mod flex;

pub(crate) use flex::{Elementwise, with_function};

use crate::graph::{BackwardPass, CheckpointStrategy, Operation, record_cheap};
use burn::backend::{Autodiff, Backend, Dispatch, backend_extension, tensor::FloatTensor};
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

/// The gradient of an activation function: the slope at the input, which a checkpointing graph computes again.
impl<B: ActivationKernel, C: CheckpointStrategy> ActivationExtension for Autodiff<B, C> {
    fn activate(x: FloatTensor<Self>, activation: Activation) -> FloatTensor<Self> {
        record_cheap::<B, C, _, 1>([x], [true], Activated(activation), |activated, [x]| B::forward(x, activated.0))
    }
}

#[derive(Debug, Clone)]
struct Activated(Activation);

impl<B: ActivationKernel> Operation<B, 1> for Activated {
    fn backward(self, pass: BackwardPass<B, 1>) -> [Option<FloatTensor<B>>; 1] {
        let BackwardPass { inputs: [x], gradient, .. } = pass;
        [x.map(|x| B::backward(x, gradient, self.0))]
    }
}
