//! The gradient of an activation function: the slope at the input, which a checkpointing graph computes again.

use super::{Activation, ActivationExtension, ActivationKernel};
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::retro_forward::RetroForward;
use burn::backend::autodiff::checkpoint::state::BackwardStates;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::backend::{Autodiff, tensor::FloatTensor};
use std::marker::PhantomData;

impl<B: ActivationKernel, C: CheckpointStrategy> ActivationExtension for Autodiff<B, C> {
    fn activate(x: FloatTensor<Self>, activation: Activation) -> FloatTensor<Self> {
        let again = Again::<B> { input: x.id(), activation, backend: PhantomData };
        let prepared =
            Slope(activation).prepare::<C>([x.node()]).memory_bound().retro_forward(again).parents([&x]).stateful();
        match prepared {
            OpsKind::Tracked(mut prepared) => {
                let input = prepared.checkpoint(&x);
                prepared.finish(input, B::forward(x.into_primitive(), activation))
            }
            OpsKind::UnTracked(prepared) => prepared.finish(B::forward(x.into_primitive(), activation)),
        }
    }
}

#[derive(Debug)]
struct Slope(Activation);

impl<B: ActivationKernel> Backward<B, 1> for Slope {
    type State = NodeId;

    fn backward(self, ops: Ops<NodeId, 1>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let x = checkpointer.retrieve_node_output(ops.state);
        unary::<B, _>(ops.parents, ops.node, grads, |grad| B::backward(x, grad, self.0));
    }
}

#[derive(Debug)]
struct Again<B> {
    input: NodeId,
    activation: Activation,
    backend: PhantomData<B>,
}

impl<B: ActivationKernel> RetroForward for Again<B> {
    fn forward(&self, states: &mut BackwardStates, output: NodeId) {
        let x = states.get_state::<FloatTensor<B>>(&self.input);
        states.save(output, B::forward(x, self.activation));
    }
}
