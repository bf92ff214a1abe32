//! Every way in which a query can weigh the keys, inside a stack, with every pattern, number of key/value heads, padding,
//! documents and cache: no leak from the future, and parts equal the whole.

use burn::tensor::{Bool, Int, Tensor, TensorData};
use firelight::kernels::{assert_close, assert_same_bits};
use firelight::nn::invariants::{causality, parts_equal_whole, rows_sum_to_one};
use firelight::nn::{
    AttentionMechanism, AttentionPattern, Cache, EncoderOutput, ParamBuilder, Pass, PositionConfig, ProjectionKind,
    SequenceInput, Trace, Transformer, TransformerConfig, WeightInit,
};
use firelight::storage::{load_weights, save_weights};

use crate::support::slopes::{assert_gradients_are_slopes, size_of};
use crate::support::{Noise, device, distance, is_gpu};

fn tolerance() -> f64 {
    if is_gpu() { 1e-4 } else { 1e-5 }
}

const MECHANISMS: [AttentionMechanism; 5] = [
    AttentionMechanism::DotProduct,
    AttentionMechanism::Bilinear,
    AttentionMechanism::Additive,
    AttentionMechanism::Linear,
    AttentionMechanism::Performer { features: 6 },
];

/// Longer than a chunk of linear attention, and than a rolling cache of a short window holds.
const LENGTH: usize = 150;

fn config(mechanism: AttentionMechanism) -> TransformerConfig {
    TransformerConfig::new(16, 4, 2)
        .with_max_seq_len(LENGTH)
        .with_init(WeightInit::xavier())
        .with_d_value(3)
        .with_attention_mechanism(mechanism)
}

/// Each mechanism with each pattern, and with the numbers of key/value heads and the positions in turn.
fn grid() -> Vec<TransformerConfig> {
    let window = AttentionPattern::SlidingWindow { left: 5, right: 0 };
    let patterns = [
        vec![AttentionPattern::Causal],
        vec![window],
        vec![AttentionPattern::Chunked { size: 7, causal: true }],
        vec![AttentionPattern::LocalGlobal { window: 2, global: 1, causal: true }],
        vec![window, AttentionPattern::Causal],
    ];
    // Positions that each mechanism can take, those of other kinds among them.
    let positions = |mechanism| match mechanism {
        AttentionMechanism::Linear | AttentionMechanism::Performer { .. } => {
            [PositionConfig::rotary(), PositionConfig::Learned, PositionConfig::Sinusoidal]
        }
        AttentionMechanism::Additive => [PositionConfig::rotary(), PositionConfig::t5(false), PositionConfig::Alibi],
        _ => [PositionConfig::rotary(), PositionConfig::shaw(), PositionConfig::Alibi],
    };
    let of = |mechanism, i: usize| {
        let config = config(mechanism).with_patterns(patterns[i].clone());
        config.with_n_kv_heads([4, 2, 1][i % 3]).with_position(positions(mechanism)[(i / 2) % 3].clone())
    };
    let pairs = MECHANISMS.into_iter().flat_map(|mechanism| (0..patterns.len()).map(move |i| (mechanism, i)));
    pairs.map(|(mechanism, i)| of(mechanism, i)).collect()
}

fn forward(model: &Transformer, x: Tensor<3>) -> Tensor<3> {
    model.forward(x, &SequenceInput::default(), &mut Pass::default())
}

#[test]
fn no_mechanism_sees_the_future() {
    let mut noise = Noise::new(31);
    for config in grid() {
        let model = config.init_with(&ParamBuilder::new(&device(), 0));
        causality(|x| forward(&model, x), noise.tensor([2, 8, 16]), tolerance())
            .unwrap_or_else(|e| panic!("{e}: {config:?}"));
    }
}

#[test]
fn cached_mechanisms_equal_the_whole_with_and_without_padding() {
    let mut noise = Noise::new(32);
    let padding = |start: usize, len: usize| {
        let flags: Vec<bool> = (start..start + len).map(|token| token < 3 || token % 11 == 4).collect();
        Tensor::<2, Bool>::from_bool(TensorData::new(flags, [1, len]), &device())
    };
    for config in grid() {
        let model = config.init_with(&ParamBuilder::new(&device(), 0));
        for (part, padded, rolling) in [(1, true, true), (70, true, true), (149, false, true), (40, true, false)] {
            let input =
                |start, len| SequenceInput { padding: padded.then(|| padding(start, len)), ..SequenceInput::default() };
            let mut cache = if rolling { model.cache(LENGTH) } else { model.full_cache(LENGTH) };
            let step = |x: Tensor<3>| {
                let input = input(cache.len(), x.dims()[1]);
                model.forward(x, &input, &mut Pass::cached(&mut cache))
            };
            let whole = |x| model.forward(x, &input(0, LENGTH), &mut Pass::default());
            parts_equal_whole(whole, step, noise.tensor([1, LENGTH, 16]), part, tolerance())
                .unwrap_or_else(|e| panic!("{e} in parts of {part}, padded: {padded}, rolling: {rolling}: {config:?}"));
        }
    }
}

