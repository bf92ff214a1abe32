//! Position schemes against the code of `transformers`.

use burn::tensor::Tensor;
use firelight::core::{Alibi, Init, ParamBuilder, T5Bias};

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
