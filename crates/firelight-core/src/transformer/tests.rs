use super::*;
use crate::attention::{AttentionMechanism, DifferentialConfig, LatentConfig};
use crate::block::NormPlacement;
use crate::embedding::EmbeddingProjectionConfig;
use crate::feed_forward::Activation;
use crate::gated_delta::GatedDeltaConfig;
use crate::mixer::MixerConfig;
use crate::position::{PositionConfig, RotaryAxes, RotaryConfig, RotaryScaling};
use crate::{Init, NormConfig, ParamBuilder, Trace, WeightInit};
use burn::tensor::{Device, TensorData};
use firelight_kernels::{Difference, MaskRule, assert_close};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
#[should_panic(expected = "padding [2, 4] is not [B, T] of the embeddings [2, 3, 8]")]
fn padding_of_another_length_panics() {
    let device = Device::default();
    let model = TransformerConfig::encoder(8, 2, 1).init_with(&ParamBuilder::new(&device, 0));
    let input = SequenceInput::default().with_padding(Tensor::<2, Int>::zeros([2, 4], &device).bool());
    model.forward(Tensor::zeros([2, 3, 8], &device), &input, &mut Pass::default());
}

#[test]
#[should_panic(expected = "the encoder's output [1, 5, 8] does not fit the embeddings [2, 3, 8] in batch or width")]
fn a_memory_of_another_batch_panics() {
    let device = Device::default();
    let model = TransformerConfig::decoder(8, 2, 1).init_with(&ParamBuilder::new(&device, 0));
    let input = SequenceInput::default().with_encoder_output(EncoderOutput::new(Tensor::zeros([1, 5, 8], &device)));
    model.forward(Tensor::zeros([2, 3, 8], &device), &input, &mut Pass::default());
}

/// With which words a stack refuses the cache of another one.
fn refusal(stack: TransformerConfig, other: TransformerConfig) -> String {
    let params = ParamBuilder::new(&Device::default(), 0);
    let (stack, mut cache) = (stack.init_with(&params), other.init_with(&params).cache(4));
    let x = Tensor::zeros([1, 2, 8], &Device::default());
    let run = || stack.forward(x, &SequenceInput::default(), &mut Pass::cached(&mut cache));
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("another stack's cache");
    *panic.downcast().expect("a text")
}

#[test]
fn the_cache_of_another_stack_is_refused_by_layer_and_size() {
    let stack = |n_layers| TransformerConfig::new(8, 2, n_layers).with_position(PositionConfig::None);
    let linear = || stack(2).with_attention_mechanism(AttentionMechanism::Linear);
    let performer = |features| stack(2).with_attention_mechanism(AttentionMechanism::Performer { features });
    let latent = |d_latent| stack(2).with_mixer(MixerConfig::Latent(LatentConfig::new(d_latent, 2)));
    let delta = |delta: GatedDeltaConfig| stack(2).with_mixer(MixerConfig::GatedDelta(delta));
    let differential = || stack(2).with_mixer(MixerConfig::Differential(DifferentialConfig::default()));
    let plain = GatedDeltaConfig::default;
    let mut second = vec![stack(2).first().clone(); 2];
    second[1].block.attention.n_kv_heads = Some(1);
    for (one, other, layer, found, needed) in [
        (stack(2), stack(2).with_layers(second), 1, "n_kv_heads = 1", "n_kv_heads = 2"),
        (stack(2), stack(2).with_n_heads(4), 0, "n_kv_heads = 4", "n_kv_heads = 2"),
        (stack(2), stack(2).with_d_head(3), 0, "d_head = 3", "d_head = 4"),
        (stack(2), stack(2).with_d_value(5), 0, "d_value = 5", "d_value = 4"),
        (stack(2), differential(), 0, "d_value = 8", "d_value = 4"),
        (latent(4), latent(6), 0, "mixer.d_latent = 6", "mixer.d_latent = 4"),
        (linear(), linear().with_d_value(5), 0, "d_value + 1 = 6", "d_value + 1 = 5"),
        (performer(5), performer(6), 0, "features = 6", "features = 5"),
        (delta(plain()), delta(plain().with_n_key_heads(1)), 0, "mixer.n_key_heads = 1", "mixer.n_key_heads = 2"),
        (delta(plain()), delta(plain().with_n_value_heads(4)), 0, "mixer.n_value_heads = 4", "mixer.n_value_heads = 2"),
        (delta(plain()), delta(plain().with_d_key(3)), 0, "mixer.d_key = 3", "mixer.d_key = 4"),
        (delta(plain()), delta(plain().with_d_value(3)), 0, "mixer.d_value = 3", "mixer.d_value = 4"),
        (delta(plain()), delta(plain().with_convolution(2)), 0, "mixer.convolution = 2", "mixer.convolution = 4"),
    ] {
        let expected = format!("layer {layer} of the cache has {found}, but its attention has {needed}");
        assert_eq!(refusal(one, other), format!("{expected}: it was made for another stack"));
    }
    let expected = "a cache of 3 layers was made for another stack: this one has 2";
    assert_eq!(refusal(stack(2), stack(3)), expected);
}

