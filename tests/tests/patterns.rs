//! Every causal attention pattern, inside a stack: no leak from the future, and parts through a cache equal the whole.

use burn::tensor::{Bool, Tensor, TensorData};
use firelight::core::invariants::{causality, parts_equal_whole};
use firelight::core::{
    AttentionPattern, Cache, Pass, PositionConfig, SequenceInput, Transformer, TransformerConfig, WeightInit,
};

use crate::support::{Noise, device, is_gpu};

fn tolerance() -> f64 {
    if is_gpu() { 1e-4 } else { 1e-5 }
}

/// Every pattern alone, and two in turn.
fn patterns() -> Vec<Vec<AttentionPattern>> {
    let window = AttentionPattern::SlidingWindow { left: 2, right: 0 };
    let patterns = [
        window,
        AttentionPattern::Chunked { size: 3, causal: true },
        AttentionPattern::Strided { stride: 2, causal: true },
        AttentionPattern::LocalGlobal { window: 1, global: 2, causal: true },
        AttentionPattern::BigBird { window: 1, global: 1, random: 0.3, seed: 1, causal: true },
    ];
    let mixed = vec![window, AttentionPattern::Causal];
    patterns.into_iter().map(|pattern| vec![pattern]).chain([mixed]).collect()
}

fn config(patterns: Vec<AttentionPattern>) -> TransformerConfig {
    TransformerConfig::new(16, 4, 2)
        .with_max_seq_len(16)
        .with_init(WeightInit::xavier())
        .with_position(PositionConfig::rotary())
        .with_patterns(patterns)
}

fn forward(model: &Transformer, x: Tensor<3>) -> Tensor<3> {
    model.forward(x, &SequenceInput::default(), &mut Pass::default())
}

#[test]
fn no_causal_pattern_sees_the_future() {
    let mut noise = Noise::new(21);
    for patterns in patterns() {
        let model = config(patterns.clone()).init(&device());
        causality(|x| forward(&model, x), noise.tensor([2, 8, 16]), tolerance())
            .unwrap_or_else(|e| panic!("{e}: {patterns:?}"));
    }
}

#[test]
fn cached_patterns_equal_the_whole_with_and_without_padding() {
    let mut noise = Noise::new(22);
    let flags = [false, true, false, false, false, true, false, false, false];
    for (patterns, padded) in patterns().into_iter().flat_map(|patterns| [(patterns.clone(), true), (patterns, false)])
    {
        let model = config(patterns.clone()).init(&device());
        let padding = Tensor::<2, Bool>::from_bool(TensorData::new(flags.to_vec(), [1, 9]), &device());
        let input = |start, len| SequenceInput {
            padding: padded.then(|| padding.clone().narrow(1, start, len)),
            ..SequenceInput::default()
        };
        for part in [1, 4] {
            let mut cache = Cache::new(2, 16);
            let step = |x: Tensor<3>| {
                let input = input(cache.len(), x.dims()[1]);
                model.forward(x, &input, &mut Pass::cached(&mut cache))
            };
            let whole = |x| model.forward(x, &input(0, 9), &mut Pass::default());
            parts_equal_whole(whole, step, noise.tensor([1, 9, 16]), part, tolerance())
                .unwrap_or_else(|e| panic!("{e}: {patterns:?}"));
        }
    }
}

#[test]
fn a_window_over_the_whole_sequence_is_causal_and_a_short_one_is_not() {
    let mut noise = Noise::new(23);
    let x = noise.tensor([1, 6, 16]);
    let run = |pattern| forward(&config(vec![pattern]).init(&device()), x.clone());
    let window = |left| run(AttentionPattern::SlidingWindow { left, right: 0 });
    let causal = run(AttentionPattern::Causal);
    let difference = |a: Tensor<3>| (a - causal.clone()).abs().max().into_scalar::<f64>();
    assert!(difference(window(5)) <= tolerance());
    assert!(difference(window(2)) > 1e-3);
}
