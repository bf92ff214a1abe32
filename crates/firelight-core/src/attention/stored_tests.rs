//! Keys and values that are stored as numbers of a type of their own.

use super::KeyValues;
use super::stored::Stored;
use crate::state::{CacheType, Compression, State};
use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};
use firelight_kernels::{assert_close, assert_same_bits, cast};
use proptest::prelude::*;

/// Those that the device can hold.
fn types() -> Vec<CacheType> {
    let device = Device::default();
    let can = |cache_type: &CacheType| cache_type.float().is_none_or(|dtype| device.supports_dtype(dtype));
    [CacheType::F32, CacheType::Bf16, CacheType::Q8_0].into_iter().filter(can).collect()
}

/// One with blocks of 32, and one with a scale a row.
const WIDTHS: [usize; 2] = [64, 6];

fn typed(max_lookback: Option<usize>, cache_type: CacheType) -> KeyValues {
    let mut state = KeyValues::new(max_lookback, 10_000);
    assert!(state.store_as(cache_type));
    state
}

/// `[rows, 2, length, width]`: the tokens from `start` on.
fn tokens(rows: usize, start: usize, [length, width]: [usize; 2]) -> Tensor<4> {
    let number = |place: usize| {
        let (head, token, channel) = (place / (length * width), start + place / width % length, place % width);
        ((head * 7 + token * 13 + channel * 29) as f32 * 0.37).sin() * (1 + token % 5) as f32
    };
    let numbers: Vec<f32> = (0..rows * 2 * length * width).map(number).collect();
    Tensor::from_data(TensorData::new(numbers, [rows, 2, length, width]), &Device::default())
}

/// What is read of numbers that were stored so.
fn rounded(x: Tensor<4>, cache_type: CacheType) -> Tensor<4> {
    cast(Stored::of(x, cache_type).floats(), FloatDType::F32)
}

/// A state, and a plain one that is given what the other stores.
struct Pair {
    typed: KeyValues,
    plain: KeyValues,
    cache_type: CacheType,
    width: usize,
    rows: usize,
}

impl Pair {
    fn new(max_lookback: Option<usize>, cache_type: CacheType, width: usize) -> Self {
        let plain = KeyValues::new(max_lookback, 10_000);
        Self { typed: typed(max_lookback, cache_type), plain, cache_type, width, rows: 1 }
    }

    /// Reads tokens into both, and compares what their queries see.
    fn append(&mut self, length: usize) {
        let key = tokens(self.rows, self.typed.len(), [length, self.width]);
        let value = key.clone() * -1.7;
        let [rounded_key, rounded_value] = [&key, &value].map(|x| rounded(x.clone(), self.cache_type));
        let expected = self.plain.append(rounded_key, rounded_value);
        let found = self.typed.append(key, value);
        assert_same_bits(&found.0, &expected.0);
        assert_same_bits(&found.1, &expected.1);
    }

    fn truncate(&mut self, len: usize) {
        assert_eq!(self.typed.can_truncate(len), self.plain.can_truncate(len));
        if self.typed.can_truncate(len) {
            [&mut self.typed, &mut self.plain].into_iter().for_each(|state| state.truncate(len));
        }
    }

    fn select(&mut self, rows: &[i32]) {
        let chosen = Tensor::<1, Int>::from_ints(rows, &Device::default());
        [&mut self.typed, &mut self.plain].into_iter().for_each(|state| state.select_rows(&chosen));
        self.rows = rows.len();
    }

    fn join(&mut self, other: Self) {
        self.typed.join(other.typed.boxed());
        self.plain.join(other.plain.boxed());
        self.rows += other.rows;
    }
}

#[test]
fn rounding_by_hand() {
    let row = |numbers: [f32; 3]| Tensor::<1>::from_floats(numbers, &Device::default()).reshape([1, 1, 1, 3]);
    let read = |cache_type| {
        let (keys, values) = typed(None, cache_type).append(row([254.0, 5.25, -0.9]), row([1.0, 1.003, 1.005]));
        [keys, values].map(|x| x.try_to_vec_as::<f32>().expect("a host copy"))
    };
    if types().contains(&CacheType::Bf16) {
        // Numbers of bf16 from 1 to 2 are 2⁻⁷ = 0.0078125 apart.
        let [keys, values] = read(CacheType::Bf16);
        assert_eq!((keys[0], keys[1]), (254.0, 5.25));
        assert_eq!(values, [1.0, 1.0, 1.007_812_5]);
    }
    // The scale is 254 / 127 = 2: the codes of 5.25 / 2 = 2.625 and -0.9 / 2 = -0.45 are 3 and 0.
    let [keys, _] = read(CacheType::Q8_0);
    assert_close(&keys, &[254.0, 6.0, 0.0], 1e-5);
    assert_eq!(read(CacheType::F32)[1], [1.0, 1.003, 1.005]);
}