#[test]
fn embeddings_are_projected_before_or_behind_what_is_added_to_them() {
    let device = Device::default();
    let base = TransformerConfig::new(8, 2, 1).with_max_seq_len(5).with_embedding_norm(true);
    let x = Tensor::<3>::random([2, 5, 6], burn::tensor::Distribution::Default, &device);
    for place in [ProjectionPlacement::AfterNorm, ProjectionPlacement::BeforePositions] {
        let config = EmbeddingProjectionConfig::new(6).with_placement(place);
        let narrow = base.clone().with_embedding_projection(Some(config)).init_with(&ParamBuilder::new(&device, 0));
        let linear = narrow.embedding_projection.clone().expect("a projection");
        let (position, norm) = (narrow.position.clone(), narrow.embedding_norm.clone().expect("a norm"));
        let positions = Positions::contiguous(0, 5);
        let embedded = match place {
            ProjectionPlacement::AfterNorm => linear.forward(norm.forward(position.embed(x.clone(), &positions))),
            _ => norm.forward(position.embed(linear.forward(x.clone()), &positions)),
        };
        // The blocks and the final norm on these embeddings.
        let mut wide = base
            .clone()
            .with_position(PositionConfig::None)
            .with_embedding_norm(false)
            .init_with(&ParamBuilder::new(&device, 0));
        (wide.blocks, wide.norm) = (narrow.blocks.clone(), narrow.norm.clone());
        let run = |stack: &Transformer, x| stack.forward(x, &SequenceInput::default(), &mut Pass::default());
        assert_close(&run(&narrow, x.clone()), &run(&wide, embedded), 1e-5);
    }
}

/// What a stack makes of the same input, its weights drawn by the same seed.
fn output(config: &TransformerConfig, device: &Device) -> TensorData {
    let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
    let model = config.clone().with_init(wide).init_with(&ParamBuilder::new(device, 3));
    let numbers: Vec<f32> = (0..48).map(|i| (i as f32 * 0.7).sin()).collect();
    let x = Tensor::<1>::from_floats(numbers.as_slice(), device).reshape([1, 6, 8]);
    model.forward(x, &SequenceInput::default(), &mut Pass::default()).into_data()
}

/// The largest difference: a device that tunes its kernels need not repeat the last bits.
fn distance(one: &TensorData, other: &TensorData) -> f64 {
    let distance = Difference::between(one, other).absolute;
    assert!(distance.is_finite(), "one of the outputs is no number");
    distance
}

