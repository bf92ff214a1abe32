//! The gradients of a convolution. Each keeps only what it needs.

use super::{CausalConvolutionExtension, CausalConvolutionKernel};
use crate::graph::{BackwardPass, Operation, record};
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::{Autodiff, tensor::FloatTensor};

impl<B: CausalConvolutionKernel, C: CheckpointStrategy> CausalConvolutionExtension for Autodiff<B, C> {
    fn causal_convolution(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        let kept = [weight.is_tracked(), x.is_tracked()];
        record::<B, C, _, 2>([x, weight], kept, |[x, weight]| (B::forward(x, weight), Convolution))
    }
}

#[derive(Debug, Clone)]
struct Convolution;

impl<B: CausalConvolutionKernel> Operation<B, 2> for Convolution {
    fn backward(self, pass: BackwardPass<B, 2>) -> [Option<FloatTensor<B>>; 2] {
        let BackwardPass { inputs: [x, weight], gradient, is_wanted } = pass;
        let of_x = weight.filter(|_| is_wanted[0]).map(|weight| B::input_gradient(weight, gradient.clone()));
        [of_x, x.filter(|_| is_wanted[1]).map(|x| B::weight_gradient(x, gradient))]
    }
}
