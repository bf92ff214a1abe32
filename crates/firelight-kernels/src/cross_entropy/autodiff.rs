//! The gradient of the logits, from the logits themselves and one number a row.

use super::{CrossEntropyExtension, CrossEntropyKernel};
use crate::graph::{BackwardPass, Operation, record};
use crate::optional::OptionalBool;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::{
    Autodiff,
    tensor::{FloatTensor, IntTensor},
};

impl<B: CrossEntropyKernel, C: CheckpointStrategy> CrossEntropyExtension for Autodiff<B, C> {
    fn cross_entropy(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        ignored: OptionalBool<Self>,
        smoothing: f64,
    ) -> FloatTensor<Self> {
        let targets = B::targets(targets, ignored.into_option(), smoothing);
        record::<B, C, _, 1>([logits], [true], |[logits]| {
            let [losses, sums] = B::forward(logits, &targets);
            (losses, CrossEntropy::<B> { sums, targets })
        })
    }
}

#[derive(Debug, Clone)]
struct CrossEntropy<B: CrossEntropyKernel> {
    sums: FloatTensor<B>,
    targets: B::Targets,
}

impl<B: CrossEntropyKernel> Operation<B, 1> for CrossEntropy<B> {
    fn backward(self, pass: BackwardPass<B, 1>) -> [Option<FloatTensor<B>>; 1] {
        let BackwardPass { inputs: [logits], gradient, .. } = pass;
        [logits.map(|logits| B::backward(logits, self.sums, gradient, &self.targets))]
    }
}
