//! The gradients of the head, from its inputs and two numbers a row.

use super::blocks::{Block, Inputs, backward, forward};
use super::extension::{LinearCrossEntropyExtension, Settings};
use crate::cross_entropy::CrossEntropyKernel;
use crate::optional::{OptionalBool, OptionalFloat};
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::{
    Autodiff,
    tensor::{BoolTensor, FloatTensor, IntTensor},
};
use std::marker::PhantomData;

impl<B: CrossEntropyKernel, C: CheckpointStrategy> LinearCrossEntropyExtension for Autodiff<B, C> {
    fn linear_cross_entropy(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: OptionalFloat<Self>,
        targets: IntTensor<Self>,
        ignored: OptionalBool<Self>,
        settings: Settings,
    ) -> FloatTensor<Self> {
        let targets = (targets, ignored.into_option());
        match bias.into_option() {
            Some(bias) => {
                let nodes = [x.node(), weight.node(), bias.node()];
                record::<B, C, 3>([x, weight, bias], nodes, targets, settings)
            }
            None => {
                let nodes = [x.node(), weight.node()];
                record::<B, C, 2>([x, weight], nodes, targets, settings)
            }
        }
    }
}

fn record<B: CrossEntropyKernel, C: CheckpointStrategy, const N: usize>(
    tensors: [FloatTensor<Autodiff<B, C>>; N],
    nodes: [NodeGuard; N],
    targets: (IntTensor<B>, Option<BoolTensor<B>>),
    settings: Settings,
) -> FloatTensor<Autodiff<B, C>> {
    match Head::<B>(PhantomData).prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prepared) => {
            let saved = tensors.each_ref().map(|tensor| prepared.checkpoint(tensor));
            let inputs = join(tensors.map(|tensor| tensor.into_primitive()), settings);
            let (losses, blocks) = forward::<B>(&inputs, targets);
            prepared.finish((saved, blocks, settings), losses)
        }
        OpsKind::UnTracked(prepared) => {
            let inputs = join(tensors.map(|tensor| tensor.into_primitive()), settings);
            prepared.finish(forward::<B>(&inputs, targets).0)
        }
    }
}

/// Vectors, a matrix, and perhaps a bias.
fn join<B: CrossEntropyKernel, const N: usize>(tensors: [FloatTensor<B>; N], settings: Settings) -> Inputs<B> {
    let mut tensors = tensors.into_iter();
    let mut next = || tensors.next().expect("a head has two tensors at least");
    Inputs { x: next(), weight: next(), bias: tensors.next(), settings }
}

#[derive(Debug)]
struct Head<B>(PhantomData<B>);

impl<B: CrossEntropyKernel, const N: usize> Backward<B, N> for Head<B> {
    type State = ([NodeId; N], Vec<Block<B>>, Settings);

    fn backward(self, ops: Ops<Self::State, N>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let (saved, blocks, settings) = ops.state;
        let inputs = join(saved.map(|id| checkpointer.retrieve_node_output::<FloatTensor<B>>(id)), settings);
        let found = backward::<B>(&inputs, &grad, blocks);
        let gradients = [Some(found.x), Some(found.weight), found.bias];
        for (node, gradient) in ops.parents.into_iter().zip(gradients) {
            if let Some((node, gradient)) = node.zip(gradient) {
                grads.register::<B>(node.id, gradient);
            }
        }
    }
}
