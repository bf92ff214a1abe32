//! The gradient of a rotation is the gradient turned back: the matrix of a rotation is orthogonal.

use super::{RotaryExtension, RotaryKernel, RotaryPairs};
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::backend::{Autodiff, tensor::FloatTensor};
use std::marker::PhantomData;

impl<B: RotaryKernel, C: CheckpointStrategy> RotaryExtension for Autodiff<B, C> {
    fn rotary(
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        pairs: RotaryPairs,
    ) -> FloatTensor<Self> {
        let angles = [cos, sin].map(|angle| angle.into_primitive());
        let turn = |x: FloatTensor<Self>| B::turn(x.into_primitive(), angles.clone(), pairs, false);
        match Turn::<B>(PhantomData).prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish((angles.clone(), pairs), turn(x)),
            OpsKind::UnTracked(prepared) => prepared.finish(turn(x)),
        }
    }
}

#[derive(Debug)]
struct Turn<B>(PhantomData<B>);

impl<B: RotaryKernel> Backward<B, 1> for Turn<B> {
    type State = ([FloatTensor<B>; 2], RotaryPairs);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let (angles, pairs) = ops.state;
        unary::<B, _>(ops.parents, ops.node, grads, |grad| B::turn(grad, angles, pairs, true));
    }
}
