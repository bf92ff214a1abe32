//! Numbers in blocks of few bits, as files of GGUF have them.

mod chunk;
mod encode;
#[cfg(test)]
mod golden;
mod search;

#[cfg(feature = "flex")]
pub(crate) use chunk::GROUP;
pub(crate) use chunk::{CHUNK, Chunk};

use std::fmt;

/// Chunks that pay for another thread.
const STRETCH: usize = 64;

/// The magnitude that numbers in blocks stay below: twice as large ones have no scale in half precision in every format.
const LIMIT: f32 = 262_144.0;

/// A format of numbers in blocks of few bits, with the layout that files of GGUF have. A row of a matrix is a whole number of blocks.
///
/// | format | numbers | bytes | bits a number | a number is |
/// |---|---|---|---|---|
/// | `Q8_0` | 32 | 34 | 8.5 | `d q`, with `q` from -127 to 127 |
/// | `Q4_0` | 32 | 18 | 4.5 | `d q`, with `q` from -8 to 7 |
/// | `Q4K` | 256 | 144 | 4.5 | `d s q - e m`, with `q` from 0 to 15, and `s` and `m` from 0 to 63 for every 32 numbers |
/// | `Q6K` | 256 | 210 | 6.5625 | `d s q`, with `q` from -32 to 31 and `s` from -128 to 127 for every 16 numbers |
///
/// `d` and `e` are of half precision, one for each block.
///
/// ```
/// use firelight_kernels::BlockFormat;
///
/// let numbers: Vec<f32> = (0..32).map(|i| i as f32 - 8.0).collect();
/// let mut blocks = [0; 34];
/// BlockFormat::Q8_0.quantize(&numbers, None, &mut blocks);
/// let mut read = [0.0; 32];
/// BlockFormat::Q8_0.dequantize(&blocks, &mut read);
/// assert!(numbers.iter().zip(read).all(|(x, read)| (x - read).abs() < 23.0 / 127.0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockFormat {
    /// Eight bits, a scale for every 32 numbers.
    Q8_0,
    /// Four bits, a scale for every 32 numbers.
    Q4_0,
    /// Four bits, a scale and a minimum for every 32 numbers.
    Q4K,
    /// Six bits, a scale for every 16 numbers.
    Q6K,
}

impl BlockFormat {
    /// Every format.
    pub const ALL: [Self; 4] = [Self::Q8_0, Self::Q4_0, Self::Q4K, Self::Q6K];

