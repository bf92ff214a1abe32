//! The gradient of the weight, from the tokens alone.

use super::{EmbeddingExtension, EmbeddingKernel};
use crate::graph::{BackwardPass, Operation, record};
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, TensorMetadata};

impl<B: EmbeddingKernel, C: CheckpointStrategy> EmbeddingExtension for Autodiff<B, C> {
    fn rows_of(weight: FloatTensor<Self>, tokens: IntTensor<Self>) -> FloatTensor<Self> {
        record::<B, C, _, 1>([weight], [false], |[weight]| {
            let vocab_size = weight.shape()[0];
            (B::gather(weight, tokens.clone()), Rows::<B> { tokens, vocab_size })
        })
    }
}

#[derive(Debug, Clone)]
struct Rows<B: EmbeddingKernel> {
    tokens: IntTensor<B>,
    vocab_size: usize,
}

impl<B: EmbeddingKernel> Operation<B, 1> for Rows<B> {
    fn backward(self, pass: BackwardPass<B, 1>) -> [Option<FloatTensor<B>>; 1] {
        [Some(B::scatter(pass.gradient, self.tokens, self.vocab_size))]
    }
}