#[test]
fn padding_and_documents_change_nothing() {
    let mut noise = Noise::new(33);
    let documents = Tensor::<2, Int>::from_ints([[4, 4, 4, 9, 9, 9, 9]], &device());
    let padding = Tensor::<2, Bool>::from_bool([[true, true, true, false, false, false, false]], &device());
    for config in grid() {
        // A pattern with global tokens begins at the row's first token, padding or another document's.
        if matches!(config.first().pattern, AttentionPattern::LocalGlobal { .. } | AttentionPattern::Chunked { .. }) {
            continue;
        }
        let model = config.init_with(&ParamBuilder::new(&device(), 0));
        let x = noise.tensor([1, 7, 16]);
        let part = |start, len| x.clone().narrow(1, start, len);
        let alone = forward(&model, part(3, 4));
        let mut cache = model.full_cache(LENGTH);
        let mut step = |start, len| {
            let input = SequenceInput::default().with_documents(documents.clone().narrow(1, start, len));
            model.forward(part(start, len), &input, &mut Pass::cached(&mut cache))
        };
        step(0, 2);
        let cached = Tensor::cat(vec![step(2, 3).narrow(1, 1, 2), step(5, 2)], 1);
        let run = |input: SequenceInput| model.forward(x.clone(), &input, &mut Pass::default()).narrow(1, 3, 4);
        let packed = run(SequenceInput::default().with_documents(documents.clone()));
        let padded = run(SequenceInput::default().with_padding(padding.clone()));
        for found in [cached, packed, padded] {
            let difference = distance(&found, &alone);
            assert!(difference <= tolerance(), "{difference:e}: {config:?}");
        }
    }
}

#[test]
fn a_memory_is_read_once_and_never_its_padding() {
    let mut noise = Noise::new(34);
    for mechanism in MECHANISMS {
        let model =
            config(mechanism).with_cross_attention(true).with_n_kv_heads(2).init_with(&ParamBuilder::new(&device(), 0));
        let (x, source) = (noise.tensor([1, 4, 16]), noise.tensor([1, 3, 16]));
        let input = SequenceInput::default().with_encoder_output(EncoderOutput::new(source.clone()));
        let whole = model.forward(x.clone(), &input, &mut Pass::default());
        let other = SequenceInput::default().with_encoder_output(EncoderOutput::new(noise.tensor([1, 3, 16])));
        let other = model.forward(x.clone(), &other, &mut Pass::default());
        assert!(distance(&whole, &other) > 1e-2, "the memory matters: {mechanism:?}");
        let padding = Tensor::<2, Bool>::from_bool([[false, false, false, true, true]], &device());
        let padded =
            EncoderOutput::new(Tensor::cat(vec![source, noise.tensor([1, 2, 16])], 1)).with_padding(Some(padding));
        let input = SequenceInput::default().with_encoder_output(padded);
        let mut cache = model.cache(LENGTH);
        let step = |x| model.forward(x, &input, &mut Pass::cached(&mut cache));
        parts_equal_whole(|_| whole, step, x, 1, tolerance()).unwrap_or_else(|e| panic!("{e}: {mechanism:?}"));
    }
}

#[test]
fn traces_of_every_mechanism_have_rows_that_sum_to_one() {
    let mut noise = Noise::new(35);
    for config in grid() {
        let model = config.init_with(&ParamBuilder::new(&device(), 0));
        let (x, next) = (noise.tensor([1, 5, 16]), noise.tensor([1, 1, 16]));
        let (mut cache, mut trace) = (model.full_cache(LENGTH), Trace::default());
        for x in [x.clone(), next.clone()] {
            let length = x.dims()[1];
            let traced = model.forward(
                x.clone(),
                &SequenceInput::default(),
                &mut Pass::cached(&mut cache.clone()).with_trace(&mut trace),
            );
            let plain = model.forward(x, &SequenceInput::default(), &mut Pass::cached(&mut cache));
            assert!(distance(&traced, &plain) <= tolerance());
            assert_eq!(trace.layers.len(), 2);
            for layer in &trace.layers {
                let weights = layer.attention.clone().expect("weights");
                assert_eq!(weights.dims(), [1, 4, length, cache.len()]);
                rows_sum_to_one(weights, tolerance()).unwrap_or_else(|e| panic!("{e}: {config:?}"));
            }
        }
    }
}

