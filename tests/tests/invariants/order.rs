//! Encoders without positions do not know the order of their tokens.

use firelight::nn::invariants::permutation;
use firelight::nn::{AttentionPattern, PositionConfig, TransformerConfig};

use super::{each, forward, tolerance};
use crate::support::Noise;
use crate::support::grid::encoder_pairs;

#[test]
fn without_positions_outputs_permute_with_inputs() {
    let mut noise = Noise::new(7);
    let blind = |config: TransformerConfig| {
        config.with_position(PositionConfig::None).with_patterns(vec![AttentionPattern::Full])
    };
    each(encoder_pairs().into_iter().map(blind), |_, model| {
        permutation(|x| forward(model, x), noise.tensor([1, 5, 16]), tolerance(model))
    });
}

#[test]
fn with_positions_they_do_not() {
    let mut noise = Noise::new(12);
    let ordered = |config: &TransformerConfig| config.position != PositionConfig::None;
    let full = |config: TransformerConfig| config.with_patterns(vec![AttentionPattern::Full]);
    each(encoder_pairs().into_iter().filter(ordered).map(full), |config, model| {
        let outcome = permutation(|x| forward(model, x), noise.tensor([1, 5, 16]), 1e-3);
        assert!(outcome.is_err(), "{config:?}");
        Ok(())
    });
}
