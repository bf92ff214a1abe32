//! The gradient of an elementwise function: the slope at the input, which a checkpointing graph computes again.

use super::{Curve, CurveExtension, CurveKernel};
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::retro_forward::RetroForward;
use burn::backend::autodiff::checkpoint::state::BackwardStates;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::backend::{Autodiff, tensor::FloatTensor};
use std::marker::PhantomData;

impl<B: CurveKernel, C: CheckpointStrategy> CurveExtension for Autodiff<B, C> {
    fn curve(x: FloatTensor<Self>, curve: Curve) -> FloatTensor<Self> {
        let again = Again::<B> { input: x.id(), curve, backend: PhantomData };
        let prepared =
            Slope(curve).prepare::<C>([x.node()]).memory_bound().retro_forward(again).parents([&x]).stateful();
        match prepared {
            OpsKind::Tracked(mut prepared) => {
                let input = prepared.checkpoint(&x);
                prepared.finish(input, B::forward(x.into_primitive(), curve))
            }
            OpsKind::UnTracked(prepared) => prepared.finish(B::forward(x.into_primitive(), curve)),
        }
    }
}

#[derive(Debug)]
struct Slope(Curve);

impl<B: CurveKernel> Backward<B, 1> for Slope {
    type State = NodeId;

    fn backward(self, ops: Ops<NodeId, 1>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let x = checkpointer.retrieve_node_output(ops.state);
        unary::<B, _>(ops.parents, ops.node, grads, |grad| B::backward(x, grad, self.0));
    }
}

#[derive(Debug)]
struct Again<B> {
    input: NodeId,
    curve: Curve,
    backend: PhantomData<B>,
}

impl<B: CurveKernel> RetroForward for Again<B> {
    fn forward(&self, states: &mut BackwardStates, output: NodeId) {
        let x = states.get_state::<FloatTensor<B>>(&self.input);
        states.save(output, B::forward(x, self.curve));
    }
}
