//! The gradient of a rotation is the gradient turned back: the matrix of a rotation is orthogonal.

use super::{RotaryExtension, RotaryKernel, RotaryPairs};
use crate::graph::{BackwardPass, Operation, record};
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::{Autodiff, tensor::FloatTensor};

impl<B: RotaryKernel, C: CheckpointStrategy> RotaryExtension for Autodiff<B, C> {
    fn rotary(
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        pairs: RotaryPairs,
    ) -> FloatTensor<Self> {
        let angles = [cos, sin].map(|angle| angle.into_primitive());
        record::<B, C, _, 1>([x], [false], |[x]| {
            (B::turn(x, angles.clone(), pairs, false), Turn::<B> { angles, pairs })
        })
    }
}

#[derive(Debug, Clone)]
struct Turn<B: RotaryKernel> {
    angles: [FloatTensor<B>; 2],
    pairs: RotaryPairs,
}

impl<B: RotaryKernel> Operation<B, 1> for Turn<B> {
    fn backward(self, pass: BackwardPass<B, 1>) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::turn(pass.gradient, self.angles, self.pairs, true))]
    }
}
