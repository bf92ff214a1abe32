//! Fused attention beside its reference: the kernels of the CPU, and the blocks of the GPU.

mod block_dropout;
mod in_blocks;
mod options;
mod visited;

use super::*;
use crate::assert_close;
use crate::rule::{KeyRanges, MaskRule, PairRule, RandomBlocks};
use crate::testing::{Case, alone, compare, random};
use burn::tensor::{Bool, DType, Device, Int, TensorData};
use std::ops::Range;

/// Sizes of a comparison, in the letters of the crate; `F` is the width of a value.
#[derive(Clone, Copy)]
struct Sizes {
    b: usize,
    h: usize,
    g: usize,
    q: usize,
    k: usize,
    e: usize,
    f: usize,
}

const SMALL: Sizes = Sizes { b: 2, h: 4, g: 2, q: 5, k: 7, e: 3, f: 2 };

/// Several tiles of queries and keys, none of them full at the end.
const TILED: Sizes = Sizes { b: 2, h: 2, g: 1, q: 130, k: 530, e: 8, f: 5 };

impl Sizes {
    /// Query, key and value with their heads side by side, as a projection leaves them.
    fn by_token(self, case: &Case) -> [Tensor<4>; 3] {
        let Self { b, h, g, q, k, e, f } = self;
        [random(case, [b, q, h, e], 0), random(case, [b, k, g, e], 1), random(case, [b, k, g, f], 2)]
    }

    fn by_head(self, case: &Case) -> [Tensor<4>; 3] {
        self.by_token(case).map(|x| x.swap_dims(1, 2))
    }

    /// All combinations of causal, padding, hidden, soft cap and window; the first row of the batch is all padding in some.
    /// The cap is a power of two, because Burn rounds one over a divisor to `f32` when it differentiates.
    fn options(self, case: &Case) -> Vec<AttentionOptions> {
        let device = case.device();
        let mask = |count: usize, hides: &dyn Fn(usize) -> bool| -> Tensor<1, Bool> {
            Tensor::from_bool((0..count).map(hides).collect::<Vec<_>>().as_slice(), &device)
        };
        let Self { b, h, q, k, .. } = self;
        let padding = || mask(b * k, &|i| i < k || i % 3 == 1).reshape([b, k]);
        let hidden = || mask(h * q * k, &|i| i % 5 == 2 || (i / k) % q == 1).reshape([1, h, q, k]);
        let all = (0..32).map(|bits: u32| {
            let has = |bit: u32| bits >> bit & 1 == 1;
            let parts = [
                has(0).then(AttentionMask::causal),
                has(1).then(padding).map(AttentionMask::padding),
                has(2).then(hidden).map(AttentionMask::from_hidden),
                has(4).then(|| AttentionMask::rule(PairRule::window(k / 3, k / 5))),
            ];
            let mask = parts.into_iter().flatten().fold(AttentionMask::none(), AttentionMask::and);
            AttentionOptions::default().with_mask(mask).with_soft_cap(has(3).then_some(2.0))
        });
        all.collect()
    }
}

/// A rule of single keys, others in every row.
#[derive(Debug)]
struct Thirds;

impl MaskRule for Thirds {
    fn hidden(&self, row: usize, query: usize, key: usize) -> bool {
        (query * key + row) % 3 == 1
    }
}

/// A query sees the first half of what stands before it: a range, the same in all rows.
#[derive(Debug)]
struct FirstHalf;

impl MaskRule for FirstHalf {
    fn hidden(&self, _row: usize, query: usize, key: usize) -> bool {
        key > query / 2
    }

    fn visible_keys(&self, _row: usize, query: usize, keys: Range<usize>) -> KeyRanges {
        let seen = keys.start..keys.end.min(query / 2 + 1);
        Some(seen).filter(|seen| !seen.is_empty()).into_iter().collect()
    }

    fn varies_by_row(&self) -> bool {
        false
    }

