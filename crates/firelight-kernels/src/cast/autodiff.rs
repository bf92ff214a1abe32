//! The gradient of a cast: that of the output in the type of the input.

use super::{CastExtension, CastKernel};
use crate::graph::{BackwardPass, Operation, record_cheap};
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::{Autodiff, TensorMetadata, tensor::FloatTensor};
use burn::tensor::FloatDType;

impl<B: CastKernel, C: CheckpointStrategy> CastExtension for Autodiff<B, C> {
    fn cast_to(x: FloatTensor<Self>, dtype: FloatDType) -> FloatTensor<Self> {
        let forward = |Cast { to, .. }: &Cast, [x]: [FloatTensor<B>; 1]| B::converted(x, *to);
        record_cheap::<B, C, _, 1>([x.clone()], [false], Cast { from: x.dtype().into(), to: dtype }, forward)
    }
}

#[derive(Debug, Clone)]
struct Cast {
    from: FloatDType,
    to: FloatDType,
}

impl<B: CastKernel> Operation<B, 1> for Cast {
    fn backward(self, pass: BackwardPass<B, 1>) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::converted(pass.gradient, self.from))]
    }
}