#[test]
fn every_choice_of_a_stack_reaches_its_layers() {
    let device = Device::default();
    let rotary =
        |theta, scaling| PositionConfig::Rotary(RotaryConfig::default().with_theta(theta).with_scaling(scaling));
    let base = || TransformerConfig::new(8, 2, 2).with_position(rotary(1e4, RotaryScaling::None));
    let plain = output(&base(), &device);
    assert!(distance(&output(&base(), &device), &plain) < 1e-4);
    for (name, config) in [
        ("soft cap", base().with_attention_soft_cap(Some(0.1))),
        ("norm of queries and keys", base().with_query_key_norm(Some(NormConfig::rms()))),
        ("layer scale", base().with_layer_scale(0.5)),
        ("embedding norm", base().with_embedding_norm(true)),
        ("norm of the attention", base().with_attention_norm(NormConfig::None)),
        ("norm behind the parts", base().with_norm_placement(NormPlacement::Output)),
        ("two norms of parallel parts", base().with_norm_placement(NormPlacement::ParallelTwoNorms)),
        ("theta", base().with_position(rotary(100.0, RotaryScaling::None))),
        ("scaling", base().with_position(rotary(1e4, RotaryScaling::Linear { factor: 4.0 }))),
    ] {
        assert!(distance(&output(&config, &device), &plain) > 1e-3, "{name}");
    }
    let biases = |config: TransformerConfig| config.with_bias(false).with_qkv_bias(true).init(&device).num_params();
    assert_eq!(biases(base()) - base().with_bias(false).init(&device).num_params(), 2 * 3 * 8);
}

#[test]
#[should_panic(expected = "coordinates [1, 2, 2] are not [1 or B, T, A] of the embeddings [2, 3, 8]")]
fn coordinates_of_another_length_panic() {
    let device = Device::default();
    let input = SequenceInput::default().with_coordinates(Tensor::zeros([1, 2, 2], &device));
    let model = TransformerConfig::encoder(8, 2, 1).init_with(&ParamBuilder::new(&device, 0));
    model.forward(Tensor::zeros([2, 3, 8], &device), &input, &mut Pass::default());
}

#[test]
#[should_panic(expected = "the position scheme knows one position a token, not 2 coordinates")]
fn coordinates_need_axes() {
    let device = Device::default();
    let input = SequenceInput::default().with_coordinates(Tensor::zeros([1, 3, 2], &device));
    let model = TransformerConfig::encoder(8, 2, 1).init_with(&ParamBuilder::new(&device, 0));
    model.forward(Tensor::zeros([2, 3, 8], &device), &input, &mut Pass::default());
}

/// A stack that turns by two coordinates, and two rows of five tokens for it.
fn of_two_axes(device: &Device) -> (Transformer, Tensor<3>) {
    let axes = RotaryAxes::Sections { sections: vec![1, 1] };
    let position = PositionConfig::Rotary(RotaryConfig::default().with_theta(10.0).with_axes(axes));
    let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
    let config = TransformerConfig::new(8, 2, 2).with_position(position).with_init(wide);
    let numbers: Vec<f32> = (0..80).map(|i| (i as f32 * 0.7).sin()).collect();
    let x = Tensor::<1>::from_floats(numbers.as_slice(), device).reshape([2, 5, 8]);
    (config.init_with(&ParamBuilder::new(device, 3)), x)
}

#[test]
fn rows_with_and_without_an_image_go_on_in_one_batch() {
    let device = Device::default();
    let (model, x) = of_two_axes(&device);
    let part = |row, start, len| x.clone().narrow(0, row, 1).narrow(1, start, len);
    let places = Tensor::<2>::from_floats([[0.0, 0.0], [1.0, 1.0], [1.0, 4.0]], &device).unsqueeze();
    let (text, image) = (SequenceInput::default(), SequenceInput::default().with_coordinates(places));
    let read =
        |x: Tensor<3>, input: &SequenceInput, cache: &mut Cache| model.forward(x, input, &mut Pass::cached(cache));
    let [mut cache, mut other] = [model.cache(8), model.cache(8)];
    read(part(0, 0, 3), &image, &mut cache);
    read(part(1, 0, 2), &text, &mut other);
    let alone = [read(part(0, 3, 1), &text, &mut cache.clone()), read(part(1, 2, 1), &text, &mut other.clone())];
    cache.join(other);
    let found = read(Tensor::cat(vec![part(0, 3, 1), part(1, 2, 1)], 0), &text, &mut cache);
    for (row, alone) in alone.into_iter().enumerate() {
        assert!(distance(&found.clone().narrow(0, row, 1).into_data(), &alone.into_data()) < 1e-4, "row {row}");
    }
}

