//! Properties that hold for every combination of position scheme, norm, placement, activation and number of key/value
//! heads.

use burn::tensor::{Bool, Distribution, Int, Tensor};
use firelight::core::invariants::{causality, gradients, parts_equal_whole};
use firelight::core::{
    Activation, Cache, Memory, NormConfig, NormPlacement, Pass, PositionConfig, ProjectionKind, RotaryLayout,
    SequenceInput, Transformer, TransformerConfig,
};

use crate::support::{device, is_gpu};

/// Cached, padded and plain passes take the same sums in other orders.
fn tolerance() -> f64 {
    if is_gpu() { 1e-4 } else { 1e-5 }
}

/// Every position scheme with every norm and placement; the other choices vary along.
fn grid() -> Vec<TransformerConfig> {
    let positions = [
        PositionConfig::None,
        PositionConfig::Learned,
        PositionConfig::Sinusoidal,
        PositionConfig::rotary(),
        PositionConfig::Rotary { theta: 100.0, layout: RotaryLayout::Interleaved },
    ];
    let activations = [Activation::Relu, Activation::Gelu, Activation::GeluTanh, Activation::SwiGlu];
    let mut grid = Vec::new();
    for position in positions {
        for norm in [NormConfig::layer(), NormConfig::rms()] {
            for placement in [NormPlacement::Pre, NormPlacement::Post] {
                let i = grid.len();
                let projection = if i % 2 == 0 { ProjectionKind::Separate } else { ProjectionKind::Fused };
                grid.push(
                    TransformerConfig::new(16, 4, 2)
                        .with_max_seq_len(16)
                        .with_position(position)
                        .with_norm(norm)
                        .with_norm_placement(placement)
                        .with_activation(activations[i % 4])
                        .with_n_kv_heads([4, 2, 1][i % 3])
                        .with_projection(projection),
                );
            }
        }
    }
    grid
}

fn noise(shape: [usize; 3]) -> Tensor<3> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &device())
}

fn forward(model: &Transformer, x: Tensor<3>) -> Tensor<3> {
    model.forward(x, &SequenceInput::default(), &mut Pass::default())
}

#[test]
fn the_future_changes_nothing_in_the_past() {
    for config in grid() {
        let model = config.init(&device());
        causality(|x| forward(&model, x), noise([2, 6, 16]), tolerance()).unwrap_or_else(|e| panic!("{e}: {config:?}"));
    }
}

#[test]
fn cached_steps_and_chunks_equal_the_whole() {
    for config in grid() {
        let model = config.init(&device());
        for part in [1, 3] {
            let mut cache = Cache::new(2, 16);
            let step = |x| model.forward(x, &SequenceInput::default(), &mut Pass::cached(&mut cache));
            parts_equal_whole(|x| forward(&model, x), step, noise([2, 7, 16]), part, tolerance())
                .unwrap_or_else(|e| panic!("{e}: {config:?}"));
        }
    }
}

#[test]
fn padding_on_either_side_changes_nothing() {
    for config in grid() {
        let model = config.init(&device());
        let x = noise([1, 5, 16]);
        let alone = forward(&model, x.clone());
        for left in [true, false] {
            let junk = noise([1, 3, 16]) * 10.0;
            let flags = |hidden| Tensor::<2, Int>::full([1, if hidden { 3 } else { 5 }], i32::from(hidden), &device());
            let order = |a, b| if left { vec![b, a] } else { vec![a, b] };
            let padding: Tensor<2, Bool> = Tensor::cat(order(flags(false), flags(true)), 1).bool();
            let padded = Tensor::cat(if left { vec![junk, x.clone()] } else { vec![x.clone(), junk] }, 1);
            let input = SequenceInput::default().with_padding(padding);
            let output = model.forward(padded, &input, &mut Pass::default());
            let visible = output.narrow(1, if left { 3 } else { 0 }, 5);
            let difference = (visible - alone.clone()).abs().max().into_scalar::<f64>();
            assert!(difference <= tolerance(), "{difference:e}: {config:?}");
        }
    }
}

#[test]
fn a_padded_prompt_continues_in_the_cache_as_without_padding() {
    for config in grid() {
        let model = config.init(&device());
        let (prompt, next) = (noise([1, 4, 16]), noise([1, 1, 16]));
        let run = |prompt: Tensor<3>, padding: Option<Tensor<2, Bool>>| {
            let mut cache = Cache::new(2, 16);
            model.forward(prompt, &SequenceInput { padding, memory: None }, &mut Pass::cached(&mut cache));
            model.forward(next.clone(), &SequenceInput::default(), &mut Pass::cached(&mut cache))
        };
        let padding = Tensor::<2, Bool>::from_bool([[true, true, false, false, false, false]], &device());
        let padded = run(Tensor::cat(vec![noise([1, 2, 16]), prompt.clone()], 1), Some(padding));
        let difference = (padded - run(prompt, None)).abs().max().into_scalar::<f64>();
        assert!(difference <= tolerance(), "{difference:e}: {config:?}");
    }
}

#[test]
fn a_decoder_reads_its_memory_once_and_never_its_padding() {
    let model = TransformerConfig::decoder(16, 4, 2).with_max_seq_len(8).init(&device());
    let (x, source, junk) = (noise([1, 4, 16]), noise([1, 3, 16]), noise([1, 2, 16]));
    let plain = SequenceInput::default().with_memory(Memory::new(source.clone()));
    let whole = model.forward(x.clone(), &plain, &mut Pass::default());

    let padding = Tensor::<2, Bool>::from_bool([[false, false, false, true, true]], &device());
    let memory = Memory::new(Tensor::cat(vec![source, junk], 1)).with_padding(Some(padding));
    let padded = SequenceInput::default().with_memory(memory);
    let mut cache = Cache::new(2, 8);
    let step = |x| model.forward(x, &padded, &mut Pass::cached(&mut cache));
    parts_equal_whole(|_| whole, step, x, 1, tolerance()).unwrap();
}

#[test]
fn gradients_are_slopes() {
    // Finite differences in single precision are good to about a hundredth.
    for config in grid().into_iter().step_by(3) {
        let (plain, tracked) = (config.init(&device()), config.init(&device().autodiff()));
        let weights = noise([1, 4, 16]);
        let f = |x: Tensor<3>| {
            let model = if x.device().is_autodiff() { &tracked } else { &plain };
            let weights = Tensor::from_data(weights.to_data(), &x.device());
            (forward(model, x) * weights).sum()
        };
        gradients(f, noise([1, 4, 16]), 3e-2).unwrap_or_else(|e| panic!("{e}: {config:?}"));
    }
}

#[test]
fn without_positions_an_encoder_permutes_with_its_input() {
    let config = TransformerConfig::encoder(16, 4, 2).with_position(PositionConfig::None);
    let model = config.init(&device());
    let x = noise([1, 5, 16]);
    let order = Tensor::<1, Int>::from_ints([3, 0, 4, 1, 2], &device());
    let permuted = forward(&model, x.clone().select(1, order.clone()));
    let difference = (permuted - forward(&model, x).select(1, order)).abs().max().into_scalar::<f64>();
    assert!(difference <= tolerance(), "{difference:e}");
}
