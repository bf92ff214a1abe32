//! The gradients of a gated unit, from its two inputs.

use super::{GatedExtension, GatedKernel};
use crate::activation::Activation;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::retro_forward::RetroForward;
use burn::backend::autodiff::checkpoint::state::BackwardStates;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, tensor::FloatTensor};
use std::marker::PhantomData;

impl<B: GatedKernel, C: CheckpointStrategy> GatedExtension for Autodiff<B, C> {
    fn gated(gate: FloatTensor<Self>, up: FloatTensor<Self>, activation: Activation) -> FloatTensor<Self> {
        let again = Again::<B> { inputs: [gate.id(), up.id()], activation, backend: PhantomData };
        let nodes = [gate.node(), up.node()];
        let prepared =
            Gated(activation).prepare::<C>(nodes).memory_bound().retro_forward(again).parents([&gate, &up]).stateful();
        match prepared {
            OpsKind::Tracked(mut prepared) => {
                let inputs = [prepared.checkpoint(&gate), prepared.checkpoint(&up)];
                prepared.finish(inputs, B::forward(gate.into_primitive(), up.into_primitive(), activation))
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(B::forward(gate.into_primitive(), up.into_primitive(), activation))
            }
        }
    }
}

#[derive(Debug)]
struct Gated(Activation);

impl<B: GatedKernel> Backward<B, 2> for Gated {
    type State = [NodeId; 2];

    fn backward(self, ops: Ops<[NodeId; 2], 2>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let [gate, up] = ops.state.map(|input| checkpointer.retrieve_node_output(input));
        for (node, grad) in ops.parents.into_iter().zip(B::backward(gate, up, grad, self.0)) {
            if let Some(node) = node {
                grads.register::<B>(node.id, grad);
            }
        }
    }
}

#[derive(Debug)]
struct Again<B> {
    inputs: [NodeId; 2],
    activation: Activation,
    backend: PhantomData<B>,
}

impl<B: GatedKernel> RetroForward for Again<B> {
    fn forward(&self, states: &mut BackwardStates, output: NodeId) {
        let [gate, up] = self.inputs.map(|input| states.get_state::<FloatTensor<B>>(&input));
        states.save(output, B::forward(gate, up, self.activation));
    }
}