#[test]
fn text_behind_an_image_counts_on_from_its_largest_coordinate() {
    let device = Device::default();
    let (model, x) = of_two_axes(&device);
    // A word, two patches beside each other, two words.
    let places = [[0.0f32, 0.0], [1.0, 1.0], [1.0, 4.0], [5.0, 5.0], [6.0, 6.0]];
    let places = Tensor::<2>::from_floats(places, &device).unsqueeze::<3>();
    let given = SequenceInput::default().with_coordinates(places.clone());
    let expected = model.forward(x.clone(), &given, &mut Pass::default());
    let mut cache = model.cache(8);
    let image = SequenceInput::default().with_coordinates(places.narrow(1, 0, 3));
    model.forward(x.clone().narrow(1, 0, 3), &image, &mut Pass::cached(&mut cache));
    for place in [3, 4] {
        let word = x.clone().narrow(1, place, 1);
        let found = model.forward(word, &SequenceInput::default(), &mut Pass::cached(&mut cache)).into_data();
        assert!(distance(&found, &expected.clone().narrow(1, place, 1).into_data()) < 1e-4, "{place}");
    }
    let plain = model.forward(x, &SequenceInput::default(), &mut Pass::default());
    assert!(distance(&plain.into_data(), &expected.into_data()) > 1e-3);
}

/// A stack whose rotary frequencies are others from five tokens on, and `len` tokens for it.
fn stretched(scaling: RotaryScaling, device: &Device) -> (Transformer, impl Fn(usize) -> Tensor<3> + use<>) {
    let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
    let position = PositionConfig::Rotary(RotaryConfig::default().with_theta(10.0).with_scaling(scaling));
    let model = TransformerConfig::new(8, 2, 2).with_position(position).with_init(wide);
    let (model, device) = (model.init_with(&ParamBuilder::new(device, 3)), device.clone());
    let x = move |len: usize| {
        let numbers: Vec<f32> = (0..8 * len).map(|i| (i as f32 * 0.7).sin()).collect();
        Tensor::<1>::from_floats(numbers.as_slice(), &device).reshape([1, len, 8])
    };
    (model, x)
}

fn scalings_by_length() -> [RotaryScaling; 2] {
    let (factor, original_max_seq_len, attention_factor) = (4.0, 4, None);
    let (short_factor, long_factor) = (vec![1.0, 1.5], vec![2.0, 9.0]);
    [
        RotaryScaling::Dynamic { factor, original_max_seq_len },
        RotaryScaling::LongRope { factor, original_max_seq_len, short_factor, long_factor, attention_factor },
    ]
}

#[test]
fn parts_are_the_whole_while_the_frequencies_last() {
    let device = Device::default();
    for scaling in scalings_by_length() {
        let lasts = matches!(scaling, RotaryScaling::LongRope { .. }); // Its second list is that of all longer texts.
        let (model, x) = stretched(scaling, &device);
        for parts in [vec![1, 3], vec![5, 1, 2]].into_iter().take(if lasts { 2 } else { 1 }) {
            let whole = parts.iter().sum();
            let expected = model.forward(x(whole), &SequenceInput::default(), &mut Pass::default());
            let (mut cache, mut start) = (model.cache(8), 0);
            for part in parts {
                let input = x(whole).narrow(1, start, part);
                let found = model.forward(input, &SequenceInput::default(), &mut Pass::cached(&mut cache));
                let expected = expected.clone().narrow(1, start, part).into_data();
                assert!(distance(&found.into_data(), &expected) < 1e-4, "{start}");
                start += part;
            }
        }
        // Beyond the length other frequencies turn what came before, too.
        let read = |len| model.forward(x(len), &SequenceInput::default(), &mut Pass::default());
        let [short, long] = [read(4), read(5).narrow(1, 0, 4)].map(Tensor::into_data);
        assert!(distance(&short, &long) > 1e-3);
    }
}

