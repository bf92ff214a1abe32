//! Both passes from the operations of a backend, on blocks of rows.

use super::extension::LinearCrossEntropyExtension;
use crate::cross_entropy::CrossEntropyKernel;
use crate::optional::OptionalBool;
use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn::backend::{Backend, Slice, TensorMetadata};
use std::ops::Range;

/// What the backward pass knows of a block of rows.
#[derive(Debug, Clone)]
pub(super) struct Block<B: CrossEntropyKernel> {
    rows: Range<usize>,
    targets: B::Targets,
    /// As [`CrossEntropyKernel::forward`] gives them.
    sums: FloatTensor<B>,
}

/// The losses, `[N]`, and the blocks that they were computed in.
pub(super) fn forward<B: CrossEntropyKernel>(
    x: &FloatTensor<B>,
    weight: &FloatTensor<B>,
    (targets, ignored, smoothing): (IntTensor<B>, Option<BoolTensor<B>>, f64),
    rows: usize,
) -> (FloatTensor<B>, Vec<Block<B>>) {
    let length = x.shape()[0];
    let ranges = (0..length).step_by(rows).map(|start| start..(start + rows).min(length));
    let blocks = ranges.map(|rows| {
        let part = [Slice::from(rows.clone())];
        let ignored = ignored.clone().map(|ignored| B::bool_slice(ignored, &part));
        let targets = B::targets(B::int_slice(targets.clone(), &part), ignored, smoothing);
        let [losses, sums] = B::forward(logits::<B>(x, weight, &rows), &targets);
        (losses, Block { rows, targets, sums })
    });
    let (losses, blocks) = blocks.unzip();
    (B::float_cat(losses, 0), blocks)
}

/// The gradients of `x` and of the weight.
pub(super) fn backward<B: CrossEntropyKernel>(
    x: &FloatTensor<B>,
    weight: &FloatTensor<B>,
    grad: &FloatTensor<B>,
    blocks: Vec<Block<B>>,
) -> [FloatTensor<B>; 2] {
    let mut d_weight: Option<FloatTensor<B>> = None;
    let d_x = blocks.into_iter().map(|Block { rows, targets, sums }| {
        let grad = B::float_slice(grad.clone(), &[Slice::from(rows.clone())]);
        let d_logits = B::backward(logits::<B>(x, weight, &rows), sums, grad, &targets);
        let part = B::float_matmul(B::float_swap_dims(part::<B>(x, &rows), 0, 1), d_logits.clone());
        d_weight = Some(match d_weight.take() {
            Some(sum) => B::float_add(sum, part),
            None => part,
        });
        B::float_matmul(d_logits, B::float_swap_dims(weight.clone(), 0, 1))
    });
    let d_x = B::float_cat(d_x.collect(), 0);
    [d_x, d_weight.expect("there are rows, for a fused operation has no empty input")]
}

fn logits<B: Backend>(x: &FloatTensor<B>, weight: &FloatTensor<B>, rows: &Range<usize>) -> FloatTensor<B> {
    B::float_matmul(part::<B>(x, rows), weight.clone())
}

fn part<B: Backend>(x: &FloatTensor<B>, rows: &Range<usize>) -> FloatTensor<B> {
    B::float_slice(x.clone(), &[Slice::from(rows.clone()), Slice::from(0..x.shape()[1])])
}

/// The operation for a backend, from its cross-entropy.
macro_rules! in_blocks {
    ($backend:ty) => {
        impl LinearCrossEntropyExtension for $backend {
            fn linear_cross_entropy(
                x: FloatTensor<Self>,
                weight: FloatTensor<Self>,
                targets: IntTensor<Self>,
                ignored: OptionalBool<Self>,
                smoothing: f64,
                rows: usize,
            ) -> FloatTensor<Self> {
                let (losses, _) = forward::<Self>(&x, &weight, (targets, ignored.into_option(), smoothing), rows);
                losses
            }
        }
    };
}

#[cfg(feature = "flex")]
in_blocks!(burn::backend::Flex);
#[cfg(feature = "cube")]
in_blocks!(burn::backend::Cube);
