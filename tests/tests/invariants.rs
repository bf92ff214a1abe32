//! Properties that hold for every combination of position scheme, norm, placement, activation and number of key/value
//! heads.

use std::collections::BTreeSet;

use burn::tensor::{Bool, Int, Tensor};
use firelight::core::invariants::{causality, gradients, parts_equal_whole};
use firelight::core::{
    Activation, AttentionTrace, Cache, Memory, NormConfig, NormPlacement, Pass, PositionConfig, ProjectionKind,
    RotaryLayout, RotaryScaling, SequenceInput, Transformer, TransformerConfig, WeightInit,
};

use crate::support::{Noise, device, is_gpu};

/// Cached, padded and plain passes take the same sums in other orders.
fn tolerance() -> f64 {
    if is_gpu() { 1e-4 } else { 1e-5 }
}

/// The crossed choices, and each choice of the branches beside them.
fn grid() -> Vec<TransformerConfig> {
    crossed().into_iter().chain(branches()).collect()
}

/// Two small stacks, without and with rotary positions, with each choice that the crossed ones leave out.
fn branches() -> Vec<TransformerConfig> {
    let activations = [
        Activation::QuickGelu,
        Activation::Silu,
        Activation::SquaredRelu,
        Activation::GeGlu,
        Activation::GeGluTanh,
        Activation::ReGlu,
    ];
    let base = |position| {
        let config = TransformerConfig::new(16, 4, 2).with_max_seq_len(16).with_init(WeightInit::xavier());
        config.with_position(position).with_n_kv_heads(2)
    };
    let placements = [NormPlacement::Sandwich, NormPlacement::Parallel];
    let with_choices = |base: TransformerConfig| {
        let mut configs = activations.map(|activation| base.clone().with_activation(activation)).to_vec();
        configs.extend(placements.map(|placement| base.clone().with_norm_placement(placement)));
        configs.extend(
            placements.map(|placement| base.clone().with_norm(NormConfig::None).with_norm_placement(placement)),
        );
        configs.push(base.clone().with_norm(NormConfig::None));
        configs.push(base.with_layer_scale(0.5));
        configs
    };
    [PositionConfig::None, PositionConfig::rotary()].map(base).into_iter().flat_map(with_choices).collect()
}

/// Every position scheme with every norm and placement. The other choices are laid out so that any two values of any two
/// choices meet, which `every_two_choices_meet` checks.
fn crossed() -> Vec<TransformerConfig> {
    let positions = [
        PositionConfig::None,
        PositionConfig::Learned,
        PositionConfig::Sinusoidal,
        PositionConfig::SinusoidalHalves,
        PositionConfig::rotary(),
        PositionConfig::Rotary {
            theta: 100.0,
            layout: RotaryLayout::Interleaved,
            width: Some(2),
            scaling: RotaryScaling::yarn(4.0, 16),
        },
        PositionConfig::Alibi,
        PositionConfig::T5 { n_buckets: 4, max_distance: 5, bidirectional: false },
        PositionConfig::Shaw { max_distance: 3 },
    ];
    let norms = [NormConfig::layer(), NormConfig::rms()];
    let placements = [NormPlacement::Pre, NormPlacement::Post];
    let activations = [Activation::Relu, Activation::Gelu, Activation::GeluTanh, Activation::SwiGlu];
    let projections = [ProjectionKind::Separate, ProjectionKind::Fused];
    let config = |p: usize, n: usize, l: usize| {
        // Weights as wide as those of a trained model, so that no defect hides behind small numbers.
        TransformerConfig::new(16, 4, 2)
            .with_max_seq_len(16)
            .with_init(WeightInit::xavier())
            .with_position(positions[p])
            .with_norm(norms[n])
            .with_norm_placement(placements[l])
            .with_projection(projections[(p + n) % 2])
            .with_activation(activations[(p + 2 * n + l) % 4])
            .with_query_key_norm((p % 2 == l).then(NormConfig::rms))
            .with_attention_soft_cap((p % 2 == n).then_some(5.0))
            .with_n_kv_heads([4, 2, 1][(p + n + 2 * l) % 3])
    };
    let places = (0..positions.len()).flat_map(|p| (0..2).flat_map(move |n| (0..2).map(move |l| (p, n, l))));
    places.map(|(p, n, l)| config(p, n, l)).collect()
}