#[test]
#[should_panic(expected = "the rotary frequencies of 4 tokens, which are not those of 5: clear the cache")]
fn a_cache_does_not_outgrow_its_frequencies() {
    let device = Device::default();
    let [dynamic, _] = scalings_by_length();
    let (model, x) = stretched(dynamic, &device);
    let mut cache = model.cache(8);
    model.forward(x(4), &SequenceInput::default(), &mut Pass::cached(&mut cache));
    model.forward(x(1), &SequenceInput::default(), &mut Pass::cached(&mut cache));
}

#[test]
#[should_panic(expected = "the rotary frequencies of 6 tokens, which are not those of 4: clear the cache")]
fn a_truncated_cache_keeps_the_frequencies_of_the_longer_text() {
    let device = Device::default();
    let [_, longrope] = scalings_by_length();
    let (model, x) = stretched(longrope, &device);
    let mut cache = model.cache(8);
    model.forward(x(6), &SequenceInput::default(), &mut Pass::cached(&mut cache));
    cache.truncate(3);
    model.forward(x(1), &SequenceInput::default(), &mut Pass::cached(&mut cache));
}

#[test]
fn a_cleared_cache_takes_any_frequencies() {
    let device = Device::default();
    for scaling in scalings_by_length() {
        let (model, x) = stretched(scaling, &device);
        let mut cache = model.cache(8);
        for len in [6, 3] {
            model.forward(x(len), &SequenceInput::default(), &mut Pass::cached(&mut cache));
            if len == 6 { cache.truncate(0) } else { cache.clear() }
        }
        assert!(cache.is_empty());
    }
}

#[test]
fn each_dropout_drops_by_itself_and_in_training_alone() {
    let rates = |embedding: f64, residual: f64, attention: f64| {
        let config = TransformerConfig::new(8, 2, 2).with_embedding_dropout(embedding);
        config.with_residual_dropout(residual).with_attention_dropout(attention)
    };
    let inner = rates(0.0, 0.0, 0.0).with_feed_forward_dropout(0.5);
    for config in [rates(0.5, 0.0, 0.0), rates(0.0, 0.5, 0.0), rates(0.0, 0.0, 0.5), inner] {
        let (training, inference) = (Device::default().autodiff(), Device::default());
        let plain = output(&rates(0.0, 0.0, 0.0), &inference);
        assert!(distance(&output(&config, &training), &output(&config, &training)) > 1e-3, "{config:?}");
        assert!(distance(&output(&config, &inference), &plain) < 1e-4, "{config:?}");
    }
}

#[test]
fn the_base_stacks_are_counted_exactly() {
    // 6 + 6 layers of 512 / 2048, biases, without final norms as the original post-norm model.
    let device = Device::default();
    let count = |config: TransformerConfig| {
        let config = config.with_activation(Activation::Relu).with_position(PositionConfig::Sinusoidal);
        config.with_norm_placement(NormPlacement::Post).init(&device).num_params()
    };
    let encoder = count(TransformerConfig::encoder(512, 8, 6));
    let decoder = count(TransformerConfig::decoder(512, 8, 6));
    assert_eq!(encoder + decoder, 44_138_496);
}

/// A query sees itself and the keys at distances of 1 and 4.
#[derive(Debug)]
struct Comb;