    /// The name in the field: `q8_0`, `q4_0`, `q4_k` or `q6_k`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
            Self::Q4K => "q4_k",
            Self::Q6K => "q6_k",
        }
    }

    /// The format of a name, in upper or lower case.
    ///
    /// ```
    /// use firelight_kernels::BlockFormat;
    ///
    /// assert_eq!(BlockFormat::from_name("Q4_K"), Some(BlockFormat::Q4K));
    /// assert_eq!(BlockFormat::from_name("q3"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(name))
    }

    /// The blocks of embeddings and heads beside layers of this format: with `Q4K` those of `Q6K`, as llama.cpp's mixes of `q4_k` have it for the
    /// head (<https://github.com/ggml-org/llama.cpp>, `src/llama-quant.cpp`), because no later layer makes up for an error of a logit. Differs
    /// in that an untied embedding is in `Q6K` as well, and that all layers are in `Q4K`.
    pub fn of_ends(self) -> Self {
        if self == Self::Q4K { Self::Q6K } else { self }
    }

    /// Numbers of a block.
    pub fn numbers(self) -> usize {
        match self {
            Self::Q8_0 | Self::Q4_0 => 32,
            Self::Q4K | Self::Q6K => 256,
        }
    }

    /// Bytes of a block.
    pub fn bytes(self) -> usize {
        match self {
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4K => 144,
            Self::Q6K => 210,
        }
    }

    /// Bytes of a row of `width` numbers; `None` if these are no whole number of blocks, or their bytes more than can be counted.
    ///
    /// ```
    /// use firelight_kernels::BlockFormat;
    ///
    /// assert_eq!(BlockFormat::Q6K.row_bytes(768), Some(630));
    /// assert_eq!(BlockFormat::Q6K.row_bytes(64), None);
    /// assert_eq!(BlockFormat::Q8_0.row_bytes(usize::MAX - 31), None); // 34 bytes for every 32 numbers.
    /// ```
    pub fn row_bytes(self, width: usize) -> Option<usize> {
        let is_whole = width.is_multiple_of(self.numbers());
        is_whole.then_some(width / self.numbers())?.checked_mul(self.bytes())
    }

    /// Reads numbers from their blocks: to the bit those of the Python package `gguf`.
    ///
    /// # Panics
    /// If the bytes are no whole number of blocks, or `numbers` are not as many as they hold.
    pub fn dequantize(self, blocks: &[u8], numbers: &mut [f32]) {
        self.check("dequantize", blocks.len(), numbers.len());
        let (bytes, count) = (STRETCH * self.chunk_bytes(), STRETCH * CHUNK);
        #[cfg(feature = "flex")]
        if blocks.len() > bytes {
            use rayon::prelude::*;
            let stretches = blocks.par_chunks(bytes).zip(numbers.par_chunks_mut(count));
            return stretches.for_each(|(blocks, numbers)| self.read(blocks, numbers));
        }
        blocks.chunks(bytes).zip(numbers.chunks_mut(count)).for_each(|(blocks, numbers)| self.read(blocks, numbers));
    }

    /// Writes numbers as blocks. The result does not depend on the processor.
    ///
    /// `importance` weighs the squared error of each number, such as the mean square of what it is multiplied with; `None` weighs all
    /// alike. `Q8_0` and `Q4_0` then are to the bit those of the Python package `gguf`. Otherwise scales and minima are searched for near
    /// those of the range, by weighted least squares, and taken where they lose less than the plain ones: with an importance no block loses
    /// more by its measure than without. Numbers so small that their scale has no inverse become 0.
    ///
    /// # Panics
    /// - if the bytes are no whole number of blocks, or `numbers`, or `importance`, are not as many as they hold
    /// - if a number is not finite, or of a magnitude of 2¹⁸ or more, for which half precision may have no scale
    /// - if an importance is negative or not finite
    pub fn quantize(self, numbers: &[f32], importance: Option<&[f32]>, blocks: &mut [u8]) {
        self.check("quantize", blocks.len(), numbers.len());
        check_values(self, numbers, importance);
        let write = |(index, block): (usize, &mut [u8])| {
            let part = index * self.numbers()..(index + 1) * self.numbers();
            encode::encode(self, &numbers[part.clone()], importance.map(|importance| &importance[part]), block);
        };
        #[cfg(feature = "flex")]
        if numbers.len() > 4 * CHUNK {
            use rayon::prelude::*;
            return blocks.par_chunks_mut(self.bytes()).enumerate().with_min_len(4).for_each(write);
        }
        blocks.chunks_mut(self.bytes()).enumerate().for_each(write);
    }

    /// Bytes of the blocks of a chunk.
    pub(crate) fn chunk_bytes(self) -> usize {
        CHUNK / self.numbers() * self.bytes()
    }

    /// Reads some rows, or a part of one, on this thread.
    fn read(self, blocks: &[u8], numbers: &mut [f32]) {
        #[cfg(feature = "flex")]
        crate::flex::vectorised(
            #[inline(always)]
            || self.read_chunks(blocks, numbers),
        );
        #[cfg(not(feature = "flex"))]
        self.read_chunks(blocks, numbers);
    }

    #[inline(always)]
    fn read_chunks(self, blocks: &[u8], numbers: &mut [f32]) {
        let mut chunk = Chunk::ZERO;
        for (bytes, numbers) in blocks.chunks(self.chunk_bytes()).zip(numbers.chunks_mut(CHUNK)) {
            chunk.unpack(self, bytes);
            chunk.expand(numbers);
        }
    }

    fn check(self, operation: &str, bytes: usize, numbers: usize) {
        let fits = bytes.is_multiple_of(self.bytes()) && bytes / self.bytes() * self.numbers() == numbers;
        assert!(
            fits,
            "{operation}: {bytes} bytes of {self} do not hold {numbers} numbers: a block of {} bytes holds {}",
            self.bytes(),
            self.numbers()
        );
    }
}