/// Over more than a chunk of linear attention. Every part of a block has its share of the gradient, so that none is checked in vain.
#[test]
fn gradients_of_every_mechanism_are_slopes() {
    let mut noise = Noise::new(36);
    for config in grid() {
        let gradients = assert_gradients_are_slopes(&config, 70, &mut noise);
        for part in ["0.attention.", "0.feed_forward.", "1.attention.", "1.feed_forward."] {
            let share = size_of(&gradients, &format!("blocks.{part}")) / size_of(&gradients, "stack.");
            assert!(share > 0.1, "blocks.{part} has {share:.3} of the gradient: {config:?}");
        }
    }
}

#[test]
fn a_saved_mechanism_comes_back_to_the_bit() {
    let mut noise = Noise::new(41);
    let home = tempfile::tempdir().expect("a folder");
    for (i, config) in grid().into_iter().enumerate() {
        let config = config.with_projection([ProjectionKind::Separate, ProjectionKind::Fused][i % 2]);
        let text = serde_json::to_string(&config).expect("text");
        let read: TransformerConfig = serde_json::from_str(&text).expect("a configuration");
        let (model, path) =
            (config.init_with(&ParamBuilder::new(&device(), 0)), home.path().join(format!("{i}.safetensors")));
        save_weights(&model, &path).expect("a file");
        let mut other = read.init_with(&ParamBuilder::new(&device(), 1));
        let x = noise.tensor([1, 7, 16]);
        let expected = forward(&model, x.clone());
        assert!(distance(&forward(&other, x.clone()), &expected) > 1e-3);
        load_weights(&mut other, &path).expect("the same model");
        assert_same_bits(&forward(&other, x), &expected);
    }
}

fn linear() -> Transformer {
    config(AttentionMechanism::Linear)
        .with_position(PositionConfig::rotary())
        .with_n_kv_heads(2)
        .init_with(&ParamBuilder::new(&device(), 0))
}

#[test]
fn sums_have_one_size_whatever_the_length() {
    let mut noise = Noise::new(37);
    let model = linear();
    let mut cache = model.cache(1000);
    for length in [1, 9, 200, 700] {
        forward_cached(&model, noise.tensor([1, length, 16]), &mut cache);
        // 2 layers of 2 heads: 4 features by 3 values and a one, 4 bytes each.
        assert_eq!(cache.bytes(), 2 * 2 * 4 * (3 + 1) * 4);
    }
    assert_eq!(cache.len(), 910);
}

#[test]
fn sums_change_rows_and_go_back_to_the_beginning() {
    let mut noise = Noise::new(38);
    let model = linear();
    let (text, next) = (noise.tensor([2, 9, 16]), noise.tensor([3, 2, 16]));
    let run = |mut cache: Cache, other: Option<Tensor<3>>| {
        if let Some(other) = other {
            forward_cached(&model, other, &mut cache);
            cache.truncate(0);
        }
        forward_cached(&model, text.clone(), &mut cache);
        cache.truncate(9);
        cache.select_rows(&Tensor::<1, Int>::from_ints([1, 1, 0], &device()));
        forward_cached(&model, next.clone(), &mut cache)
    };
    let expected = run(model.full_cache(LENGTH), None);
    for other in [None, Some(noise.tensor([1, 5, 16]))] {
        assert_close(&run(model.cache(LENGTH), other), &expected, tolerance());
    }
}

#[test]
#[should_panic(expected = "a cache of 9 tokens cannot go back to 8")]
fn sums_cannot_forget_their_last_token() {
    let model = linear();
    let mut cache = model.cache(LENGTH);
    forward_cached(&model, Noise::new(39).tensor([1, 9, 16]), &mut cache);
    cache.truncate(8);
}

#[test]
#[should_panic(expected = "layer 0 of the cache keeps sums of all tokens, but its attention reads all tokens")]
fn sums_do_not_serve_a_softmax() {
    let softmax = config(AttentionMechanism::DotProduct).init_with(&ParamBuilder::new(&device(), 0));
    forward_cached(&softmax, Noise::new(40).tensor([1, 2, 16]), &mut linear().cache(LENGTH));
}

fn forward_cached(model: &Transformer, x: Tensor<3>, cache: &mut Cache) -> Tensor<3> {
    model.forward(x, &SequenceInput::default(), &mut Pass::cached(cache))
}