    fn is_causal(&self) -> bool {
        true
    }
}

impl Sizes {
    /// Chunks, documents that stand together or mixed, sparse rules, and some of them together, with and without causality.
    fn rules(self, case: &Case) -> Vec<AttentionOptions> {
        let Self { b, k, .. } = self;
        let documents = |name: fn(usize) -> i64| {
            let names: Vec<i64> = (0..b * k).map(name).collect();
            Tensor::<2, Int>::from_data(TensorData::new(names, [b, k]), &case.device())
        };
        let together = documents(|key| 7 - (key as f64).sqrt() as i64);
        let mixed = documents(|key| (key / 3 * 5 % 4) as i64 - 1);
        let blocks = RandomBlocks { count: 2, size: k.div_ceil(6), seed: 3 };
        let rules = [
            PairRule::Chunks { size: 3 },
            PairRule::Chunks { size: k / 2 + 1 },
            PairRule::Chunks { size: usize::MAX },
            PairRule::documents(&together),
            PairRule::documents(&together.narrow(0, b - 1, 1)),
            PairRule::documents(&mixed),
            PairRule::documents(&mixed).and(PairRule::Chunks { size: k / 2 + 1 }),
            PairRule::strided(k / 4 + 1),
            PairRule::local_global(k / 5, 2),
            PairRule::big_bird(k / 9, 1, blocks),
            PairRule::prefix_lm(&[k / 2]),
            PairRule::Prefix { lengths: (0..b).map(|row| row * k / 3).collect() },
            PairRule::custom(Thirds),
            PairRule::custom(FirstHalf),
        ];
        let causal = rules.clone().map(|rule| rule.and(PairRule::Causal));
        let options = |rule| AttentionOptions::default().with_mask(AttentionMask::rule(rule));
        rules.into_iter().chain(causal).map(options).collect()
    }
}

/// More queries than keys stand at no positions.
fn causal_where_it_can_be(sizes: Sizes) -> AttentionMask {
    if sizes.q > sizes.k { AttentionMask::none() } else { AttentionMask::causal() }
}

fn slow(query: Tensor<4>, key: Tensor<4>, value: Tensor<4>, options: &AttentionOptions) -> Tensor<4> {
    reference::mean(reference::weights(query, key, options), value)
}

fn case(dtype: DType, size: f64) -> Case {
    Case { dtype, size, ..Case::plain() }
}

/// A case on every device of this build that computes in blocks: the GPU if it is the default, and ndarray, which does so
/// in tests alone.
fn block_cases() -> Vec<Case> {
    let gpu = Case::on_gpu(&[1, 1]).into_iter().take(1);
    #[cfg(feature = "ndarray")]
    #[allow(deprecated)]
    let cpu = Some(Case { device: Device::ndarray(), ..case(DType::F64, 1.0) });
    #[cfg(not(feature = "ndarray"))]
    let cpu = None;
    let cases: Vec<Case> = gpu.chain(cpu).collect();
    assert!(!cases.is_empty(), "no device computes in blocks: build with ndarray, or name a GPU by BURN_DEVICE");
    cases
}

/// Compares blocks of as many scores as `rows` queries of all keys have with the reference.
fn compare_blocks<const N: usize>(
    case: &Case,
    sizes: Sizes,
    rows: usize,
    inputs: [Tensor<4>; N],
    options: &AttentionOptions,
) {
    let options = |bias: Option<Tensor<4>>| if N == 4 { options.clone().with_bias(bias) } else { options.clone() };
    let split = |inputs: [Tensor<4>; N]| {
        let mut inputs = inputs.into_iter();
        let mut next = || inputs.next().expect("query, key and value");
        ([next(), next(), next()], inputs.next())
    };
    let fused = |inputs| {
        let (tensors, bias) = split(inputs);
        let options = options(bias);
        let block = sizes.b * sizes.h * sizes.k * rows;
        let settings = extension::Settings { block, ..extension::Settings::new(&options, &tensors[0]) };
        extension::attention(tensors, &options, settings)
    };
    compare(case, inputs, fused, |inputs| {
        let ([q, k, v], bias) = split(inputs);
        slow(q, k, v, &options(bias))
    });
}

