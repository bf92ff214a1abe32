//! Properties that hold for every variant of the grid.

mod batches;
mod gradients;
mod hooks;
mod order;
mod time;
mod variants;
mod weights;

use burn::tensor::Tensor;
use firelight::kernels::Difference;
use firelight::nn::invariants::Violation;
use firelight::nn::{
    AttentionPattern, EncoderOutput, ParamBuilder, Pass, SequenceInput, Transformer, TransformerConfig,
};

use crate::support::{self, Noise, device};

/// Cached, padded and plain passes take the same sums in other orders. Relative to the largest output, where that is above
/// 1: the stream of a stack without norms grows.
fn tolerance(model: &Transformer) -> f64 {
    let mut noise = Noise::new(0);
    let input = SequenceInput::default().with_encoder_output(EncoderOutput::new(noise.tensor([2, 4, 16])));
    let output = model.forward(noise.tensor([2, 8, 16]), &input, &mut Pass::default());
    let largest = output.abs().max().into_scalar::<f64>();
    assert!(largest.is_finite(), "outputs up to {largest}");
    support::tolerance() * largest.max(1.0)
}

/// Runs `check` on the model of each configuration, of which there must be some; a violation names it.
fn each(
    configs: impl IntoIterator<Item = TransformerConfig>,
    mut check: impl FnMut(&TransformerConfig, &Transformer) -> Result<(), Violation>,
) {
    let mut configs = configs.into_iter().peekable();
    assert!(configs.peek().is_some(), "no configuration is left");
    for config in configs {
        check(&config, &config.init_with(&ParamBuilder::new(&device(), 0)))
            .unwrap_or_else(|violation| panic!("{violation}: {config:?}"));
    }
}

fn forward(model: &Transformer, x: Tensor<3>) -> Tensor<3> {
    model.forward(x, &SequenceInput::default(), &mut Pass::default())
}

fn assert_close(found: Tensor<3>, expected: Tensor<3>, config: &TransformerConfig) {
    let difference = Difference::between(&found, &expected);
    assert!(difference.relative(1.0) <= support::tolerance(), "{difference:?}: {config:?}");
}

/// Whether the patterns look at distances alone. Chunks, global tokens and random pairs count from the begin of the row,
/// padding included.
fn moves_with_the_tokens(config: &TransformerConfig) -> bool {
    let alike = |pattern: &AttentionPattern, by: usize| {
        let rule = pattern.rule();
        (0..16).all(|q| (0..16).all(|k| rule.hidden(0, q, k) == rule.hidden(0, q + by, k + by)))
    };
    config.patterns().iter().all(|pattern| (1..4).all(|by| alike(pattern, by)))
}
