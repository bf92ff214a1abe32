//! What stands earlier and later: no leak from the future, parts through a cache, windows, positions.

use burn::tensor::{Bool, Tensor, TensorData};
use firelight::nn::invariants::{causality, parts_equal_whole, shift};
use firelight::nn::{
    AttentionContext, AttentionMask, AttentionMechanism, AttentionPattern, Layer, LayerContext, LayerPass, MixerConfig,
    ParamBuilder, Pass, PositionConfig, PositionScheme, Positions, SequenceInput, Transformer, TransformerConfig,
};

use super::{assert_close, each, forward, tolerance};
use crate::support::grid::{decoder_pairs, decoders};
use crate::support::{Noise, device, distance};

#[test]
fn the_future_changes_nothing_in_the_past() {
    let mut noise = Noise::new(1);
    each(decoders(), |_, model| causality(|x| forward(model, x), noise.tensor([2, 6, 16]), tolerance(model)));
}

#[test]
fn cached_steps_and_chunks_equal_the_whole() {
    let mut noise = Noise::new(2);
    each(decoders(), |_, model| {
        [(1, model.full_cache(16)), (3, model.cache(16))].into_iter().try_for_each(|(part, mut cache)| {
            let step = |x| model.forward(x, &SequenceInput::default(), &mut Pass::cached(&mut cache));
            parts_equal_whole(|x| forward(model, x), step, noise.tensor([2, 7, 16]), part, tolerance(model))
        })
    });
}

#[test]
fn cached_parts_of_a_row_with_holes_equal_the_whole() {
    let mut noise = Noise::new(22);
    let flags = [false, true, false, false, false, true, false, false, false];
    let padding = Tensor::<2, Bool>::from_bool(TensorData::new(flags.to_vec(), [1, 9]), &device());
    let input = |start, len| SequenceInput::default().with_padding(padding.clone().narrow(1, start, len));
    each(decoder_pairs(), |_, model| {
        [(1, model.cache(16)), (4, model.full_cache(16))].into_iter().try_for_each(|(part, mut cache)| {
            let step = |x: Tensor<3>| {
                let input = input(cache.len(), x.dims()[1]);
                model.forward(x, &input, &mut Pass::cached(&mut cache))
            };
            let whole = |x| model.forward(x, &input(0, 9), &mut Pass::default());
            parts_equal_whole(whole, step, noise.tensor([1, 9, 16]), part, tolerance(model))
        })
    });
}

#[test]
fn a_window_over_the_whole_sequence_is_causal_and_a_short_one_is_not() {
    let mut noise = Noise::new(23);
    // A recurrence has no windows.
    let has_windows = |config: &TransformerConfig| !matches!(config.first().block.mixer, MixerConfig::GatedDelta(_));
    let configs: Vec<TransformerConfig> = decoder_pairs().into_iter().filter(has_windows).collect();
    assert!(!configs.is_empty());
    for config in configs {
        let x = noise.tensor([1, 6, 16]);
        let run = |pattern| {
            forward(&config.clone().with_patterns(vec![pattern]).init_with(&ParamBuilder::new(&device(), 0)), x.clone())
        };
        let window = |left| run(AttentionPattern::SlidingWindow { left, right: 0 });
        let causal = run(AttentionPattern::Causal);
        assert!(distance(&window(2), &causal) > 1e-3, "{config:?}");
        assert_close(window(5), causal, &config);
    }
}

/// A causal pass of which the first token stands at `start`.
fn forward_from(model: &Transformer, x: Tensor<3>, start: usize) -> Tensor<3> {
    let positions = Positions::contiguous(start, x.dims()[1]);
    let attention = AttentionContext {
        mask: AttentionMask::causal(),
        bias: model.position.bias(&positions, &positions, &device()),
        rotation: model.position.rotation(&positions, &device()),
    };
    let context = LayerContext { attention, ..LayerContext::default() };
    let x = model.position.embed(x, &positions);
    let x = match &model.embedding_norm {
        Some(norm) => norm.forward(x),
        None => x,
    };
    let x = model.layers().fold(x, |x, block| block.forward(x, &context, &mut LayerPass::default()));
    match &model.norm {
        Some(norm) => norm.forward(x),
        None => x,
    }
}

/// Whether only differences of positions show. Rotations cancel in a product of queries and keys, not in a sum of them or
/// in a product of features that were taken of them.
fn is_relative(config: &TransformerConfig) -> bool {
    let product = matches!(
        config.first().block.attention.mechanism,
        AttentionMechanism::DotProduct | AttentionMechanism::Bilinear
    );
    match config.position {
        PositionConfig::Learned | PositionConfig::Sinusoidal | PositionConfig::SinusoidalHalves => false,
        PositionConfig::Rotary(_) => product,
        _ => true,
    }
}

#[test]
fn relative_positions_count_by_their_differences_alone() {
    let mut noise = Noise::new(24);
    // What stands before the layers is repeated by `forward_from`, the projection of embeddings left out.
    let causal = |config: TransformerConfig| {
        let config = config.with_patterns(vec![AttentionPattern::Causal]).with_embedding_projection(None);
        config.with_max_seq_len(128)
    };
    each(decoder_pairs().into_iter().map(causal), |config, model| {
        let x = noise.tensor([1, 6, 16]);
        assert_close(forward_from(model, x.clone(), 0), forward(model, x.clone()), config);
        let shifted = shift(|x, start| forward_from(model, x, start), x, 3.0 * tolerance(model));
        if is_relative(config) {
            return shifted;
        }
        assert!(shifted.is_err(), "absolute positions show: {config:?}");
        Ok(())
    });
}
