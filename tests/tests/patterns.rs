//! Attention patterns inside a stack: each against its pairs written out as a mask, and caches that keep the tokens in sight
//! alone. What holds of every pattern with every other choice is in `invariants`.

use burn::tensor::{Bool, Int, Tensor, TensorData};
use firelight::nn::invariants::{parts_equal_whole, rows_sum_to_one};
use firelight::nn::{
    AttentionContext, AttentionMask, AttentionPattern, Cache, Layer, LayerContext, LayerPass, ParamBuilder, Pass,
    PositionConfig, SequenceInput, Trace, Transformer, TransformerConfig, WeightInit,
};

use crate::support::{Noise, device, distance, is_gpu};

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
        AttentionPattern::BigBird { window: 1, global: 1, random: 1, block: 2, seed: 1, causal: true },
    ];
    let mixed = vec![window, AttentionPattern::Causal];
    patterns.into_iter().map(|pattern| vec![pattern]).chain([mixed]).collect()
}

/// Those that see the future, which no cache serves.
fn two_sided() -> [Vec<AttentionPattern>; 6] {
    let window = AttentionPattern::SlidingWindow { left: 1, right: 2 };
    [
        vec![AttentionPattern::Full],
        vec![window, AttentionPattern::Full],
        vec![AttentionPattern::Chunked { size: 3, causal: false }],
        vec![AttentionPattern::Strided { stride: 2, causal: false }],
        vec![AttentionPattern::LocalGlobal { window: 1, global: 2, causal: false }],
        vec![AttentionPattern::BigBird { window: 1, global: 1, random: 1, block: 2, seed: 1, causal: false }],
    ]
}

fn config(patterns: Vec<AttentionPattern>) -> TransformerConfig {
    TransformerConfig::new(16, 4, 2)
        .with_max_seq_len(16)
        .with_init(WeightInit::xavier())
        .with_position(PositionConfig::rotary())
        .with_patterns(patterns)
}

/// The stack with every pair of every layer's pattern written out as a mask, and no cache.
fn dense(model: &Transformer, patterns: &[AttentionPattern], x: Tensor<3>, padding: &[[bool; 9]; 2]) -> Tensor<3> {
    let mut x = x;
    for (i, block) in model.layers().enumerate() {
        let pattern = patterns[i % patterns.len()];
        let hidden = |row: usize, pair: usize| pattern.rule().hidden(0, pair / 9, pair % 9) || padding[row][pair % 9];
        let pairs: Vec<bool> = (0..2).flat_map(|row| (0..81).map(move |pair| hidden(row, pair))).collect();
        let mask = AttentionMask::from_hidden(Tensor::from_bool(TensorData::new(pairs, [2, 1, 9, 9]), &device()));
        let context = LayerContext { attention: AttentionContext::masked(mask), ..LayerContext::default() };
        x = block.forward(x, &context, &mut LayerPass::default());
    }
    model.norm.as_ref().expect("a final norm").forward(x)
}

#[test]
fn every_pattern_is_its_dense_mask_with_any_heads_padding_and_cache() {
    let mut noise = Noise::new(29);
    let causal = [vec![AttentionPattern::Causal]].into_iter().chain(patterns()).map(|patterns| (patterns, true));
    let all = causal.chain(two_sided().map(|patterns| (patterns, false)));
    let unpadded = [[false; 9]; 2];
    let mut padded = unpadded;
    for (row, token) in [(0, 0), (0, 1), (0, 5), (1, 7), (1, 8)] {
        padded[row][token] = true;
    }
    for (patterns, is_causal) in all {
        for (heads, padding) in [4, 2, 1].into_iter().flat_map(|heads| [(heads, unpadded), (heads, padded)]) {
            let config = config(patterns.clone()).with_position(PositionConfig::None).with_n_kv_heads(heads);
            let model = config.init_with(&ParamBuilder::new(&device(), 0));
            let x = noise.tensor([2, 9, 16]);
            let flags = Tensor::<2, Bool>::from_bool(TensorData::from(padding), &device());
            let run = |start, len, mut pass: Pass| {
                let input = SequenceInput::default().with_padding(flags.clone().narrow(1, start, len));
                model.forward(x.clone().narrow(1, start, len), &input, &mut pass)
            };
            let mut found = vec![run(0, 9, Pass::default())];
            if is_causal {
                for mut cache in [model.full_cache(16), model.cache(16)] {
                    let parts = [(0, 4), (4, 1), (5, 4)].map(|(start, len)| run(start, len, Pass::cached(&mut cache)));
                    found.push(Tensor::cat(parts.to_vec(), 1));
                }
            }
            let expected = dense(&model, &patterns, x.clone(), &padding);
            for (i, found) in found.into_iter().enumerate() {
                let difference = distance(&found, &expected);
                assert!(
                    difference <= tolerance(),
                    "{difference:e} in run {i}: {patterns:?}, {heads} heads, {padding:?}"
                );
            }
        }
    }
}

/// Longer than a rolling cache of a short window holds.
const LONG: usize = 240;

/// Patterns that let a layer forget, and one of them beside a layer that does not; and how far back they look.
fn forgetful() -> [(Vec<AttentionPattern>, [Option<usize>; 2]); 3] {
    let window = AttentionPattern::SlidingWindow { left: 5, right: 0 };
    [
        (vec![window], [Some(5); 2]),
        (vec![AttentionPattern::Chunked { size: 7, causal: true }], [Some(6); 2]),
        (vec![window, AttentionPattern::Causal], [Some(5), None]),
    ]
}

fn long(patterns: Vec<AttentionPattern>, position: PositionConfig) -> Transformer {
    let config = config(patterns).with_max_seq_len(LONG).with_n_kv_heads(2).with_d_value(3).with_position(position);
    config.init_with(&ParamBuilder::new(&device(), 0))
}