#[test]
fn every_set_of_options_equals_the_reference() {
    for case in Case::all(&[1, 1]).into_iter().step_by(2) {
        for options in SMALL.options(&case) {
            let fused = |[q, k, v]: [Tensor<4>; 3]| attention(q, k, v, &options);
            compare(&case, SMALL.by_head(&case), fused, |[q, k, v]| slow(q, k, v, &options));
        }
    }
}

#[test]
fn rules_equal_the_reference() {
    for sizes in [SMALL, TILED, Sizes { q: 1, k: 600, ..SMALL }, Sizes { b: 1, q: 300, k: 300, ..TILED }] {
        let case = case(if sizes.q < 100 { DType::F64 } else { DType::F32 }, 1.0);
        for options in sizes.rules(&case) {
            let fused = |[q, k, v]: [Tensor<4>; 3]| attention(q, k, v, &options);
            compare(&case, sizes.by_head(&case), fused, |[q, k, v]| slow(q, k, v, &options));
        }
    }
}

#[test]
fn keys_and_values_of_bf16_are_those_that_were_widened_first() {
    use crate::path::by_reference;
    let device = Device::flex();
    let padding = |b: usize, k: usize| {
        let flags: Vec<bool> = (0..b * k).map(|i| i < k && i % 3 == 1).collect();
        AttentionMask::padding(Tensor::<1, Bool>::from_bool(flags.as_slice(), &device).reshape([b, k]))
    };
    for sizes in [SMALL, TILED, Sizes { q: 1, k: 600, ..SMALL }, Sizes { q: 1, e: 1, f: 1, ..SMALL }] {
        let [q, k, v] = sizes.by_head(&Case::plain()).map(|x| x.inner());
        let [narrow_k, narrow_v] = [k, v].map(|x| x.cast(DType::BF16));
        let [wide_k, wide_v] = [&narrow_k, &narrow_v].map(|x| x.clone().cast(DType::F32));
        let masks =
            [AttentionMask::none(), causal_where_it_can_be(sizes), padding(sizes.b, sizes.k), AttentionMask::none()];
        for (mask, cap) in masks.into_iter().zip([None, None, None, Some(2.0)]) {
            let options = AttentionOptions::default().with_mask(mask).with_soft_cap(cap);
            let expected = attention(q.clone(), wide_k.clone(), wide_v.clone(), &options);
            let narrow = || attention(q.clone(), narrow_k.clone(), narrow_v.clone(), &options);
            assert_close(&narrow(), &expected, 1e-5);
            assert_close(&by_reference(narrow), &expected, 1e-5);
            let (output, weights) = attention_with_weights(q.clone(), narrow_k.clone(), narrow_v.clone(), &options);
            assert_close(&output, &expected, 1e-5);
            assert_eq!((output.dtype(), weights.dtype()), (DType::F32, DType::F32));
        }
    }
}

/// What a decoder of half precision reads, and a cache of `f16` beside a query of single precision. A result of `bf16` has 8 bits.
#[test]
fn queries_and_caches_of_half_precision_are_those_that_were_widened_first() {
    for (query, cached, tolerance) in [(DType::BF16, DType::BF16, 2e-2), (DType::F32, DType::F16, 1e-5)] {
        for sizes in [SMALL, TILED, Sizes { q: 1, k: 600, ..SMALL }] {
            let [q, k, v] = sizes.by_head(&Case::plain()).map(|x| x.inner());
            let (q, [k, v]) = (q.cast(query), [k, v].map(|x| x.cast(cached)));
            let [wide_q, wide_k, wide_v] = [&q, &k, &v].map(|x| x.clone().cast(DType::F32));
            let options = AttentionOptions::default().with_mask(causal_where_it_can_be(sizes));
            let expected = attention(wide_q, wide_k, wide_v, &options);
            assert_close(&attention(q, k, v, &options).cast(DType::F32), &expected, tolerance);
        }
    }
}

