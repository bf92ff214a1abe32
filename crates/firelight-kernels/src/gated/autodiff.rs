//! The gradients of a gated unit, from its two inputs.

use super::{GatedExtension, GatedKernel};
use crate::activation::Activation;
use crate::graph::{BackwardPass, Operation, record_cheap};
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::{Autodiff, tensor::FloatTensor};

impl<B: GatedKernel, C: CheckpointStrategy> GatedExtension for Autodiff<B, C> {
    fn gated(gate: FloatTensor<Self>, up: FloatTensor<Self>, activation: Activation) -> FloatTensor<Self> {
        let forward = |gated: &Gated, [gate, up]: [FloatTensor<B>; 2]| B::forward(gate, up, gated.0);
        record_cheap::<B, C, _, 2>([gate, up], [true; 2], Gated(activation), forward)
    }
}

#[derive(Debug, Clone)]
struct Gated(Activation);

impl<B: GatedKernel> Operation<B, 2> for Gated {
    fn backward(self, pass: BackwardPass<B, 2>) -> [Option<FloatTensor<B>>; 2] {
        let [gate, up] = pass.inputs.map(|input| input.expect("both inputs are kept"));
        B::backward(gate, up, pass.gradient, self.0).map(Some)
    }
}
