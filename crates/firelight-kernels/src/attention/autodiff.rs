//! The gradients of attention, from its inputs, its output and two numbers a query: the weights are computed again.

use super::blocks::sinks_gradient;
use super::extension::{AttentionExtension, AttentionKernel, Inputs, Settings};
use crate::optional::{OptionalBool, OptionalFloat};
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
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
        sinks: OptionalFloat<Self>,
        padding: OptionalBool<Self>,
        hidden: OptionalBool<Self>,
        settings: Settings,
    ) -> FloatTensor<Self> {
        let (padding, hidden) = (padding.into_option(), hidden.into_option());
        let seed = B::draw_seed(query.primitive(), &settings);
        let (bias, sinks) = (bias.into_option(), sinks.into_option());
        let others = Others { padding, hidden, settings, seed, has_bias: bias.is_some() };
        match (bias, sinks) {
            (None, None) => record::<B, C, 3>([query, key, value], others),
            (Some(last), None) | (None, Some(last)) => record::<B, C, 4>([query, key, value, last], others),
            (Some(bias), Some(sinks)) => record::<B, C, 5>([query, key, value, bias, sinks], others),
        }
    }
}

/// The inputs that have no gradient.
#[derive(Debug, Clone)]
struct Others<B: AttentionKernel> {
    padding: Option<BoolTensor<B>>,
    hidden: Option<BoolTensor<B>>,
    settings: Settings,
    seed: Option<FloatTensor<B>>,
    /// Whether the tensor behind query, key and value is a bias, and not the sinks.
    has_bias: bool,
}

impl<B: AttentionKernel> Others<B> {
    /// Joined by query, key and value, and perhaps a bias, and perhaps sinks.
    fn join<const N: usize>(self, tensors: [FloatTensor<B>; N]) -> Inputs<B> {
        let mut tensors = tensors.into_iter();
        let mut next = || tensors.next().expect("attention has three tensors, and one for each option");
        let (query, key, value) = (next(), next(), next());
        let bias = self.has_bias.then(next);
        let Self { padding, hidden, settings, seed, .. } = self;
        Inputs { query, key, value, bias, sinks: tensors.next(), padding, hidden, settings, seed }
    }
}

fn record<B: AttentionKernel, C: CheckpointStrategy, const N: usize>(
    tensors: [FloatTensor<Autodiff<B, C>>; N],
    others: Others<B>,
) -> FloatTensor<Autodiff<B, C>> {
    let nodes = tensors.each_ref().map(|tensor| tensor.node());
    match Attention::<B>(PhantomData).prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prepared) => {
            let tensors_saved = tensors.each_ref().map(|tensor| prepared.checkpoint(tensor));
            let inputs = others.clone().join(tensors.map(|tensor| tensor.into_primitive()));
            let outputs = B::forward(&inputs);
            let output = outputs[0].clone();
            prepared.finish(Saved { tensors: tensors_saved, others, outputs }, output)
        }
        OpsKind::UnTracked(prepared) => {
            let [output, _] = B::forward(&others.join(tensors.map(|tensor| tensor.into_primitive())));
            prepared.finish(output)
        }
    }
}

#[derive(Debug)]
struct Attention<B>(PhantomData<B>);

#[derive(Debug, Clone)]
struct Saved<B: AttentionKernel, const N: usize> {
    tensors: [NodeId; N],
    others: Others<B>,
    outputs: [FloatTensor<B>; 2],
}

impl<B: AttentionKernel, const N: usize> Backward<B, N> for Attention<B> {
    type State = Saved<B, N>;

    fn backward(self, ops: Ops<Saved<B, N>, N>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let Saved { tensors, others, outputs } = ops.state;
        let has_bias = others.has_bias;
        let inputs = others.join(tensors.map(|id| checkpointer.retrieve_node_output::<FloatTensor<B>>(id)));
        let sinks = inputs.sinks.clone().filter(|_| ops.parents[N - 1].is_some());
        let sinks = sinks.map(|sinks| sinks_gradient::<B>(sinks, outputs.clone(), grad.clone()));
        let with_bias = has_bias && ops.parents[3].is_some();
        let (gradients, bias) = B::backward(&inputs, outputs, grad, with_bias);
        // In the order of the parents.
        let behind = has_bias.then_some(bias).into_iter().chain([sinks]);
        for (node, gradient) in ops.parents.into_iter().zip(gradients.map(Some).into_iter().chain(behind)) {
            if let (Some(node), Some(gradient)) = (node, gradient) {
                grads.register::<B>(node.id, gradient);
            }
        }
    }
}