#[test]
fn documents_and_chunks_by_hand() {
    // Zero scores: the mean of the values of the own document, up to the own token where the future is hidden.
    let device = Device::flex();
    let x = Tensor::<4>::zeros([1, 1, 5, 2], &device);
    let value = Tensor::<1>::from_floats([1.0, 3.0, 10.0, 5.0, 20.0], &device).reshape([1, 1, 5, 1]);
    let documents = PairRule::documents(&Tensor::from_ints([[4, 4, -1, 4, -1]], &device));
    let chunks = PairRule::Chunks { size: 3 };
    // With the first key at position 1 the first chunk has two.
    let expected = [
        (documents.clone(), 0, [3f32, 3.0, 15.0, 3.0, 15.0]),
        (documents.and(PairRule::Causal), 0, [1.0, 2.0, 10.0, 3.0, 15.0]),
        (chunks.clone(), 1, [2.0, 2.0, 35.0 / 3.0, 35.0 / 3.0, 35.0 / 3.0]),
        (chunks.and(PairRule::Causal), 1, [1.0, 2.0, 10.0, 7.5, 35.0 / 3.0]),
    ];
    for (rule, start, expected) in expected {
        let options = AttentionOptions::default().with_mask(AttentionMask::rule(rule).starting_at(start));
        let output = attention(x.clone(), x.clone(), value.clone(), &options).reshape([5]).into_data();
        assert_close(&output, &TensorData::from(expected), 1e-5);
    }
}

#[test]
fn several_tiles_of_heads_side_by_side_equal_the_reference() {
    let case = case(DType::F32, 1.0);
    for options in TILED.options(&case) {
        let turn = |x: Tensor<4>| x.swap_dims(1, 2);
        let fused = |[q, k, v]: [Tensor<4>; 3]| turn(attention(turn(q), turn(k), turn(v), &options));
        let slow = |[q, k, v]: [Tensor<4>; 3]| turn(slow(turn(q), turn(k), turn(v), &options));
        compare(&case, TILED.by_token(&case), fused, slow);
    }
}

#[test]
fn a_bias_of_every_breadth_has_the_gradient_of_the_reference() {
    for sizes in [SMALL, Sizes { q: 70, k: 300, ..SMALL }] {
        for bits in 0..16usize {
            let case = case(DType::F64, 1.0);
            let whole = [sizes.b, sizes.h, sizes.q, sizes.k];
            let shape: [usize; 4] = std::array::from_fn(|d| if bits >> d & 1 == 1 { whole[d] } else { 1 });
            let [q, k, v] = sizes.by_head(&case);
            let options = sizes.options(&case).swap_remove(bits);
            let fused = |[q, k, v, b]: [Tensor<4>; 4]| attention(q, k, v, &options.clone().with_bias(Some(b)));
            let slow = |[q, k, v, b]: [Tensor<4>; 4]| slow(q, k, v, &options.clone().with_bias(Some(b)));
            compare(&case, [q, k, v, random(&case, shape, 3)], fused, slow);
        }
    }
}

#[test]
fn a_bias_by_distance_is_that_of_its_pairs() {
    for sizes in [SMALL, Sizes { q: 70, k: 600, ..SMALL }, Sizes { q: 1, ..SMALL }] {
        let case = case(DType::F64, 1.0);
        let Sizes { h, q, k, .. } = sizes;
        for (options, heads) in sizes.options(&case).into_iter().step_by(3).zip([h, 1].into_iter().cycle()) {
            let [query, key, value] = sizes.by_head(&case);
            let bias = random(&case, [1, 1, heads, q + k - 1], 3);
            let by_distance =
                |bias: Tensor<4>| options.clone().with_bias_by_distance(Some(bias.reshape([heads, q + k - 1])));
            let fused = |[q, k, v, b]: [Tensor<4>; 4]| attention(q, k, v, &by_distance(b));
            compare(&case, [query, key, value, bias], fused, |[q, k, v, b]| slow(q, k, v, &by_distance(b)));
        }
    }
}

