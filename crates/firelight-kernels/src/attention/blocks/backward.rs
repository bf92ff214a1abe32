//! The backward pass: the weights of a block are formed again, and give parts of all gradients.
//!
//! With weights `P = softmax(S)`, dropped to `P'`, and `D = Σ_f grad output` for every query: `dV = P'ᵀ grad`,
//! `dP = grad Vᵀ` dropped alike, `dS = P (dP - D)`, `dQ = dS K`, `dK = dSᵀ Q`. A sink is a score whose value is zero: its `dP`
//! is zero, too.

use super::super::extension::{AttentionKernel, Inputs};
use super::block::{Block, blocks};
use super::float::{Float, whole};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use std::iter::once;
use std::ops::Range;

/// The gradients of query, key and value, and that of the bias if `with_bias`.
pub(in super::super) fn backward<B: AttentionKernel>(
    inputs: &Inputs<B>,
    [output, statistics]: [FloatTensor<B>; 2],
    grad: FloatTensor<B>,
    with_bias: bool,
) -> ([FloatTensor<B>; 3], Option<FloatTensor<B>>) {
    let mut gradients = InputGradients::new(inputs, with_bias);
    for block in blocks(inputs) {
        let [output, statistics, grad] = [&output, &statistics, &grad].map(|tensor| block.of_queries(tensor));
        gradients.add(&block, output, statistics, grad);
    }
    gradients.finish(inputs.query.dtype())
}

/// The gradients of the blocks so far.
struct InputGradients<B: Backend> {
    scale: f64,
    query: Vec<Float<B>>,
    key: Sum<B>,
    value: Sum<B>,
    bias: Option<Sum<B>>,
}

impl<B: AttentionKernel> InputGradients<B> {
    fn new(inputs: &Inputs<B>, with_bias: bool) -> Self {
        Self {
            scale: inputs.settings.scale,
            query: Vec::new(),
            key: Sum::like(&inputs.key),
            value: Sum::like(&inputs.value),
            bias: inputs.bias.as_ref().filter(|_| with_bias).map(Sum::like),
        }
    }

    fn add(&mut self, block: &Block<'_, B>, output: Float<B>, statistics: Float<B>, grad: Float<B>) {
        let dtype = grad.0.dtype();
        let mean = mean(grad.clone(), output);
        let grad = block.fold(grad); // [B, G, H / G * q, F]
        let (scores, slopes) = block.scores();
        let weights = weights(scores, statistics); // [B, H, q, k]
        let kept = block.fold(block.drop(weights.clone()).cast(dtype)).transpose();
        self.value.add_rows(block, kept.matmul(grad.clone()));
        let slope = block.unfold(grad.matmul(block.value().transpose())).widen(); // [B, H, q, k]
        let slope = block.drop(slope).sub(mean).mul(weights);
        if let Some(bias) = &mut self.bias {
            bias.add_pairs(block, reduce(slope.clone(), bias.shape));
        }
        let slope = match slopes {
            Some(slopes) => slope.mul(slopes),
            None => slope,
        };
        let slope = block.fold(slope.cast(dtype));
        self.query.push(block.unfold(slope.clone().matmul(block.key())).scale(self.scale));
        self.key.add_rows(block, slope.transpose().matmul(block.query()));
    }

    fn finish(self, dtype: burn::tensor::DType) -> ([FloatTensor<B>; 3], Option<FloatTensor<B>>) {
        let sums = [Float::cat(self.query, 2), self.key.total(), self.value.total()];
        (sums.map(|sum| sum.cast(dtype).0), self.bias.map(|bias| bias.total().cast(dtype).0))
    }
}

/// The gradient of the sinks, `[1, H, 1, 1]`, for the kernels of all backends.
pub(in super::super) fn sinks_gradient<B: Backend>(
    sinks: FloatTensor<B>,
    [output, statistics]: [FloatTensor<B>; 2],
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    let (shape, dtype) = (sinks.shape().dims(), sinks.dtype());
    let weights = weights(Float::<B>(sinks).widen(), Float(statistics)); // [B, H, Q, 1]
    reduce(weights.mul(mean(Float(grad), Float(output))), shape).scale(-1.0).cast(dtype).0
}

/// `D`, `[B, H, Q, 1]`.
fn mean<B: Backend>(grad: Float<B>, output: Float<B>) -> Float<B> {
    grad.widen().mul(output.widen()).sum(3)
}

/// Scores become weights, by the statistics of the forward pass.
fn weights<B: Backend>(scores: Float<B>, statistics: Float<B>) -> Float<B> {
    let [batch, heads, queries, _] = statistics.dims();
    let column = |at: usize| statistics.clone().slice(&[0..batch, 0..heads, 0..queries, at..at + 1]);
    scores.sub(column(0)).exp().mul(column(1))
}

/// Summed over the dimensions in which `shape` has one element for all.
fn reduce<B: Backend>(x: Float<B>, shape: [usize; 4]) -> Float<B> {
    let shared = |(dim, size): (usize, usize)| (size == 1).then_some(dim);
    shape.into_iter().enumerate().filter_map(shared).fold(x, Float::sum)
}

/// A sum of parts that lie in different places.
struct Sum<B: Backend> {
    shape: [usize; 4],
    total: Option<Float<B>>,
}

impl<B: AttentionKernel> Sum<B> {
    fn like(tensor: &FloatTensor<B>) -> Self {
        Self { shape: tensor.shape().dims(), total: None }
    }

    /// Adds what belongs to the keys of a block, `[B, G, k, X]`.
    fn add_rows(&mut self, block: &Block<'_, B>, part: Float<B>) {
        let [batch, groups, _, width] = self.shape;
        for (keys, rows) in block.keys.iter().zip(block.columns()) {
            let [from, to] = [rows, keys.clone()].map(|rows| [0..batch, 0..groups, rows, 0..width]);
            self.add(&to, part.clone().slice(&from));
        }
    }

    /// Adds what belongs to the pairs of a block, `[B | 1, H | 1, q | 1, k | 1]`.
    fn add_pairs(&mut self, block: &Block<'_, B>, part: Float<B>) {
        let [batch, heads, queries, keys] = part.dims();
        let columns = if keys == 1 { once(0..1).collect() } else { block.columns().collect::<Vec<_>>() };
        for (to, columns) in block.places(self.shape).iter().zip(columns) {
            self.add(to, part.clone().slice(&[0..batch, 0..heads, 0..queries, columns]));
        }
    }

    fn add(&mut self, ranges: &[Range<usize>; 4], part: Float<B>) {
        let part = part.widen();
        self.total = Some(match self.total.take() {
            None if whole(ranges, self.shape) => part,
            Some(total) if whole(ranges, self.shape) => total.add(part),
            None => Float::zeros(self.shape, &part).assign(ranges, part),
            Some(total) => {
                let sum = total.clone().slice(ranges).add(part);
                total.assign(ranges, sum)
            }
        });
    }

    fn total(self) -> Float<B> {
        self.total.expect("every pass has a block")
    }
}
