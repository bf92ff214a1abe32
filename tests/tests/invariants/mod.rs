//! Properties that hold for every variant of the grid.

mod batches;
mod gradients;
mod order;
mod time;
mod variants;
mod weights;

use burn::tensor::Tensor;
use firelight::core::invariants::Violation;
use firelight::core::{AttentionPattern, Memory, Pass, SequenceInput, Transformer, TransformerConfig};

use crate::support::{self, Noise, device};

/// Cached, padded and plain passes take the same sums in other orders. Relative to the largest output, where that is above
/// 1: the stream of a stack without norms grows.
fn tolerance(model: &Transformer) -> f64 {
    let mut noise = Noise::new(0);
    let input = SequenceInput::default().with_memory(Memory::new(noise.tensor([2, 4, 16])));
    let output = model.forward(noise.tensor([2, 8, 16]), &input, &mut Pass::default());
    support::tolerance() * output.abs().max().into_scalar::<f64>().max(1.0)
}

/// Runs `check` on the model of each configuration; a violation names it.
fn each(
    configs: impl IntoIterator<Item = TransformerConfig>,
    mut check: impl FnMut(&TransformerConfig, &Transformer) -> Result<(), Violation>,
) {
    for config in configs {
        check(&config, &config.init(&device())).unwrap_or_else(|violation| panic!("{violation}: {config:?}"));
    }
}

fn forward(model: &Transformer, x: Tensor<3>) -> Tensor<3> {
    model.forward(x, &SequenceInput::default(), &mut Pass::default())
}

fn assert_close(found: Tensor<3>, expected: Tensor<3>, config: &TransformerConfig) {
    let size = expected.clone().abs().max().into_scalar::<f64>().max(1.0);
    let difference = distance(found, expected) / size;
    assert!(difference <= support::tolerance(), "{difference:e}: {config:?}");
}

fn distance(a: Tensor<3>, b: Tensor<3>) -> f64 {
    (a - b).abs().max().into_scalar::<f64>()
}

/// Whether the patterns look at distances alone. Chunks, global tokens and random pairs count from the begin of the row,
/// padding included.
fn moves_with_the_tokens(config: &TransformerConfig) -> bool {
    let alike = |pattern: &AttentionPattern, by: usize| {
        (0..16).all(|q| (0..16).all(|k| pattern.hidden(q, k) == pattern.hidden(q + by, k + by)))
    };
    config.patterns.iter().all(|pattern| (1..4).all(|by| alike(pattern, by)))
}
