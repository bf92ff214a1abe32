//! The forward pass: the softmax of a block of scores, and the mean of the values under it.

use super::super::extension::{AttentionKernel, Inputs};
use super::block::{Block, blocks, lowest};
use super::float::Float;
use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;

/// The output, `[B, H, Q, F]`, and of every query its largest score and one over the sum of exponentials relative to it,
/// `[B, H, Q, 2]`.
pub(in super::super) fn forward<B: AttentionKernel>(inputs: &Inputs<B>) -> [FloatTensor<B>; 2] {
    let parts = blocks(inputs).map(|block| attend(&block, inputs));
    let (outputs, statistics) =
        parts.map(|[output, largest, share]| (output, Float::cat(vec![largest, share], 3))).unzip();
    [Float::cat(outputs, 2).0, Float::cat(statistics, 2).0]
}

/// The output alone.
#[cfg(any(feature = "cube", all(test, feature = "ndarray")))]
pub(super) fn output<B: AttentionKernel>(inputs: &Inputs<B>) -> FloatTensor<B> {
    let outputs = blocks(inputs).map(|block| {
        let [output, ..] = attend(&block, inputs);
        output
    });
    Float::cat(outputs.collect(), 2).0
}

/// The output of a block, its largest scores and the shares of one.
///
/// Hidden scores are the lowest finite number. The largest score is held at half of that or more, so that a query that
/// sees nothing has weights and an output of zero without a case of its own, here and in the backward pass.
fn attend<B: AttentionKernel>(block: &Block<'_, B>, inputs: &Inputs<B>) -> [Float<B>; 3] {
    let (scores, _) = block.scores();
    let half = lowest(&scores) / 2.0;
    let largest = scores.clone().max(3).clamp_min(half); // [B, H, q, 1]
    let largest = match block.sinks() {
        Some(sinks) => largest.larger(sinks),
        None => largest,
    };
    let weights = scores.sub(largest.clone()).exp();
    let sum = weights.clone().sum(3); // [B, H, q, 1]
    let sum = match block.sinks() {
        Some(sinks) => sum.add(sinks.sub(largest.clone()).exp()),
        None => sum,
    };
    // The largest score alone gives one to the sum; less is there only where nothing is seen.
    let share = sum.clamp_min(0.5).recip();
    let weights = block.drop(weights.mul(share.clone())).cast(inputs.value.dtype());
    let output = block.unfold(block.fold(weights).matmul(block.value()));
    [output, largest, share]
}