impl fmt::Display for BlockFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn check_values(format: BlockFormat, numbers: &[f32], importance: Option<&[f32]>) {
    let has_place = |number: &f32| number.abs() < LIMIT; // NaN has none.
    if let Some((place, number)) = numbers.iter().enumerate().find(|(_, number)| !has_place(number)) {
        panic!("quantize: {number} at {place} has no place in {format}: expected magnitudes below {LIMIT}");
    }
    let Some(importance) = importance else { return };
    let (found, expected) = (importance.len(), numbers.len());
    assert!(found == expected, "quantize: {found} weights of importance for {expected} numbers");
    if let Some((place, weight)) =
        importance.iter().enumerate().find(|(_, weight)| !(**weight >= 0.0 && weight.is_finite()))
    {
        panic!("quantize: importance {weight} at {place}: expected finite weights, 0 or more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quantized(format: BlockFormat, numbers: &[f32], importance: Option<&[f32]>) -> Vec<u8> {
        let mut blocks = vec![0xff; numbers.len() / format.numbers() * format.bytes()];
        format.quantize(numbers, importance, &mut blocks);
        blocks
    }

    fn dequantized(format: BlockFormat, blocks: &[u8]) -> Vec<f32> {
        let mut numbers = vec![f32::NAN; blocks.len() / format.bytes() * format.numbers()];
        format.dequantize(blocks, &mut numbers);
        numbers
    }

    fn error(format: BlockFormat, numbers: &[f32], weights: &[f32], blocks: &[u8]) -> f64 {
        let read = dequantized(format, blocks);
        let terms = numbers.iter().zip(weights).zip(read);
        terms.map(|((&x, &w), read)| f64::from(w) * f64::from(x - read).powi(2)).sum()
    }

    /// Numbers of a bell, with a few outliers, as weights have them.
    fn bell(count: usize, seed: u64) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        let number = |i| (0..4).map(|_| uniform()).sum::<f32>() * if i % 97 == 5 { 0.2 } else { 0.04 };
        (0..count).map(number).collect()
    }

    #[test]
    fn blocks_by_hand() {
        // Scale 127 / 127 = 1.
        let mut numbers = [0.0; 32];
        (numbers[0], numbers[1], numbers[31]) = (127.0, -2.4, 2.5);
        let blocks = quantized(BlockFormat::Q8_0, &numbers, None);
        assert_eq!((&blocks[..5], blocks[33]), (&[0x00, 0x3c, 127, 254, 0][..], 3));
        // Scale 8 / -8 = -1: the code of x is trunc(8.5 - x), and 0 is code 8.
        let mut numbers = [0.0; 32];
        (numbers[0], numbers[1], numbers[16]) = (8.0, 1.0, -8.0);
        let blocks = quantized(BlockFormat::Q4_0, &numbers, None);
        assert_eq!(blocks[..5], [0x00, 0xbc, 0xf0, 0x87, 0x88]);
        let mut read = numbers;
        read[16] = -7.0; // There are 7 steps above 0.
        assert_eq!(dequantized(BlockFormat::Q4_0, &blocks), read);
    }

    #[test]
    fn names_and_sizes() {
        for format in BlockFormat::ALL {
            assert_eq!(BlockFormat::from_name(&format.to_string().to_uppercase()), Some(format));
            assert_eq!(format.row_bytes(3 * format.numbers()), Some(3 * format.bytes()));
            assert_eq!(format.row_bytes(format.numbers() / 2), None);
        }
        assert_eq!(BlockFormat::from_name("q5_k"), None);
    }

    #[test]
    fn zeros_stay_zeros_and_so_do_numbers_without_a_scale() {
        for format in BlockFormat::ALL {
            for number in [0.0, -0.0, 1e-30, -1e-40] {
                let numbers = vec![number; 512];
                for importance in [None, Some(&vec![0.0; 512][..]), Some(&vec![2.0; 512][..])] {
                    let read = dequantized(format, &quantized(format, &numbers, importance));
                    assert!(read.iter().all(|&read| read == 0.0), "{format} {number}");
                }
            }
        }
    }

    #[test]
    fn long_rows_are_read_and_written_as_their_blocks() {
        for format in BlockFormat::ALL {
            let numbers = bell(2 * STRETCH * CHUNK + 512, 3);
            let blocks = quantized(format, &numbers, None);
            let read = dequantized(format, &blocks);
            let parts = numbers.chunks(format.numbers()).zip(blocks.chunks(format.bytes()));
            for ((numbers, block), read) in parts.zip(read.chunks(format.numbers())) {
                assert_eq!(quantized(format, numbers, None), block);
                assert_eq!(dequantized(format, block), read);
            }
        }
    }

