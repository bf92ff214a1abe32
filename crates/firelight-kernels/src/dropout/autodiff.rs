//! The gradient of dropout: the same numbers dropped again. Nothing is kept but rate and seed.

use super::{DropoutExtension, DropoutKernel};
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::retro_forward::RetroForward;
use burn::backend::autodiff::checkpoint::state::BackwardStates;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::backend::{Autodiff, tensor::FloatTensor};
use std::marker::PhantomData;

impl<B: DropoutKernel, C: CheckpointStrategy> DropoutExtension for Autodiff<B, C> {
    fn dropout(x: FloatTensor<Self>, rate: f64, seed: u64) -> FloatTensor<Self> {
        let again = Again::<B> { input: x.id(), rate, seed, backend: PhantomData };
        let prepared =
            Dropped::<B>(PhantomData).prepare::<C>([x.node()]).memory_bound().retro_forward(again).parents([&x]);
        let output = B::dropped(x.into_primitive(), rate, seed);
        match prepared.stateful() {
            OpsKind::Tracked(prepared) => prepared.finish((rate, seed), output),
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        }
    }
}

#[derive(Debug)]
struct Dropped<B>(PhantomData<B>);

impl<B: DropoutKernel> Backward<B, 1> for Dropped<B> {
    type State = (f64, u64);

    fn backward(self, ops: Ops<(f64, u64), 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let (rate, seed) = ops.state;
        unary::<B, _>(ops.parents, ops.node, grads, |grad| B::dropped(grad, rate, seed));
    }
}

#[derive(Debug)]
struct Again<B> {
    input: NodeId,
    rate: f64,
    seed: u64,
    backend: PhantomData<B>,
}

impl<B: DropoutKernel> RetroForward for Again<B> {
    fn forward(&self, states: &mut BackwardStates, output: NodeId) {
        let x = states.get_state::<FloatTensor<B>>(&self.input);
        states.save(output, B::dropped(x, self.rate, self.seed));
    }
}
