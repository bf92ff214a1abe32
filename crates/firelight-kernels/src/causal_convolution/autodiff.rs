//! The gradients of a convolution. Each keeps only what it needs.

use super::{CausalConvolutionExtension, CausalConvolutionKernel};
use crate::graph::{BackwardPass, Operation, record};
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::{Autodiff, tensor::FloatTensor};

impl<B: CausalConvolutionKernel, C: CheckpointStrategy> CausalConvolutionExtension for Autodiff<B, C> {
    fn causal_convolution(
        x: FloatTensor<Self>,
        history: FloatTensor<Self>,
        weight: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let reads_tokens = weight.is_tracked();
        let kept = [reads_tokens, reads_tokens, x.is_tracked() || history.is_tracked()];
        record::<B, C, _, 3>([x, history, weight], kept, |[x, history, weight]| {
            (B::forward(x, history, weight), Convolution)
        })
    }
}

#[derive(Debug, Clone)]
struct Convolution;

impl<B: CausalConvolutionKernel> Operation<B, 3> for Convolution {
    fn backward(self, pass: BackwardPass<B, 3>) -> [Option<FloatTensor<B>>; 3] {
        let BackwardPass { inputs: [x, history, weight], gradient, is_wanted } = pass;
        let weight = |wanted: bool| weight.clone().filter(|_| wanted);
        [
            weight(is_wanted[0]).map(|weight| B::input_gradient(weight, gradient.clone())),
            weight(is_wanted[1]).map(|weight| B::history_gradient(weight, gradient.clone())),
            x.zip(history).filter(|_| is_wanted[2]).map(|(x, history)| B::weight_gradient(x, history, gradient)),
        ]
    }
}