#[test]
fn what_is_read_has_the_type_of_what_was_computed() {
    for cache_type in types() {
        for dtype in [FloatDType::F32, FloatDType::BF16] {
            let device = Device::default();
            if !device.supports_dtype(dtype) {
                continue;
            }
            let mut state = typed(None, cache_type);
            let x = tokens(1, 0, [3, 64]).cast(dtype);
            let (keys, _) = state.append(x.clone(), x);
            assert_eq!(keys.dtype(), DType::from(dtype));
        }
    }
}

#[test]
fn memory_is_a_half_and_nine_thirty_seconds() {
    let bytes = |cache_type| {
        let (mut state, x) = (typed(None, cache_type), tokens(2, 0, [40, 64]));
        state.append(x.clone(), x);
        state.bytes()
    };
    let full = 2 * 4 * 2 * 2 * 48 * 64; // Keys and values, rows and heads, and room for 48 tokens.
    for cache_type in types() {
        let share = match cache_type {
            CacheType::Q8_0 => full * 9 / 32,
            CacheType::Bf16 => full / 2,
            _ => full,
        };
        assert_eq!(bytes(cache_type), share, "{cache_type}");
    }
}

#[test]
fn steps_chunks_and_one_pass_remember_the_same() {
    for cache_type in types() {
        for (max_lookback, width) in [(None, WIDTHS[0]), (None, WIDTHS[1]), (Some(20), WIDTHS[0])] {
            let read = |part: usize| {
                let mut state = typed(max_lookback, cache_type);
                for start in (0..240).step_by(part) {
                    let x = tokens(1, start, [part, width]);
                    state.append(x.clone(), x);
                }
                let last = tokens(1, 240, [1, width]);
                state.append(last.clone(), last).0
            };
            let expected = read(1);
            [8, 60, 240].into_iter().for_each(|part| assert_same_bits(&read(part), &expected));
        }
    }
}

#[test]
fn a_cleared_state_serves_another_batch() {
    for cache_type in types() {
        let mut pair = Pair::new(None, cache_type, 64);
        pair.append(20);
        pair.truncate(0);
        pair.rows = 3;
        pair.append(5);
        pair.append(1);
    }
}

#[test]
fn a_compressed_past_has_no_type_and_a_type_no_compressed_past() {
    let compression = Compression { recent: 4, rate: 2 };
    let mut state = KeyValues::new(None, 100);
    assert!(state.compress(compression) && !state.store_as(CacheType::Bf16));
    assert_eq!(state.keeps(), "the last 4 tokens and the mean of every 2 before them");
    let mut state = typed(None, CacheType::Q8_0);
    assert!(!state.compress(compression));
    assert_eq!(state.keeps(), "all tokens in q8_0");
}

#[test]
#[should_panic(expected = "a cache of type bf16 cannot be joined by one of type q8_0: make both with one type")]
fn states_of_two_types_do_not_join() {
    typed(None, CacheType::Bf16).join(typed(None, CacheType::Q8_0).boxed());
}

#[test]
#[should_panic(expected = "1 tokens are stored as computed: take an empty cache")]
fn what_was_read_is_not_stored_anew() {
    let mut state = KeyValues::new(None, 100);
    state.append(tokens(1, 0, [1, 4]), tokens(1, 0, [1, 4]));
    state.store_as(CacheType::Bf16);
}

#[derive(Debug, Clone)]
enum Step {
    Append(usize),
    /// Back to so many hundredths of what was read.
    Truncate(usize),
    Reorder,
    Repeat,
    Join(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop_oneof![Just(1usize), 1usize..40, Just(170)].prop_map(Step::Append),
        1 => (0usize..100).prop_map(Step::Truncate),
        1 => Just(Step::Reorder),
        1 => Just(Step::Repeat),
        1 => (1usize..60).prop_map(Step::Join),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever happens to a state, its queries see what they would of a plain one that was given rounded numbers.
    #[test]
    fn a_typed_state_is_a_plain_one_of_rounded_numbers(
        steps in prop::collection::vec(step(), 1..7),
        kind in 0usize..3,
        width in 0usize..2,
        rolls in any::<bool>(),
    ) {
        let (cache_type, width, max_lookback) = (types()[kind % types().len()], WIDTHS[width], rolls.then_some(30));
        let mut pair = Pair::new(max_lookback, cache_type, width);
        pair.append(3);
        for step in steps {
            match step {
                Step::Append(length) => pair.append(length),
                Step::Truncate(hundredths) => pair.truncate(pair.typed.len() * hundredths / 100),
                Step::Reorder if pair.rows > 1 => pair.select(&[1, 0]),
                Step::Repeat if pair.rows < 3 => pair.select(&[0, 0]),
                Step::Join(length) if pair.rows < 3 && !pair.typed.is_empty() => {
                    let mut other = Pair::new(max_lookback, cache_type, width);
                    other.append(length);
                    pair.join(other);
                }
                _ => {}
            }
        }
        pair.append(1);
    }
}
