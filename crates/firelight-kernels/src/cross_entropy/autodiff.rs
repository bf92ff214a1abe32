//! The gradient of the logits, from the logits themselves and one number a row.

use super::{CrossEntropyExtension, CrossEntropyKernel};
use crate::optional::OptionalBool;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::backend::{
    Autodiff,
    tensor::{FloatTensor, IntTensor},
};
use std::marker::PhantomData;

impl<B: CrossEntropyKernel, C: CheckpointStrategy> CrossEntropyExtension for Autodiff<B, C> {
    fn cross_entropy(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        ignored: OptionalBool<Self>,
        smoothing: f64,
    ) -> FloatTensor<Self> {
        let targets = B::targets(targets, ignored.into_option(), smoothing);
        match CrossEntropy::<B>(PhantomData).prepare::<C>([logits.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prepared) => {
                let saved = prepared.checkpoint(&logits);
                let [losses, sums] = B::forward(logits.into_primitive(), &targets);
                prepared.finish((saved, sums, targets), losses)
            }
            OpsKind::UnTracked(prepared) => {
                let [losses, _] = B::forward(logits.into_primitive(), &targets);
                prepared.finish(losses)
            }
        }
    }
}

#[derive(Debug)]
struct CrossEntropy<B>(PhantomData<B>);

impl<B: CrossEntropyKernel> Backward<B, 1> for CrossEntropy<B> {
    type State = (NodeId, FloatTensor<B>, B::Targets);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let (logits, sums, targets) = ops.state;
        let logits = checkpointer.retrieve_node_output::<FloatTensor<B>>(logits);
        unary::<B, _>(ops.parents, ops.node, grads, |grad| B::backward(logits, sums, grad, &targets));
    }
}
