//! The gradients of attention, from its inputs, its output and two numbers a query: the weights are computed again.

use super::extension::{AttentionExtension, AttentionKernel, Inputs, Settings};
use crate::optional::{OptionalBool, OptionalFloat};
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::{
    Autodiff,
    tensor::{BoolTensor, FloatTensor},
};
use std::marker::PhantomData;

impl<B: AttentionKernel, C: CheckpointStrategy> AttentionExtension for Autodiff<B, C> {
    fn attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        bias: OptionalFloat<Self>,
        padding: OptionalBool<Self>,
        hidden: OptionalBool<Self>,
        settings: Settings,
    ) -> FloatTensor<Self> {
        let (padding, hidden) = (padding.into_option(), hidden.into_option());
        let seed = B::draw_seed(query.primitive(), &settings);
        let masks = Masks { padding, hidden, settings, seed };
        match bias.into_option() {
            Some(bias) => {
                let nodes = [query.node(), key.node(), value.node(), bias.node()];
                record::<B, C, 4>([query, key, value, bias], nodes, masks)
            }
            None => {
                let nodes = [query.node(), key.node(), value.node()];
                record::<B, C, 3>([query, key, value], nodes, masks)
            }
        }
    }
}

/// The inputs that have no gradient.
#[derive(Debug, Clone)]
struct Masks<B: AttentionKernel> {
    padding: Option<BoolTensor<B>>,
    hidden: Option<BoolTensor<B>>,
    settings: Settings,
    seed: Option<FloatTensor<B>>,
}

impl<B: AttentionKernel> Masks<B> {
    /// Joined by query, key, value and perhaps a bias.
    fn join<const N: usize>(self, tensors: [FloatTensor<B>; N]) -> Inputs<B> {
        let mut tensors = tensors.into_iter();
        let mut next = || tensors.next().expect("attention has three tensors at least");
        let (query, key, value) = (next(), next(), next());
        let Self { padding, hidden, settings, seed } = self;
        Inputs { query, key, value, bias: tensors.next(), padding, hidden, settings, seed }
    }
}

fn record<B: AttentionKernel, C: CheckpointStrategy, const N: usize>(
    tensors: [FloatTensor<Autodiff<B, C>>; N],
    nodes: [NodeGuard; N],
    masks: Masks<B>,
) -> FloatTensor<Autodiff<B, C>> {
    match Attention::<B>(PhantomData).prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prepared) => {
            let tensors_saved = tensors.each_ref().map(|tensor| prepared.checkpoint(tensor));
            let inputs = masks.clone().join(tensors.map(|tensor| tensor.into_primitive()));
            let outputs = B::forward(&inputs);
            let output = outputs[0].clone();
            prepared.finish(Saved { tensors: tensors_saved, masks, outputs }, output)
        }
        OpsKind::UnTracked(prepared) => {
            let [output, _] = B::forward(&masks.join(tensors.map(|tensor| tensor.into_primitive())));
            prepared.finish(output)
        }
    }
}

#[derive(Debug)]
struct Attention<B>(PhantomData<B>);

#[derive(Debug, Clone)]
struct Saved<B: AttentionKernel, const N: usize> {
    tensors: [NodeId; N],
    masks: Masks<B>,
    outputs: [FloatTensor<B>; 2],
}

impl<B: AttentionKernel, const N: usize> Backward<B, N> for Attention<B> {
    type State = Saved<B, N>;

    fn backward(self, ops: Ops<Saved<B, N>, N>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let Saved { tensors, masks, outputs } = ops.state;
        let inputs = masks.join(tensors.map(|id| checkpointer.retrieve_node_output::<FloatTensor<B>>(id)));
        let with_bias = ops.parents.get(3).is_some_and(Option::is_some);
        let (gradients, bias) = B::backward(&inputs, outputs, grad, with_bias);
        for (node, gradient) in ops.parents.into_iter().zip(gradients.into_iter().chain(bias)) {
            if let Some(node) = node {
                grads.register::<B>(node.id, gradient);
            }
        }
    }
}
