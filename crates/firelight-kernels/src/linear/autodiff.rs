//! The gradients of the affine map. Each keeps only what it needs: the weight for that of `x`, `x` for that of the
//! weight, nothing for that of the bias.

use super::{LinearExtension, LinearKernel};
use crate::MatmulPrecision;
use crate::graph::{BackwardPass, Operation, record};
use crate::optional::OptionalFloat;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::{Autodiff, TensorMetadata, tensor::FloatTensor};
use burn::tensor::Shape;

impl<B: LinearKernel, C: CheckpointStrategy> LinearExtension for Autodiff<B, C> {
    fn linear(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: OptionalFloat<Self>,
        precision: MatmulPrecision,
    ) -> FloatTensor<Self> {
        let affine = Affine { shape: x.shape(), precision };
        let (keeps_x, keeps_weight) = (weight.is_tracked(), x.is_tracked());
        match bias.into_option() {
            Some(bias) => {
                record::<B, C, _, 3>([x, weight, bias], [keeps_x, keeps_weight, false], |[x, weight, bias]| {
                    (B::forward(x, weight, Some(bias), precision), affine)
                })
            }
            None => record::<B, C, _, 2>([x, weight], [keeps_x, keeps_weight], |[x, weight]| {
                (B::forward(x, weight, None, precision), affine)
            }),
        }
    }
}

#[derive(Debug, Clone)]
struct Affine {
    /// That of `x`.
    shape: Shape,
    /// Those of the forward pass.
    precision: MatmulPrecision,
}

impl<B: LinearKernel, const N: usize> Operation<B, N> for Affine {
    fn backward(self, pass: BackwardPass<B, N>) -> [Option<FloatTensor<B>>; N] {
        let kept = |index: usize| pass.inputs[index].clone();
        let gradient = |index| match index {
            0 => kept(1).map(|weight| B::input_gradient(weight, pass.gradient.clone(), &self.shape, self.precision)),
            1 => kept(0).map(|x| B::weight_gradient(x, pass.gradient.clone(), self.precision)),
            _ => Some(B::bias_gradient(pass.gradient.clone())),
        };
        std::array::from_fn(|index| pass.is_wanted[index].then(|| gradient(index)).flatten())
    }
}
