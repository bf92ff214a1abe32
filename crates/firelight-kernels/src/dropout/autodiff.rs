//! The gradient of dropout: the same numbers dropped again. Nothing is kept but rate and seed.

use super::{DropoutExtension, DropoutKernel};
use crate::graph::{BackwardPass, Operation, record_cheap};
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::{Autodiff, tensor::FloatTensor};

impl<B: DropoutKernel, C: CheckpointStrategy> DropoutExtension for Autodiff<B, C> {
    fn dropout(x: FloatTensor<Self>, rate: f64, seed: u64) -> FloatTensor<Self> {
        let forward = |Dropped { rate, seed }: &Dropped, [x]: [FloatTensor<B>; 1]| B::dropped(x, *rate, *seed);
        record_cheap::<B, C, _, 1>([x], [false], Dropped { rate, seed }, forward)
    }
}

#[derive(Debug, Clone)]
struct Dropped {
    rate: f64,
    seed: u64,
}

impl<B: DropoutKernel> Operation<B, 1> for Dropped {
    fn backward(self, pass: BackwardPass<B, 1>) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::dropped(pass.gradient, self.rate, self.seed))]
    }
}