#[test]
fn one_query_more_queries_than_keys_and_large_scores() {
    let few_keys = Sizes { q: 9, k: 4, ..SMALL };
    let cases = [(Sizes { q: 1, k: 1, ..SMALL }, 1.0), (Sizes { q: 1, k: 600, ..SMALL }, 1.0), (few_keys, 30.0)];
    for (sizes, size) in cases {
        let case = case(DType::F32, size);
        let options = AttentionOptions::default().with_mask(causal_where_it_can_be(sizes));
        let fused = |[q, k, v]: [Tensor<4>; 3]| attention(q, k, v, &options);
        compare(&case, sizes.by_head(&case), fused, |[q, k, v]| slow(q, k, v, &options));
    }
}

#[test]
fn dropped_weights_are_the_same_in_both_passes_whatever_else_is_asked_for() {
    let (case, sizes) = (case(DType::F64, 1.0), Sizes { q: 70, k: 300, ..SMALL });
    let Sizes { b, h, q, k, .. } = sizes;
    for plain in sizes.options(&case) {
        let options = plain.clone().with_dropout(0.3);
        let settings = extension::Settings { seed: 11, ..extension::Settings::new(&options, &sizes.by_head(&case)[0]) };
        let factors = TensorData::new(
            crate::flex::dropout::factors(settings.dropout, settings.seed, [b * h * q, k]),
            [b, h, q, k],
        );
        let factors = Tensor::<4>::from_data(factors, (&case.device(), case.dtype));
        let fused = |[q, k, v, bias]: [Tensor<4>; 4]| {
            extension::attention([q, k, v], &options.clone().with_bias(Some(bias)), settings.clone())
        };
        let slow = |[q, k, v, bias]: [Tensor<4>; 4]| {
            let weights = reference::weights(q, k, &plain.clone().with_bias(Some(bias)));
            reference::mean(weights * factors.clone(), v)
        };
        let [query, key, value] = sizes.by_head(&case);
        compare(&case, [query, key, value, random(&case, [1, h, q, k], 3)], fused, slow);
    }
}

#[test]
fn the_large_tiles_of_long_texts_equal_the_reference() {
    let (case, sizes) = (case(DType::F32, 1.0), Sizes { b: 1, h: 1, g: 1, q: 1100, k: 4097, e: 4, f: 3 });
    for rule in [PairRule::Causal, PairRule::window(700, 0), PairRule::window(90, 800)] {
        let options = AttentionOptions::default().with_mask(AttentionMask::rule(rule));
        let fused = |[q, k, v]: [Tensor<4>; 3]| attention(q, k, v, &options);
        compare(&case, sizes.by_head(&case), fused, |[q, k, v]| slow(q, k, v, &options));
    }
}

#[test]
#[cfg_attr(not(feature = "cube"), ignore = "needs a GPU: cargo xtask test --device wgpu")]
fn blocks_of_half_precision_are_near_the_reference_of_single_precision() {
    for case in Case::gpu_in_half_precision(&[1, 1]).into_iter().take(1) {
        let options = AttentionOptions::default().with_mask(AttentionMask::causal()).with_soft_cap(Some(2.0));
        let [q, k, v] = SMALL.by_head(&case).map(|x| x.cast(DType::F16));
        let found = attention(q.clone(), k.clone(), v.clone(), &options).cast(DType::F32);
        let [q, k, v] = [q, k, v].map(|x| x.cast(DType::F32));
        assert_close(&found, &slow(q, k, v, &options), 5e-3);
    }
}

