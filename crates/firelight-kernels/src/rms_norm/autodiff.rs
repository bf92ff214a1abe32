//! The gradients of root mean square normalisation, from its input: the mean square is computed again, which costs less
//! than the memory traffic of the rest.

use super::{RmsNormExtension, RmsNormKernel};
use crate::graph::{BackwardPass, Operation, record};
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::{Autodiff, tensor::FloatTensor};

impl<B: RmsNormKernel, C: CheckpointStrategy> RmsNormExtension for Autodiff<B, C> {
    fn rms_norm(x: FloatTensor<Self>, gamma: FloatTensor<Self>, epsilon: f64) -> FloatTensor<Self> {
        record::<B, C, _, 2>([x, gamma], [true; 2], |[x, gamma]| (B::forward(x, gamma, epsilon), RmsNorm { epsilon }))
    }
}

/// Joins the norm of `x` with `gamma`, which was computed as `output`, to the graph.
pub(crate) fn record_rms_norm<B: RmsNormKernel, C: CheckpointStrategy>(
    inputs: [FloatTensor<Autodiff<B, C>>; 2],
    epsilon: f64,
    output: FloatTensor<B>,
) -> FloatTensor<Autodiff<B, C>> {
    record::<B, C, _, 2>(inputs, [true; 2], |_| (output, RmsNorm { epsilon }))
}

#[derive(Debug, Clone)]
struct RmsNorm {
    epsilon: f64,
}

impl<B: RmsNormKernel> Operation<B, 2> for RmsNorm {
    fn backward(self, pass: BackwardPass<B, 2>) -> [Option<FloatTensor<B>>; 2] {
        let [x, gamma] = pass.inputs.map(|input| input.expect("x and gamma are kept"));
        B::backward(x, gamma, pass.gradient, self.epsilon).map(Some)
    }
}
