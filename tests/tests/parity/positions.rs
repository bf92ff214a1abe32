//! Position schemes against PyTorch and the code of `transformers`: their numbers, and stacks with them.

use burn::tensor::Tensor;
use firelight::nn::{
    Activation, Alibi, Init, ParamBuilder, Pass, PositionConfig, PositionScheme, Positions, Rotary, RotaryConfig,
    RotaryLayout, RotaryScaling, ScoreScale, SequenceInput, Sinusoidal, T5Bias, TransformerConfig,
};

use firelight::kernels::assert_close;

use crate::support::device;
use crate::support::golden::Golden;

#[test]
fn rotary_agrees() {
    for (prefix, layout) in [("halves.", RotaryLayout::Halves), ("interleaved.", RotaryLayout::Interleaved)] {
        let golden = Golden::load("rotary").part(prefix);
        let x = golden.input::<4>("x", &device());
        let positions = Positions::PerRow { index: golden.ints("positions", &x.device()), bound: usize::MAX };
        let rotation = Rotary::new(8, 10_000.0, layout).rotation(&positions, &x.device()).expect("a rotation");
        let output = rotation.apply(x.clone());
        golden.check("output", output.clone());
        golden.check_gradient("x", &x, &golden.backward(output));
    }
}

#[test]
fn sinusoidal_agrees() {
    let golden = Golden::load("sinusoidal");
    let table = |start, len| -> Tensor<2> {
        Sinusoidal::new(8).table(&Positions::contiguous(start, len), &device()).squeeze_dim(0)
    };
    golden.check("table", table(0, 12));
    golden.check("offset_table", table(golden.number("offset") as usize, 5));
}

#[test]
fn alibi_slopes_agree() {
    let golden = Golden::load("relative_positions");
    for heads in [4, 6, 12] {
        let slopes = Tensor::<1>::from_floats(Alibi::new(heads).slopes().as_slice(), &device());
        golden.check(&format!("slopes.{heads}"), slopes);
    }
}

#[test]
fn relative_position_buckets_agree() {
    let golden = Golden::load("relative_positions");
    let numbers = |key: &str| golden.data(key).iter::<i64>().collect::<Vec<_>>();
    for (key, bidirectional) in [("causal", false), ("bidirectional", true)] {
        let scheme = T5Bias::new([32, 4], 128, bidirectional, Init::Zeros, &ParamBuilder::new(&device(), 0));
        assert!(numbers("distances").len() > 32, "more distances than buckets");
        let buckets: Vec<i64> = numbers("distances").into_iter().map(|d| scheme.bucket(d) as i64).collect();
        assert_eq!(buckets, numbers(key), "{key}");
    }
}

#[test]
fn stretched_frequencies_agree() {
    let golden = Golden::load("rotary_scaling");
    let dynamic = RotaryScaling::Dynamic { factor: 4.0, original_max_seq_len: 512 };
    let longrope = RotaryScaling::LongRope {
        factor: 4.0,
        original_max_seq_len: 512,
        short_factor: (0..16).map(|i| 1.0 + 0.25 * f64::from(i)).collect(),
        long_factor: (0..16).map(|i| 1.0 + f64::from(i)).collect(),
        attention_factor: None,
    };
    let llama3 =
        RotaryScaling::Llama3 { factor: 8.0, original_max_seq_len: 512, low_freq_factor: 1.0, high_freq_factor: 4.0 };
    let yarn = |truncate, attention_factor| RotaryScaling::Yarn {
        factor: 4.0,
        original_max_seq_len: 512,
        beta_fast: 32.0,
        beta_slow: 1.0,
        truncate,
        attention_factor: Some(attention_factor),
    };
    for (name, scaling, width, len) in [
        ("linear", RotaryScaling::Linear { factor: 4.0 }, 32, 1),
        ("dynamic", RotaryScaling::Ntk { factor: 5.0 }, 32, 1),
        ("dynamic", dynamic, 32, 1024),
        ("yarn", RotaryScaling::yarn(4.0, 512), 32, 1),
        ("llama3", llama3, 32, 1),
        ("partial_yarn", RotaryScaling::yarn(4.0, 512), 16, 1),
        ("given_yarn", yarn(false, 1.3), 32, 1),
        ("mscale_yarn", yarn(true, RotaryScaling::mscale(4.0, 0.9) / RotaryScaling::mscale(4.0, 0.4)), 32, 1),
        ("short_longrope", longrope.clone(), 32, 512),
        ("long_longrope", longrope, 32, 513),
    ] {
        let rotary = Rotary::new(width, 10_000.0, RotaryLayout::Halves).with_scaling(scaling);
        let numbers = |numbers: Vec<f64>| {
            let numbers: Vec<f32> = numbers.into_iter().map(|number| number as f32).collect();
            Tensor::<1>::from_floats(numbers.as_slice(), &device())
        };
        // One by one: the slow frequencies must not hide behind the fast ones.
        let (found, expected) =
            (numbers(rotary.frequencies(len)), golden.floats::<1>(&format!("{name}.frequencies"), &device()));
        assert_eq!(expected.dims(), [width / 2], "{name}");
        assert_close(&(found / expected.clone()), &expected.ones_like(), 1e-5);
        golden.check(&format!("{name}.attention_factor"), numbers(vec![rotary.attention_factor()]));
    }
}

#[test]
fn stacks_with_positions_agree() {
    let t5 = |bidirectional| PositionConfig::T5 { n_buckets: 8, max_distance: 5, bidirectional };
    let shaw = || PositionConfig::Shaw { max_distance: 3 };
    let partial = |layout| PositionConfig::Rotary(RotaryConfig::default().with_layout(layout).with_width(4));
    let stacks = [
        TransformerConfig::new(12, 3, 1).with_position(PositionConfig::Alibi),
        TransformerConfig::new(8, 2, 2).with_position(t5(false)),
        TransformerConfig::encoder(8, 2, 2).with_position(t5(true)),
        TransformerConfig::new(8, 2, 2).with_position(shaw()),
        TransformerConfig::encoder(8, 2, 2).with_position(shaw()),
        TransformerConfig::encoder(8, 2, 1).with_position(PositionConfig::SinusoidalHalves),
        TransformerConfig::new(16, 2, 1).with_position(partial(RotaryLayout::Halves)),
        TransformerConfig::new(16, 2, 1).with_position(partial(RotaryLayout::Interleaved)),
        TransformerConfig::new(8, 2, 1).with_position(shaw()).with_attention_scale(ScoreScale::None),
    ];
    let golden = Golden::load("position_stacks");
    assert_eq!(golden.cases().count(), stacks.len());
    for (golden, config) in golden.cases().zip(stacks) {
        let x = golden.input::<3>("x", &device());
        let d_ff = config.d_model;
        let stack = golden.fill(config.with_d_ff(d_ff).with_activation(Activation::Gelu).init(&x.device()));
        let output = stack.forward(x.clone(), &SequenceInput::default(), &mut Pass::default());
        golden.agrees(output, [("x", &x)], &stack);
    }
}