    #[test]
    fn more_bits_lose_less() {
        let (numbers, weights) = (bell(1 << 14, 9), vec![1.0; 1 << 14]);
        let size: f64 = numbers.iter().map(|&x| f64::from(x).powi(2)).sum();
        let errors = BlockFormat::ALL.map(|format| {
            let blocks = quantized(format, &numbers, None);
            (error(format, &numbers, &weights, &blocks) / size).sqrt()
        });
        let [eight, four, four_k, six_k] = errors;
        assert!(eight < six_k && six_k < four_k && four_k < four, "{errors:?}");
        assert!(eight < 0.009 && six_k < 0.025 && four_k < 0.09 && four < 0.13, "{errors:?}");
    }

    #[test]
    fn important_numbers_come_out_better() {
        for format in BlockFormat::ALL {
            let numbers = bell(1 << 13, 4);
            let weights: Vec<f32> = (0..numbers.len()).map(|i| if i % 8 == 3 { 1.0 } else { 0.001 }).collect();
            let [alike, weighed] = [None, Some(&weights[..])].map(|importance| quantized(format, &numbers, importance));
            let [alike, weighed] = [alike, weighed].map(|blocks| error(format, &numbers, &weights, &blocks));
            assert!(weighed < 0.9 * alike, "{format}: {weighed} {alike}");
        }
    }

    #[test]
    #[should_panic(expected = "quantize: NaN at 3 has no place in q4_0: expected magnitudes below 262144")]
    fn what_is_no_number_panics() {
        let mut numbers = [1.0; 32];
        numbers[3] = f32::NAN;
        quantized(BlockFormat::Q4_0, &numbers, None);
    }

    #[test]
    #[should_panic(expected = "quantize: importance -1 at 0: expected finite weights, 0 or more")]
    fn a_negative_importance_panics() {
        quantized(BlockFormat::Q8_0, &[1.0; 32], Some(&[-1.0; 32]));
    }

    #[test]
    #[should_panic(expected = "dequantize: 35 bytes of q8_0 do not hold 32 numbers: a block of 34 bytes holds 32")]
    fn a_part_of_a_block_panics() {
        BlockFormat::Q8_0.dequantize(&[0; 35], &mut [0.0; 32]);
    }