#[test]
fn every_two_choices_meet() {
    let choices: Vec<[String; 6]> = crossed()
        .iter()
        .map(|config| {
            let TransformerConfig { position, norm, norm_placement, projection, activation, n_kv_heads, .. } = config;
            let names = (format!("{norm_placement:?}"), format!("{projection:?}"), format!("{activation:?}"));
            [format!("{position:?}"), format!("{norm:?}"), names.0, names.1, names.2, format!("{n_kv_heads:?}")]
        })
        .collect();
    let values = |i: usize| choices.iter().map(|choice| &choice[i]).collect::<BTreeSet<_>>().len();
    assert_eq!([0, 1, 2, 3, 4, 5].map(values), [9, 2, 2, 2, 4, 3]);
    for (i, j) in (0..6).flat_map(|j| (0..j).map(move |i| (i, j))) {
        let pairs: BTreeSet<_> = choices.iter().map(|choice| (&choice[i], &choice[j])).collect();
        assert_eq!(pairs.len(), values(i) * values(j), "choices {i} and {j}");
    }
}

fn forward(model: &Transformer, x: Tensor<3>) -> Tensor<3> {
    model.forward(x, &SequenceInput::default(), &mut Pass::default())
}

#[test]
fn the_future_changes_nothing_in_the_past() {
    let mut noise = Noise::new(1);
    for config in grid() {
        let model = config.init(&device());
        causality(|x| forward(&model, x), noise.tensor([2, 6, 16]), tolerance())
            .unwrap_or_else(|e| panic!("{e}: {config:?}"));
    }
}

#[test]
fn cached_steps_and_chunks_equal_the_whole() {
    let mut noise = Noise::new(2);
    for config in grid() {
        let model = config.init(&device());
        for part in [1, 3] {
            let mut cache = Cache::new(2, 16);
            let step = |x| model.forward(x, &SequenceInput::default(), &mut Pass::cached(&mut cache));
            parts_equal_whole(|x| forward(&model, x), step, noise.tensor([2, 7, 16]), part, tolerance())
                .unwrap_or_else(|e| panic!("{e}: {config:?}"));
        }
    }
}

