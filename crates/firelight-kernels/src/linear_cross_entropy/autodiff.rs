//! The gradients of the head, from its inputs and two numbers a row.

use super::blocks::{Block, Inputs, backward, forward};
use super::extension::{LinearCrossEntropyExtension, Settings};
use crate::cross_entropy::CrossEntropyKernel;
use crate::graph::{BackwardPass, Operation, record};
use crate::optional::{OptionalBool, OptionalFloat};
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::{
    Autodiff,
    tensor::{BoolTensor, FloatTensor, IntTensor},
};

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
            Some(bias) => record::<B, C, _, 3>([x, weight, bias], [true; 3], |given| losses(given, targets, settings)),
            None => record::<B, C, _, 2>([x, weight], [true; 2], |given| losses(given, targets, settings)),
        }
    }
}

fn losses<B: CrossEntropyKernel, const N: usize>(
    inputs: [FloatTensor<B>; N],
    targets: (IntTensor<B>, Option<BoolTensor<B>>),
    settings: Settings,
) -> (FloatTensor<B>, Head<B>) {
    let (losses, blocks) = forward::<B>(&join(inputs, settings), targets);
    (losses, Head { blocks, settings })
}

/// Vectors, a matrix, and perhaps a bias.
fn join<B: CrossEntropyKernel>(tensors: impl IntoIterator<Item = FloatTensor<B>>, settings: Settings) -> Inputs<B> {
    let mut tensors = tensors.into_iter();
    let mut next = || tensors.next().expect("a head has two tensors at least");
    Inputs { x: next(), weight: next(), bias: tensors.next(), settings }
}

#[derive(Debug, Clone)]
struct Head<B: CrossEntropyKernel> {
    blocks: Vec<Block<B>>,
    settings: Settings,
}

impl<B: CrossEntropyKernel, const N: usize> Operation<B, N> for Head<B> {
    fn backward(self, pass: BackwardPass<B, N>) -> [Option<FloatTensor<B>>; N] {
        let inputs = join(pass.inputs.into_iter().flatten(), self.settings);
        let found = backward::<B>(&inputs, &pass.gradient, self.blocks);
        let mut gradients = [Some(found.x), Some(found.weight), found.bias].into_iter();
        std::array::from_fn(|_| gradients.next().flatten())
    }
}