    /// Numbers of one magnitude, some of them 0 or alike.
    fn numbers() -> impl Strategy<Value = Vec<f32>> {
        let number = prop_oneof![8 => -1.0f32..1.0, 1 => Just(0.0), 1 => Just(1.0)];
        (prop::collection::vec(number, 256), -12i32..12, -1.0f32..1.0).prop_map(|(mut numbers, power, shift)| {
            numbers.iter_mut().for_each(|x| *x = (*x + shift) * 2f32.powi(power));
            numbers
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn errors_stay_within_half_a_step(numbers in numbers()) {
            for format in [BlockFormat::Q8_0, BlockFormat::Q4_0] {
                let read = dequantized(format, &quantized(format, &numbers, None));
                for (numbers, read) in numbers.chunks(32).zip(read.chunks(32)) {
                    let most = numbers.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                    // Half a step in eight bits; a step in four bits, whose codes end one short of the range. And the scale is rounded, or
                    // even subnormal.
                    let step = if format == BlockFormat::Q8_0 { 0.5 / 127.0 } else { 1.0 / 8.0 };
                    let bound = most * (step * 1.001 + 0.0005) + 1e-5;
                    prop_assert!(numbers.iter().zip(read).all(|(x, read)| (x - read).abs() <= bound));
                }
            }
        }

        #[test]
        fn a_search_loses_no_more_than_plain_rounding(numbers in numbers(), weights in prop::collection::vec(0.0f32..1.0, 256)) {
            for format in BlockFormat::ALL {
                let alike = vec![1.0; 256];
                for (importance, weights) in [(None, &alike), (Some(&weights[..]), &weights)] {
                    let found = error(format, &numbers, weights, &quantized(format, &numbers, importance));
                    let plain = match format {
                        BlockFormat::Q4K => plain::error_of_q4_k(&numbers, weights),
                        BlockFormat::Q6K => plain::error_of_q6_k(&numbers, weights),
                        _ => error(format, &numbers, weights, &quantized(format, &numbers, None)),
                    };
                    let size: f64 = numbers.iter().zip(weights).map(|(&x, &w)| f64::from(w) * f64::from(x).powi(2)).sum();
                    prop_assert!(found <= plain * 1.001 + 1e-8 * size, "{} {} {}", format, found, plain);
                }
            }
        }

        #[test]
        fn weights_make_no_weighted_error_larger(numbers in numbers(), weights in prop::collection::vec(0.0f32..1.0, 256), power in 0i32..9) {
            // From weights that are nearly alike to a few that outweigh all others.
            let weights: Vec<f32> = weights.iter().map(|weight| weight.powi(power)).collect();
            let size: f64 = numbers.iter().zip(&weights).map(|(&x, &w)| f64::from(w) * f64::from(x).powi(2)).sum();
            for format in BlockFormat::ALL {
                let [plain, weighed] = [None, Some(&weights[..])].map(|importance| quantized(format, &numbers, importance));
                let [plain, weighed] = [plain, weighed].map(|blocks| error(format, &numbers, &weights, &blocks));
                // Blocks are compared in single precision.
                prop_assert!(weighed <= plain * 1.001 + 1e-8 * size, "{} {} {}", format, weighed, plain);
            }
        }

        #[test]
        fn what_was_read_is_written_again(numbers in numbers()) {
            let read = dequantized(BlockFormat::Q8_0, &quantized(BlockFormat::Q8_0, &numbers, None));
            let again = dequantized(BlockFormat::Q8_0, &quantized(BlockFormat::Q8_0, &read, None));
            prop_assert_eq!(read, again);
        }
    }

    /// Rounding to the range of the numbers, written anew in double precision but for the scales.
    mod plain {
        use burn::tensor::f16;

        fn half(x: f64) -> f64 {
            f64::from(f16::from_f32(x as f32).to_f32())
        }

        fn largest(x: &[f32]) -> f64 {
            x.iter().fold(0.0f64, |most, &x| if f64::from(x).abs() > most.abs() { f64::from(x) } else { most })
        }

        /// The weighted squared error of numbers `scale * code - min`.
        fn loss(x: &[f32], w: &[f32], scale: f64, min: f64, [lowest, highest]: [f64; 2]) -> f64 {
            let code = |x: f64| if scale == 0.0 { 0.0 } else { ((x + min) / scale).round().clamp(lowest, highest) };
            let terms = x.iter().zip(w).map(|(&x, &w)| {
                let x = f64::from(x);
                f64::from(w) * (scale * code(x) - min - x).powi(2)
            });
            terms.sum()
        }

        /// The nearest multiple of a unit, found in single precision: between two that are equally near, both ways of rounding are right.
        fn near(x: f32, unit: f64, [lowest, highest]: [f32; 2]) -> f64 {
            let factor = if unit == 0.0 { 0.0 } else { (x * (1.0 / unit as f32)).round().clamp(lowest, highest) };
            f64::from(factor) * unit
        }

        pub(super) fn error_of_q4_k(x: &[f32], w: &[f32]) -> f64 {
            let least = |x: &[f32]| -x.iter().copied().fold(0.0, f32::min);
            let scale = |x: &[f32]| (x.iter().copied().fold(0.0, f32::max) + least(x)) / 15.0;
            let unit = |of: &dyn Fn(&[f32]) -> f32| half(f64::from(x.chunks(32).map(of).fold(0.0, f32::max) / 63.0));
            let (units, range) = ([unit(&scale), unit(&least)], [0.0, 63.0]);
            let parts = x.chunks(32).zip(w.chunks(32));
            let error = |(x, w): (&[f32], &[f32])| {
                loss(x, w, near(scale(x), units[0], range), near(least(x), units[1], range), [0.0, 15.0])
            };
            parts.map(error).sum()
        }

        pub(super) fn error_of_q6_k(x: &[f32], w: &[f32]) -> f64 {
            let scales: Vec<f32> = x.chunks(16).map(|x| (largest(x) / -32.0) as f32).collect();
            let unit = half(largest(&scales) / -128.0);
            let scale = |x: &[f32]| near((largest(x) / -32.0) as f32, unit, [-128.0, 127.0]);
            x.chunks(16).zip(w.chunks(16)).map(|(x, w)| loss(x, w, scale(x), 0.0, [-32.0, 31.0])).sum()
        }
    }
}
