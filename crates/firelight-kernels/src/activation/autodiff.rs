//! The gradient of an activation function: the slope at the input, which a checkpointing graph computes again.

use super::{Activation, ActivationExtension, ActivationKernel};
use crate::graph::{BackwardPass, Operation, record_cheap};
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::{Autodiff, tensor::FloatTensor};

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