#[test]
fn padding_on_either_side_changes_nothing() {
    let mut noise = Noise::new(3);
    for config in grid() {
        let model = config.init(&device());
        let x = noise.tensor([1, 5, 16]);
        let alone = forward(&model, x.clone());
        for left in [true, false] {
            let junk = noise.tensor([1, 3, 16]) * 10.0;
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
    let mut noise = Noise::new(4);
    for config in grid() {
        let model = config.init(&device());
        let (prompt, next) = (noise.tensor([1, 4, 16]), noise.tensor([1, 1, 16]));
        let run = |prompt: Tensor<3>, padding: Option<Tensor<2, Bool>>| {
            let mut cache = Cache::new(2, 16);
            model.forward(
                prompt,
                &SequenceInput { padding, ..SequenceInput::default() },
                &mut Pass::cached(&mut cache),
            );
            model.forward(next.clone(), &SequenceInput::default(), &mut Pass::cached(&mut cache))
        };
        let padding = Tensor::<2, Bool>::from_bool([[true, true, false, false, false, false]], &device());
        let padded = run(Tensor::cat(vec![noise.tensor([1, 2, 16]), prompt.clone()], 1), Some(padding));
        let difference = (padded - run(prompt, None)).abs().max().into_scalar::<f64>();
        assert!(difference <= tolerance(), "{difference:e}: {config:?}");
    }
}

#[test]
fn packed_documents_are_as_if_alone() {
    let mut noise = Noise::new(8);
    let documents = Tensor::<2, Int>::from_ints([[4, 4, 4, 9, 9, 9, 9]], &device());
    for config in grid() {
        let model = config.init(&device());
        let x = noise.tensor([1, 7, 16]);
        let part = |start, len| x.clone().narrow(1, start, len);
        let alone = Tensor::cat(vec![forward(&model, part(0, 3)), forward(&model, part(3, 4))], 1);
        let mut cache = Cache::new(2, 16);
        let mut step = |start, len| {
            let input = SequenceInput::default().with_documents(documents.clone().narrow(1, start, len));
            model.forward(part(start, len), &input, &mut Pass::cached(&mut cache))
        };
        let cached = Tensor::cat(vec![step(0, 2), step(2, 3), step(5, 1), step(6, 1)], 1);
        let input = SequenceInput::default().with_documents(documents.clone());
        let whole = model.forward(x.clone(), &input, &mut Pass::default());
        for found in [whole, cached] {
            let difference = (found - alone.clone()).abs().max().into_scalar::<f64>();
            assert!(difference <= tolerance(), "{difference:e}: {config:?}");
        }
    }
}

#[test]
fn a_decoder_reads_its_memory_once_and_never_its_padding() {
    let mut noise = Noise::new(5);
    let config = TransformerConfig::decoder(16, 4, 2).with_max_seq_len(8).with_init(WeightInit::xavier());
    let model = config.init(&device());
    let (x, source) = (noise.tensor([1, 4, 16]), noise.tensor([1, 3, 16]));
    let plain = |hidden| SequenceInput::default().with_memory(Memory::new(hidden));
    let whole = model.forward(x.clone(), &plain(source.clone()), &mut Pass::default());
    let other = model.forward(x.clone(), &plain(noise.tensor([1, 3, 16])), &mut Pass::default());
    assert!((whole.clone() - other).abs().max().into_scalar::<f64>() > 0.1, "the memory matters");

    // The padded memory is there at the first step; what is handed in later must not be read.
    let padding = Tensor::<2, Bool>::from_bool([[false, false, false, true, true]], &device());
    let padded = |hidden| SequenceInput::default().with_memory(Memory::new(hidden).with_padding(Some(padding.clone())));
    let first = padded(Tensor::cat(vec![source, noise.tensor([1, 2, 16])], 1));
    let later = padded(noise.tensor([1, 5, 16]));
    let mut cache = Cache::new(2, 8);
    let step = |x| {
        let input = if cache.is_empty() { &first } else { &later };
        model.forward(x, input, &mut Pass::cached(&mut cache))
    };
    parts_equal_whole(|_| whole, step, x, 1, tolerance()).unwrap();
}

#[test]
fn a_trace_changes_nothing_and_its_rows_sum_to_one() {
    let mut noise = Noise::new(8);
    for config in grid() {
        let model = config.init(&device());
        let (prompt, next) = (noise.tensor([1, 4, 16]), noise.tensor([1, 1, 16]));
        let padding = Tensor::<2, Bool>::from_bool([[true, false, false, false]], &device());
        let first = SequenceInput::default().with_padding(padding);
        let mut plain = Cache::new(2, 16);
        model.forward(prompt.clone(), &first, &mut Pass::cached(&mut plain));
        let expected = model.forward(next.clone(), &SequenceInput::default(), &mut Pass::cached(&mut plain));

        let (mut cache, mut trace) = (Cache::new(2, 16), AttentionTrace::default());
        model.forward(prompt, &first, &mut Pass::cached(&mut cache).with_trace(&mut trace));
        let shapes = |trace: &AttentionTrace| -> Vec<_> {
            trace.layers.iter().map(|layer| layer.attention.as_ref().expect("weights").dims()).collect()
        };
        assert_eq!(shapes(&trace), [[1, 4, 4, 4]; 2]);
        let mut pass = Pass::cached(&mut cache).with_trace(&mut trace);
        let output = model.forward(next, &SequenceInput::default(), &mut pass);
        // On a CPU to the bit; a GPU fuses operations otherwise when one more result is wanted.
        let difference = (output - expected).abs().max().into_scalar::<f64>();
        let allowed = if is_gpu() { tolerance() } else { 0.0 };
        assert!(difference <= allowed, "{difference:e}: {config:?}");
        assert_eq!(shapes(&trace), [[1, 4, 1, 5]; 2]);
        for layer in &trace.layers {
            let weights = layer.attention.clone().expect("weights");
            assert_eq!(weights.clone().narrow(3, 0, 1).max().into_scalar::<f32>(), 0.0, "padding is never seen");
            let worst = (weights.sum_dim(3) - 1.0).abs().max().into_scalar::<f64>();
            assert!(worst <= tolerance(), "{worst:e}: {config:?}");
        }
    }
}

#[test]
fn gradients_are_slopes() {
    let mut noise = Noise::new(6);
    // Narrow weights keep kinks and curvature small: the slopes are then good to about a thousandth.
    for config in grid().into_iter().step_by(3).map(|config| config.with_init(WeightInit::gpt2())) {
        let (plain, tracked) = (config.init(&device()), config.init(&device().autodiff()));
        let weights = noise.tensor([1, 4, 16]);
        let f = |x: Tensor<3>| {
            let model = if x.device().is_autodiff() { &tracked } else { &plain };
            let weights = Tensor::from_data(weights.to_data(), &x.device());
            (forward(model, x) * weights).sum()
        };
        gradients(f, noise.tensor([1, 4, 16]), 1e-2).unwrap_or_else(|e| panic!("{e}: {config:?}"));
    }
}

#[test]
fn without_positions_an_encoder_permutes_with_its_input() {
    let mut noise = Noise::new(7);
    let config = TransformerConfig::encoder(16, 4, 2).with_position(PositionConfig::None);
    let model = config.init(&device());
    let x = noise.tensor([1, 5, 16]);
    let order = Tensor::<1, Int>::from_ints([3, 0, 4, 1, 2], &device());
    let permuted = forward(&model, x.clone().select(1, order.clone()));
    let difference = (permuted - forward(&model, x).select(1, order)).abs().max().into_scalar::<f64>();
    assert!(difference <= tolerance(), "{difference:e}");
}
