//! The gradients of the head, from its inputs and two numbers a row.

use super::blocks::{Block, backward, forward};
use super::extension::LinearCrossEntropyExtension;
use crate::cross_entropy::CrossEntropyKernel;
use crate::optional::OptionalBool;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{
    Autodiff,
    tensor::{FloatTensor, IntTensor},
};
use std::marker::PhantomData;

impl<B: CrossEntropyKernel, C: CheckpointStrategy> LinearCrossEntropyExtension for Autodiff<B, C> {
    fn linear_cross_entropy(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        targets: IntTensor<Self>,
        ignored: OptionalBool<Self>,
        smoothing: f64,
        rows: usize,
    ) -> FloatTensor<Self> {
        let targets = (targets, ignored.into_option(), smoothing);
        match Head::<B>(PhantomData).prepare::<C>([x.node(), weight.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prepared) => {
                let inputs = [prepared.checkpoint(&x), prepared.checkpoint(&weight)];
                let (losses, blocks) = forward::<B>(&x.into_primitive(), &weight.into_primitive(), targets, rows);
                prepared.finish((inputs, blocks), losses)
            }
            OpsKind::UnTracked(prepared) => {
                let (losses, _) = forward::<B>(&x.into_primitive(), &weight.into_primitive(), targets, rows);
                prepared.finish(losses)
            }
        }
    }
}

#[derive(Debug)]
struct Head<B>(PhantomData<B>);

impl<B: CrossEntropyKernel> Backward<B, 2> for Head<B> {
    type State = ([NodeId; 2], Vec<Block<B>>);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let (inputs, blocks) = ops.state;
        let [x, weight] = inputs.map(|id| checkpointer.retrieve_node_output::<FloatTensor<B>>(id));
        for (node, gradient) in ops.parents.into_iter().zip(backward::<B>(&x, &weight, &grad, blocks)) {
            if let Some(node) = node {
                grads.register::<B>(node.id, gradient);
            }
        }
    }
}
