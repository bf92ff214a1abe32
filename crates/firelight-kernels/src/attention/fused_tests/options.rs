//! Options of attention together: every pair of them, and any of them at any length.

use super::*;

/// The options of attention, one by one; the two biases and the sinks are given.
const CHOICES: usize = 11;

/// Those options whose bits are set.
fn chosen(bits: u32, sizes: Sizes, case: &Case, [bias, by_distance, sinks]: [Tensor<4>; 3]) -> AttentionOptions {
    let has = |bit: u32| bits >> bit & 1 == 1;
    let given = sizes.options(case).swap_remove(6).mask;
    let documents = sizes.rules(case).swap_remove(5).mask;
    let [heads, columns] = [by_distance.dims()[2], by_distance.dims()[3]];
    let parts = [
        has(0).then(AttentionMask::causal),
        given.padding.filter(|_| has(1)).map(AttentionMask::padding),
        given.hidden.filter(|_| has(2)).map(AttentionMask::from_hidden),
        has(4).then(|| AttentionMask::rule(PairRule::window(sizes.k / 3, sizes.k))),
        has(5).then(|| AttentionMask::rule(PairRule::Chunks { size: sizes.k / 2 + 1 })),
        has(6).then_some(documents),
    ];
    AttentionOptions::default()
        .with_mask(parts.into_iter().flatten().fold(AttentionMask::none(), AttentionMask::and))
        .with_soft_cap(has(3).then_some(2.0))
        .with_scale(has(7).then_some(0.3))
        .with_bias(has(8).then_some(bias))
        .with_bias_by_distance(has(9).then(|| by_distance.reshape([heads, columns])))
        .with_sinks(has(10).then(|| sinks.reshape([-1])))
}

/// Query, key, value, the two biases and the sinks.
fn all_inputs(sizes: Sizes, case: &Case) -> [Tensor<4>; 6] {
    let Sizes { h, q, k, .. } = sizes;
    let [query, key, value] = sizes.by_head(case);
    let others = [[1, h, q, k], [1, 1, h, q + k - 1], [1, 1, 1, h]];
    let [bias, by_distance, sinks] = [0, 1, 2].map(|index| random(case, others[index], 3 + index as u64));
    [query, key, value, bias, by_distance, sinks]
}

/// Attention that has a gradient, if one of zeros, in biases and sinks that are not chosen too.
fn with_all<const R: usize>(output: Tensor<R>, others: &[Tensor<4>; 3]) -> Tensor<R> {
    let unused = others.iter().map(|tensor| tensor.clone().sum() * 0.0).reduce(|a, b| a + b).expect("three");
    output + unused.unsqueeze()
}

#[test]
fn every_pair_of_options_equals_the_reference_with_dropout_and_without() {
    let case = case(DType::F64, 1.0);
    for sizes in [SMALL, Sizes { b: 1, h: 2, g: 1, q: 70, k: 300, ..SMALL }] {
        let Sizes { b, h, q, k, .. } = sizes;
        let pairs = (0..CHOICES).flat_map(|a| (0..a).map(move |b| 1u32 << a | 1 << b));
        for (number, bits) in pairs.chain([(1 << CHOICES) - 1]).enumerate() {
            let rate = if number % 2 == 0 && k > 7 { 0.0 } else { 0.3 };
            let plain = |others: &[Tensor<4>; 3]| chosen(bits, sizes, &case, others.clone());
            let settings = extension::Settings {
                seed: 11,
                ..extension::Settings::new(&AttentionOptions::default().with_dropout(rate), &sizes.by_head(&case)[0])
            };
            let factors = match rate {
                0.0 => vec![1.0; b * h * q * k],
                _ => crate::flex::dropout::factors(settings.dropout, settings.seed, [b * h * q, k]),
            };
            let factors = Tensor::<4>::from_data(TensorData::new(factors, [b, h, q, k]), (&case.device(), case.dtype));
            let fused = |[query, key, value, bias, by_distance, sinks]: [Tensor<4>; 6]| {
                let others = [bias, by_distance, sinks];
                let options = plain(&others).with_dropout(rate);
                let settings = extension::Settings { seed: 11, ..extension::Settings::new(&options, &query) };
                with_all(extension::attention([query, key, value], &options, settings), &others)
            };
            let slow = |[query, key, value, bias, by_distance, sinks]: [Tensor<4>; 6]| {
                let others = [bias, by_distance, sinks];
                let weights = reference::weights(query, key, &plain(&others));
                with_all(reference::mean(weights * factors.clone(), value), &others)
            };
            compare(&case, all_inputs(sizes, &case), fused, slow);
        }
    }
}

mod any_lengths {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn from_one_key_to_4097_equal_the_reference(
            bits in 0u32..1 << CHOICES,
            queries in 1usize..24,
            keys in prop_oneof![1usize..4098, prop::sample::select(vec![1usize, 63, 64, 65, 255, 256, 257, 511, 512, 513, 4097])],
            heads in prop::sample::select(vec![(1usize, 1usize), (2, 1), (3, 3)]),
        ) {
            let sizes = Sizes { b: 2, h: heads.0, g: heads.1, q: queries, k: keys, e: 5, f: 3 };
            // Queries of a rule stand among the keys.
            let bits = if queries > keys { bits & !0b111_0001 } else { bits };
            // Where one key has all the weight, the gradient of its score is the difference of two equal sums of numbers of
            // about one, which single precision rounds in another order than the reference.
            let single = Case { smallest: 1.0, ..case(DType::F32, 1.0) };
            for case in [case(DType::F64, 1.0), single] {
                let of = |others: &[Tensor<4>; 3]| chosen(bits, sizes, &case, others.clone());
                let fused = |[q, k, v, bias, by_distance, sinks]: [Tensor<4>; 6]| {
                    let others = [bias, by_distance, sinks];
                    with_all(attention(q, k, v, &of(&others)), &others)
                };
                let slow = |[q, k, v, bias, by_distance, sinks]: [Tensor<4>; 6]| {
                    let others = [bias, by_distance, sinks];
                    with_all(slow(q, k, v, &of(&others)), &others)
                };
                compare(&case, all_inputs(sizes, &case), fused, slow);
            }
        }
    }
}