#[test]
fn the_seed_of_the_device_decides_what_is_dropped() {
    alone(|| {
        let case = case(DType::F32, 1.0);
        let run = |seed: u64| {
            case.device().seed(seed);
            let [q, k, v] = SMALL.by_head(&case);
            attention(q, k, v, &AttentionOptions::default().with_dropout(0.5)).into_data()
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    });
}

/// Every set of options and every rule, with sinks that are smaller than any score, like them, and larger than all.
#[test]
fn sinks_equal_the_reference_in_tiles_and_in_blocks() {
    let sinks = |case: &Case, sizes: Sizes, shift: f64| random(case, [1, 1, 1, sizes.h], 3) + shift;
    let with = |options: &AttentionOptions, sinks: Tensor<4>| options.clone().with_sinks(Some(sinks.reshape([-1])));
    for sizes in [SMALL, TILED] {
        let case = case(if sizes.q < 100 { DType::F64 } else { DType::F32 }, 1.0);
        let shifts = [0.0, -20.0, 20.0].into_iter().cycle();
        for (options, shift) in sizes.options(&case).iter().step_by(3).chain(&sizes.rules(&case)).zip(shifts) {
            let [q, k, v] = sizes.by_head(&case);
            let fused = |[q, k, v, s]: [Tensor<4>; 4]| attention(q, k, v, &with(options, s));
            let slow = |[q, k, v, s]: [Tensor<4>; 4]| slow(q, k, v, &with(options, s));
            compare(&case, [q, k, v, sinks(&case, sizes, shift)], fused, slow);
        }
    }
    for case in block_cases() {
        let all: Vec<_> = SMALL.options(&case).into_iter().chain(SMALL.rules(&case)).collect();
        for (options, shift) in case.some(all.iter().zip([0.0, -20.0, 20.0].into_iter().cycle())) {
            let [q, k, v] = SMALL.by_head(&case);
            let fused = |[q, k, v, s]: [Tensor<4>; 4]| {
                let (options, block) = (with(options, s), SMALL.b * SMALL.h * SMALL.k * 2);
                let settings = extension::Settings { block, ..extension::Settings::new(&options, &q) };
                extension::attention([q, k, v], &options, settings)
            };
            let slow = |[q, k, v, s]: [Tensor<4>; 4]| slow(q, k, v, &with(options, s));
            compare(&case, [q, k, v, sinks(&case, SMALL, shift)], fused, slow);
        }
    }
}

#[test]
fn a_sink_is_a_key_that_everybody_sees_with_a_score_of_its_own_and_no_value() {
    // Queries and keys have one channel more, which is one for the sink's key alone.
    let case = case(DType::F64, 1.0);
    let Sizes { b, h, g, q, k, f, .. } = SMALL;
    let [query, key, value] = SMALL.by_head(&case);
    let sinks = random(&case, [h], 3);
    let options = AttentionOptions::default().with_scale(Some(1.0));
    let found = attention(query.clone(), key.clone(), value.clone(), &options.clone().with_sinks(Some(sinks.clone())));
    let ones = |shape: [usize; 4]| query.ones_like().sum().reshape([1, 1, 1, 1]).ones_like().expand(shape);
    let wide_query = Tensor::cat(vec![query.clone(), ones([b, h, q, 1]) * sinks.reshape([1, h, 1, 1])], 3);
    let wide_key = Tensor::cat(vec![key.clone(), ones([b, g, k, 1]) * 0.0], 3);
    let sink = Tensor::cat(vec![key.narrow(2, 0, 1) * 0.0, ones([b, g, 1, 1])], 3);
    let (wide_key, values) = (Tensor::cat(vec![wide_key, sink], 2), vec![value, ones([b, g, 1, f]) * 0.0]);
    let expected = attention(wide_query, wide_key, Tensor::cat(values, 2), &options);
    assert_close(&found, &expected, 1e-12);
}