impl MaskRule for Comb {
    fn hidden(&self, _row: usize, query: usize, key: usize) -> bool {
        key > query || ![0, 1, 4].contains(&(query - key))
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn max_lookback(&self) -> Option<usize> {
        Some(4)
    }
}

/// A causal stack of two layers, the second of which has the comb; and two rows of so many tokens for it.
fn combed(length: usize) -> (Transformer, Tensor<3>) {
    let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
    let config = TransformerConfig::new(8, 2, 2).with_position(PositionConfig::rotary()).with_init(wide);
    let numbers: Vec<f32> = (0..16 * length).map(|i| (i as f32 * 0.7).sin()).collect();
    let x = Tensor::<1>::from_floats(numbers.as_slice(), &Device::default()).reshape([2, length, 8]);
    let stack = config.init_with(&ParamBuilder::new(&Device::default(), 3));
    (stack.with_layer_rule(1, PairRule::custom(Comb)), x)
}

#[test]
fn a_rule_of_one_layer_masks_that_layer_and_leaves_the_other_its_own() {
    let (stack, x) = combed(9);
    let alone = |layer: usize, norm: Option<Norm>| {
        let patterns = vec![AttentionPattern::Full];
        let config = TransformerConfig::new(8, 2, 1).with_position(PositionConfig::rotary()).with_patterns(patterns);
        let mut alone = config.init_with(&ParamBuilder::new(&Device::default(), 0));
        (alone.blocks, alone.norm) = (vec![stack.blocks[layer].clone()], norm);
        alone
    };
    // Each layer as a stack that hides nothing, under the rule of the pass.
    let run = |stack: Transformer, x: Tensor<3>, rule: PairRule| {
        stack.forward(x, &SequenceInput::default().with_rule(rule), &mut Pass::default())
    };
    let expected = run(alone(0, None), x.clone(), PairRule::Causal);
    let expected = run(alone(1, stack.norm.clone()), expected, PairRule::custom(Comb));
    let mut trace = Trace::default();
    let found = stack.forward(x, &SequenceInput::default(), &mut Pass::default().with_trace(&mut trace));
    assert_close(&found, &expected, 1e-4);
    for (layer, trace) in trace.layers.into_iter().enumerate() {
        let weights = trace.attention.expect("the weights of a layer").into_data();
        for (pair, weight) in weights.iter::<f32>().enumerate() {
            let (query, key) = (pair / 9 % 9, pair % 9);
            let hidden = if layer == 0 { key > query } else { Comb.hidden(0, query, key) };
            assert_eq!(weight > 0.0, !hidden, "layer {layer}, query {query}, key {key}: {weight}");
        }
    }
}

#[test]
fn a_cache_keeps_what_the_rule_of_each_layer_sees() {
    let (stack, x) = combed(150);
    let whole = stack.forward(x.clone(), &SequenceInput::default(), &mut Pass::default());
    let (mut cache, mut outputs) = (stack.cache(150), Vec::new());
    let kept: Vec<_> = cache.states().map(|state| state.keeps()).collect();
    assert_eq!(kept, ["all tokens", "the last 4 tokens"]);
    for start in (0..150).step_by(10) {
        let x = x.clone().narrow(1, start, 10);
        outputs.push(stack.forward(x, &SequenceInput::default(), &mut Pass::cached(&mut cache)));
    }
    assert_close(&Tensor::cat(outputs, 1), &whole, 1e-4);
    let bytes: Vec<_> = cache.states().map(|state| state.bytes()).collect();
    assert!(bytes[1] < bytes[0], "{bytes:?}: the second layer has let go of what its rule hides");
}

#[test]
fn a_stack_is_causal_where_the_rules_of_all_layers_are() {
    let (stack, _) = combed(1);
    assert!(stack.is_causal());
    let stack = stack.with_layer_rule(0, PairRule::prefix_lm(&[2]));
    assert_eq!(stack.rule(0).grid(0, 3), "##.\n##.\n###\n");
    assert!(!stack.is_causal());
}

#[test]
#[should_panic(expected = "layer 2 has no place in a stack of 2 layers")]
fn a_rule_of_a_layer_that_is_not_there_panics() {
    combed(1).0.with_layer_rule(2, PairRule::Causal);
}
