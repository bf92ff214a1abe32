//! The gradients of the product: that of `x` from the blocks, which are kept anyway, that of the bias from nothing.

use super::{QuantizedLinearExtension, QuantizedLinearKernel};
use crate::BlockFormat;
use crate::graph::{BackwardPass, Operation, record};
use crate::optional::OptionalFloat;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, TensorMetadata};
use burn::tensor::Shape;

impl<B: QuantizedLinearKernel, C: CheckpointStrategy> QuantizedLinearExtension for Autodiff<B, C> {
    fn quantized_linear(
        x: FloatTensor<Self>,
        blocks: IntTensor<Self>,
        bias: OptionalFloat<Self>,
        format: BlockFormat,
    ) -> FloatTensor<Self> {
        let operation = QuantizedLinear::<B> { blocks: blocks.clone(), format, shape: x.shape() };
        match bias.into_option() {
            Some(bias) => record::<B, C, _, 2>([x, bias], [false; 2], |[x, bias]| {
                (B::quantized_forward(x, blocks, Some(bias), format), operation)
            }),
            None => {
                record::<B, C, _, 1>([x], [false], |[x]| (B::quantized_forward(x, blocks, None, format), operation))
            }
        }
    }
}

#[derive(Debug, Clone)]
struct QuantizedLinear<B: QuantizedLinearKernel> {
    blocks: IntTensor<B>,
    format: BlockFormat,
    /// That of `x`.
    shape: Shape,
}

impl<B: QuantizedLinearKernel, const N: usize> Operation<B, N> for QuantizedLinear<B> {
    fn backward(self, pass: BackwardPass<B, N>) -> [Option<FloatTensor<B>>; N] {
        let gradient = |index| match index {
            0 => B::quantized_input_gradient(self.blocks.clone(), pass.gradient.clone(), &self.shape, self.format),
            _ => B::bias_gradient(pass.gradient.clone()),
        };
        std::array::from_fn(|index| pass.is_wanted[index].then(|| gradient(index)))
    }
}
