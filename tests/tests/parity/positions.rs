//! Position schemes against the code of `transformers`.

use burn::tensor::Tensor;
use firelight::core::{Alibi, Init, ParamBuilder, Rotary, RotaryLayout, RotaryScaling, T5Bias};

use crate::support::device;
use crate::support::golden::Golden;

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
        let buckets: Vec<i64> = numbers("distances").into_iter().map(|d| scheme.bucket(d) as i64).collect();
        assert_eq!(buckets, numbers(key), "{key}");
    }
}

#[test]
fn stretched_frequencies_agree() {
    let golden = Golden::load("rotary_scaling");
    let llama3 =
        RotaryScaling::Llama3 { factor: 8.0, original_max_seq_len: 512, low_freq_factor: 1.0, high_freq_factor: 4.0 };
    for (name, scaling, width) in [
        ("linear", RotaryScaling::Linear { factor: 4.0 }, 32),
        ("dynamic", RotaryScaling::Ntk { factor: 5.0 }, 32),
        ("yarn", RotaryScaling::yarn(4.0, 512), 32),
        ("llama3", llama3, 32),
        ("partial_yarn", RotaryScaling::yarn(4.0, 512), 16),
    ] {
        let rotary = Rotary::new(width, 10_000.0, RotaryLayout::Halves).with_scaling(scaling);
        let numbers = |numbers: Vec<f64>| {
            let numbers: Vec<f32> = numbers.into_iter().map(|number| number as f32).collect();
            Tensor::<1>::from_floats(numbers.as_slice(), &device())
        };
        // One by one: the slow frequencies must not hide behind the fast ones.
        let (found, expected) =
            (numbers(rotary.frequencies()), golden.floats::<1>(&format!("{name}.frequencies"), &device()));
        assert_eq!(found.dims(), expected.dims(), "{name}");
        let difference = (found / expected - 1.0).abs().max().into_scalar::<f64>();
        assert!(difference <= 1e-5, "{name}: {difference:e}");
        golden.check(&format!("{name}.attention_factor"), numbers(vec![rotary.attention_factor()]));
    }
}
