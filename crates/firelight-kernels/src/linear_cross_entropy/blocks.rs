//! Both passes from the operations of a backend, on blocks of rows.

use super::extension::{LinearCrossEntropyExtension, Settings};
use crate::cross_entropy::CrossEntropyKernel;
use crate::optional::{OptionalBool, OptionalFloat};
use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn::backend::{Backend, Slice, TensorMetadata};
use burn::tensor::Shape;
use std::ops::Range;

/// What logits are formed from: `[N, D]`, `[D, V]` and `[V]`, and how.
pub(super) struct Inputs<B: Backend> {
    pub(super) x: FloatTensor<B>,
    pub(super) weight: FloatTensor<B>,
    pub(super) bias: Option<FloatTensor<B>>,
    pub(super) settings: Settings,
}

/// What the backward pass knows of a block of rows.
#[derive(Debug, Clone)]
pub(super) struct Block<B: CrossEntropyKernel> {
    rows: Range<usize>,
    targets: B::Targets,
    /// As [`CrossEntropyKernel::forward`] gives them.
    sums: FloatTensor<B>,
}

/// The gradients of a block, or of several.
pub(super) struct Gradients<B: Backend> {
    pub(super) x: FloatTensor<B>,
    pub(super) weight: FloatTensor<B>,
    pub(super) bias: Option<FloatTensor<B>>,
}

/// The losses, `[N]`, and the blocks that they were computed in.
pub(super) fn forward<B: CrossEntropyKernel>(
    inputs: &Inputs<B>,
    (targets, ignored): (IntTensor<B>, Option<BoolTensor<B>>),
) -> (FloatTensor<B>, Vec<Block<B>>) {
    let (length, Settings { rows, smoothing, .. }) = (inputs.x.shape()[0], inputs.settings);
    let ranges = (0..length).step_by(rows).map(|start| start..(start + rows).min(length));
    let blocks = ranges.map(|rows| {
        let part = [Slice::from(rows.clone())];
        let ignored = ignored.clone().map(|ignored| B::bool_slice(ignored, &part));
        let targets = B::targets(B::int_slice(targets.clone(), &part), ignored, smoothing);
        let [losses, sums] = B::forward(inputs.logits(&rows), &targets);
        (losses, Block { rows, targets, sums })
    });
    let (losses, blocks) = blocks.unzip();
    (B::float_cat(losses, 0), blocks)
}

/// The gradients of everything that logits are formed from.
pub(super) fn backward<B: CrossEntropyKernel>(
    inputs: &Inputs<B>,
    grad: &FloatTensor<B>,
    blocks: Vec<Block<B>>,
) -> Gradients<B> {
    let gradients = blocks.into_iter().map(|block| {
        let grad = B::float_slice(grad.clone(), &[Slice::from(block.rows.clone())]);
        inputs.block_gradients(grad, block)
    });
    let mut rows = Vec::new();
    let sums = gradients.map(|Gradients { x, weight, bias }| {
        rows.push(x);
        (weight, bias)
    });
    let sums = sums.reduce(|(weight, bias), (more, more_bias)| {
        (B::float_add(weight, more), bias.zip(more_bias).map(|(bias, more)| B::float_add(bias, more)))
    });
    let (weight, bias) = sums.expect("there are rows, for a fused operation has no empty input");
    Gradients { x: B::float_cat(rows, 0), weight, bias }
}

impl<B: Backend> Inputs<B> {
    /// The rows of a block, `[n, D]`.
    fn part(&self, rows: &Range<usize>) -> FloatTensor<B> {
        B::float_slice(self.x.clone(), &[Slice::from(rows.clone()), Slice::from(0..self.x.shape()[1])])
    }

    /// The logits of a block, `[n, V]`.
    fn logits(&self, rows: &Range<usize>) -> FloatTensor<B> {
        let product = B::float_matmul(self.part(rows), self.weight.clone());
        let logits = match self.bias.clone() {
            Some(bias) => {
                let bias_row = Shape::from([1, bias.shape()[0]]);
                B::float_add(product, B::float_reshape(bias, bias_row))
            }
            None => product,
        };
        match self.settings.soft_cap {
            Some(cap) => scale::<B>(B::float_tanh(scale::<B>(logits, 1.0 / cap)), cap),
            None => logits,
        }
    }

    /// The gradient of what the cap bounds, from that of capped logits: `1 - tanh²`.
    fn uncapped(&self, gradient: FloatTensor<B>, logits: Option<FloatTensor<B>>) -> FloatTensor<B> {
        let Some((cap, logits)) = self.settings.soft_cap.zip(logits) else { return gradient };
        let tanh = scale::<B>(logits, 1.0 / cap);
        let slopes = scale::<B>(B::float_mul(tanh.clone(), tanh), -1.0);
        B::float_mul(gradient, B::float_add_scalar(slopes, 1.0.into()))
    }
}

impl<B: CrossEntropyKernel> Inputs<B> {
    fn block_gradients(&self, grad: FloatTensor<B>, block: Block<B>) -> Gradients<B> {
        let Block { rows, targets, sums } = block;
        let logits = self.logits(&rows);
        let kept = self.settings.soft_cap.map(|_| logits.clone());
        let d_logits = self.uncapped(B::backward(logits, sums, grad, &targets), kept); // [n, V]
        let bias = self
            .bias
            .as_ref()
            .map(|bias| B::float_reshape(B::float_sum_dim(d_logits.clone(), 0), Shape::from([bias.shape()[0]])));
        Gradients {
            weight: B::float_matmul(B::float_swap_dims(self.part(&rows), 0, 1), d_logits.clone()),
            x: B::float_matmul(d_logits, B::float_swap_dims(self.weight.clone(), 0, 1)),
            bias,
        }
    }
}

fn scale<B: Backend>(x: FloatTensor<B>, factor: f64) -> FloatTensor<B> {
    B::float_mul_scalar(x, factor.into())
}

/// The operation for a backend, from its cross-entropy.
macro_rules! in_blocks {
    ($backend:ty) => {
        impl LinearCrossEntropyExtension for $backend {
            fn linear_cross_entropy(
                x: FloatTensor<Self>,
                weight: FloatTensor<Self>,
                bias: OptionalFloat<Self>,
                targets: IntTensor<Self>,
                ignored: OptionalBool<Self>,
                settings: Settings,
            ) -> FloatTensor<Self> {
                let inputs = Inputs { x, weight, bias: bias.into_option(), settings };
                forward::<Self>(&inputs, (targets, ignored.into_option())).0
            }
        }
    };
}

#[cfg(feature = "flex")]
in_blocks!(burn::backend::Flex);
#[cfg(feature = "cube")]
in_blocks!(burn::backend::Cube);