/// Keys of 4 channels and values of 3, of 4 bytes each, in 2 heads and 2 layers, with 128 tokens to work with beside those in sight.
fn most_bytes(spans: [Option<usize>; 2]) -> usize {
    spans.into_iter().map(|span| 4 * 2 * (4 + 3) * span.map_or(LONG, |span| span + 128)).sum()
}

#[test]
fn rolling_caches_equal_the_whole_in_bounded_memory() {
    let mut noise = Noise::new(24);
    let padding = |start: usize, len: usize| {
        let flags: Vec<bool> = (start..start + len).map(|token| token < 3 || token % 11 == 4).collect();
        Tensor::<2, Bool>::from_bool(TensorData::new(flags, [1, len]), &device())
    };
    for (i, (patterns, spans)) in forgetful().into_iter().enumerate() {
        for (part, padded) in [(1, false), (1, true), (50, true), (130, false), (200, true)] {
            let position =
                [PositionConfig::rotary(), PositionConfig::Alibi, PositionConfig::shaw()][(i + part) % 3].clone();
            let model = long(patterns.clone(), position);
            let input =
                |start, len| SequenceInput { padding: padded.then(|| padding(start, len)), ..SequenceInput::default() };
            let mut cache = model.cache(LONG);
            let step = |x: Tensor<3>| {
                let input = input(cache.len(), x.dims()[1]);
                let output = model.forward(x, &input, &mut Pass::cached(&mut cache));
                assert!(cache.bytes() <= most_bytes(spans), "{} bytes", cache.bytes());
                output
            };
            let whole = |x| model.forward(x, &input(0, LONG), &mut Pass::default());
            parts_equal_whole(whole, step, noise.tensor([1, LONG, 16]), part, tolerance())
                .unwrap_or_else(|e| panic!("{e}: {patterns:?} in parts of {part}, padded: {padded}"));
        }
    }
}

#[test]
fn a_rolling_cache_goes_back_and_changes_rows_as_a_full_one() {
    let mut noise = Noise::new(25);
    for (patterns, _) in forgetful() {
        let model = long(patterns.clone(), PositionConfig::rotary());
        let (text, guess, next) = (noise.tensor([2, 150, 16]), noise.tensor([2, 40, 16]), noise.tensor([3, 4, 16]));
        let run = |mut cache: Cache| {
            let forward =
                |x: Tensor<3>, cache: &mut Cache| model.forward(x, &SequenceInput::default(), &mut Pass::cached(cache));
            forward(text.clone(), &mut cache);
            forward(guess.clone(), &mut cache);
            cache.truncate(140);
            cache.select_rows(&Tensor::<1, Int>::from_ints([1, 1, 0], &device()));
            forward(next.clone(), &mut cache)
        };
        let difference = distance(&run(model.cache(LONG)), &run(model.full_cache(LONG)));
        assert!(difference <= tolerance(), "{difference:e}: {patterns:?}");
    }
}

#[test]
fn documents_are_apart_in_a_rolling_cache() {
    let mut noise = Noise::new(26);
    let documents = |start: usize, len: usize| {
        let ids: Vec<i32> = (start..start + len).map(|token| token as i32 / 9).collect();
        Tensor::<2, Int>::from_data(TensorData::new(ids, [1, len]), &device())
    };
    for (patterns, _) in forgetful() {
        let model = long(patterns.clone(), PositionConfig::t5(false));
        let input = |start, len| SequenceInput::default().with_documents(documents(start, len));
        let mut cache = model.cache(LONG);
        let step = |x: Tensor<3>| {
            let input = input(cache.len(), x.dims()[1]);
            model.forward(x, &input, &mut Pass::cached(&mut cache))
        };
        let whole = |x: Tensor<3>| {
            let plain = model.forward(x.clone(), &SequenceInput::default(), &mut Pass::default());
            let whole = model.forward(x, &input(0, LONG), &mut Pass::default());
            assert!(distance(&whole, &plain) > 1e-2, "the documents matter: {patterns:?}");
            whole
        };
        parts_equal_whole(whole, step, noise.tensor([1, LONG, 16]), 20, tolerance())
            .unwrap_or_else(|e| panic!("{e}: {patterns:?}"));
    }
}

#[test]
fn a_trace_shows_the_keys_that_a_layer_still_reads() {
    let mut noise = Noise::new(27);
    for (patterns, spans) in forgetful() {
        let model = long(patterns, PositionConfig::rotary());
        let (mut cache, mut trace) = (model.cache(LONG), Trace::default());
        for length in [200, 3] {
            let mut pass = Pass::cached(&mut cache).with_trace(&mut trace);
            model.forward(noise.tensor([1, length, 16]), &SequenceInput::default(), &mut pass);
        }
        assert_eq!(trace.layers.len(), spans.len());
        for (layer, span) in trace.layers.iter().zip(spans) {
            let weights = layer.attention.clone().expect("weights");
            assert_eq!(weights.dims(), [1, 4, 3, span.unwrap_or(200) + 3]);
            rows_sum_to_one(weights, tolerance()).unwrap_or_else(|e| panic!("{e}"));
        }
    }
}

#[test]
#[should_panic(expected = "layer 0 of the cache keeps the last 5 tokens, but its attention reads all tokens")]
fn a_cache_made_for_another_stack_panics() {
    let mut cache = long(forgetful()[0].0.clone(), PositionConfig::rotary()).cache(LONG);
    let causal = long(vec![AttentionPattern::Causal], PositionConfig::rotary());
    let x = Noise::new(28).tensor([1, 2, 16]);
    causal.forward(x, &SequenceInput::default(), &mut Pass::cached(&mut cache));
}
