//! The gradient of the weight, from the tokens alone.

use super::{EmbeddingExtension, EmbeddingKernel};
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, TensorMetadata};
use std::marker::PhantomData;

impl<B: EmbeddingKernel, C: CheckpointStrategy> EmbeddingExtension for Autodiff<B, C> {
    fn rows_of(weight: FloatTensor<Self>, tokens: IntTensor<Self>) -> FloatTensor<Self> {
        let prepared = Rows::<B>(PhantomData).prepare::<C>([weight.node()]).compute_bound().stateful();
        let weight = weight.into_primitive();
        let vocab_size = weight.shape()[0];
        let output = B::gather(weight, tokens.clone());
        match prepared {
            OpsKind::Tracked(prepared) => prepared.finish((tokens, vocab_size), output),
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        }
    }
}

#[derive(Debug)]
struct Rows<B>(PhantomData<B>);

impl<B: EmbeddingKernel> Backward<B, 1> for Rows<B> {
    type State = (IntTensor<B>, usize);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let (tokens, vocab_size) = ops.state;
        unary::<B, _>(ops.parents, ops.node, grads, |grad| B::scatter(grad, tokens, vocab_size));
    }
}
