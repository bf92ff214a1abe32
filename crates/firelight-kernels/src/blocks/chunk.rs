//! What the bytes of blocks say: integers, and what they are multiplied with.
//!
//! Source: the layouts of `block_q8_0`, `block_q4_0`, `block_q4_K` and `block_q6_K` of GGML, as the functions `dequantize_blocks` of the
//! Python package `gguf` 0.19 read them.

use super::BlockFormat;

/// Numbers that are unpacked at once: eight small blocks, or a large one.
pub(crate) const CHUNK: usize = 256;

/// Numbers that share a minimum, and that activations share a scale of.
pub(crate) const GROUP: usize = 32;

/// Small blocks of a chunk, and groups of a large one.
const GROUPS: usize = CHUNK / GROUP;

/// Numbers `scale * code - min`. Every 16 share a scale, every 32 a minimum; those beyond the last block are 0.
///
/// Everything that fills or reads one is free of calls, so that loops over it become vector instructions.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct Chunk {
    pub(crate) codes: [i8; CHUNK],
    /// Those of the first half of every 32 numbers, then those of the second half.
    pub(crate) scales: [[f32; GROUPS]; 2],
    pub(crate) mins: [f32; GROUPS],
}

impl Chunk {
    pub(crate) const ZERO: Self = Self { codes: [0; CHUNK], scales: [[0.0; GROUPS]; 2], mins: [0.0; GROUPS] };

    /// Reads the blocks of a chunk, or those that are left of a row. Minima are left alone where the format has none.
    ///
    /// # Panics
    /// If a large block is incomplete.
    #[inline(always)]
    pub(crate) fn unpack(&mut self, format: BlockFormat, bytes: &[u8]) {
        match format {
            BlockFormat::Q8_0 => self.unpack_small::<34>(bytes, codes_of_q8_0),
            BlockFormat::Q4_0 => self.unpack_small::<18>(bytes, codes_of_q4_0),
            BlockFormat::Q4K => self.unpack_q4_k(bytes.first_chunk().expect("a whole block")),
            BlockFormat::Q6K => self.unpack_q6_k(bytes.first_chunk().expect("a whole block")),
        }
    }

    /// The numbers, as many as there is room for, 32 by 32. Sums and products are rounded one by one, as the package does.
    #[inline(always)]
    pub(crate) fn expand(&self, numbers: &mut [f32]) {
        let groups = numbers.as_chunks_mut::<GROUP>().0.iter_mut().zip(self.codes.as_chunks::<GROUP>().0);
        for (group, (numbers, codes)) in groups.enumerate() {
            let ([lower, upper], min) = (self.scales.map(|scales| scales[group]), self.mins[group]);
            for i in 0..GROUP / 2 {
                numbers[i] = lower * f32::from(codes[i]) - min;
            }
            for i in GROUP / 2..GROUP {
                numbers[i] = upper * f32::from(codes[i]) - min;
            }
        }
    }

    /// Blocks of 32 numbers of `SIZE` bytes, which begin with a scale.
    #[inline(always)]
    fn unpack_small<const SIZE: usize>(&mut self, bytes: &[u8], read: impl Fn(&[u8; SIZE], &mut [i8; GROUP])) {
        let (blocks, mut scales) = (bytes.as_chunks::<SIZE>().0, [0; GROUPS]);
        for ((block, codes), scale) in blocks.iter().zip(self.codes.as_chunks_mut().0).zip(&mut scales) {
            read(block, codes);
            *scale = half_at(block, 0);
        }
        self.codes[(blocks.len() * GROUP).min(CHUNK)..].fill(0);
        self.scales = [scales.map(widen_half); 2]; // Zeros beyond the last block.
    }

    /// Scale of the scales, scale of the minima, eight of each in 6 bits, codes in 4 bits: the first 32 in the lower halves of 32 bytes,
    /// the next in the upper ones.
    #[inline(always)]
    fn unpack_q4_k(&mut self, block: &[u8; 144]) {
        let [scale, min] = [0, 2].map(|at| widen_half(half_at(block, at)));
        let [scales, mins] = six_bits(block);
        self.scales = [scales.map(|factor| scale * factor); 2];
        self.mins = mins.map(|factor| min * factor);
        let bytes = block[16..].as_chunks::<GROUP>().0;
        for (bytes, codes) in bytes.iter().zip(self.codes.as_chunks_mut::<{ 2 * GROUP }>().0) {
            let (mut lower, mut upper) = ([0; GROUP], [0; GROUP]); // Arrays that overlap with nothing.
            for i in 0..GROUP {
                lower[i] = (bytes[i] & 15) as i8;
                upper[i] = (bytes[i] >> 4) as i8;
            }
            codes[..GROUP].copy_from_slice(&lower);
            codes[GROUP..].copy_from_slice(&upper);
        }
    }

    /// Four lower bits of all codes, their two upper bits, a scale for every 16 codes, and the scale of the scales.
    #[inline(always)]
    fn unpack_q6_k(&mut self, block: &[u8; 210]) {
        let scale = widen_half(half_at(block, 208));
        for (i, pair) in block[192..208].as_chunks::<2>().0.iter().enumerate() {
            self.scales[0][i] = scale * f32::from(pair[0] as i8);
            self.scales[1][i] = scale * f32::from(pair[1] as i8);
        }
        let (lower, upper) = (block[..128].as_chunks::<64>().0, block[128..192].as_chunks::<32>().0);
        for ((lower, upper), codes) in lower.iter().zip(upper).zip(self.codes.as_chunks_mut::<128>().0) {
            for i in 0..32 {
                codes[i] = (lower[i] & 15 | (upper[i] & 3) << 4) as i8 - 32;
                codes[32 + i] = (lower[32 + i] & 15 | (upper[i] >> 2 & 3) << 4) as i8 - 32;
                codes[64 + i] = (lower[i] >> 4 | (upper[i] >> 4 & 3) << 4) as i8 - 32;
                codes[96 + i] = (lower[32 + i] >> 4 | upper[i] >> 6 << 4) as i8 - 32;
            }
        }
    }
}

#[inline(always)]
fn codes_of_q8_0(block: &[u8; 34], codes: &mut [i8; GROUP]) {
    for i in 0..GROUP {
        codes[i] = block[2 + i] as i8;
    }
}

/// The first 16 codes are the lower halves of the bytes, the others the upper ones.
#[inline(always)]
fn codes_of_q4_0(block: &[u8; 18], codes: &mut [i8; GROUP]) {
    for i in 0..GROUP / 2 {
        codes[i] = (block[2 + i] & 15) as i8 - 8;
        codes[GROUP / 2 + i] = (block[2 + i] >> 4) as i8 - 8;
    }
}

/// Eight scales and eight minima of 6 bits. The first four of each lie in the lower bits of a byte; of the others four bits lie in the last
/// four bytes, and two in the upper bits of the first eight.
#[inline(always)]
fn six_bits(block: &[u8; 144]) -> [[f32; 8]; 2] {
    let word = |at: usize| u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    let [first, second, third] = [word(4), word(8), word(12)];
    let scales = [first, third & 0x0f0f_0f0f | first >> 2 & 0x3030_3030];
    let mins = [second, third >> 4 & 0x0f0f_0f0f | second >> 2 & 0x3030_3030];
    [scales, mins].map(|words| std::array::from_fn(|i| (words[i / 4] >> (8 * (i % 4)) & 0x3f) as i32 as f32))
}

/// The bits of an `f16` of two bytes.
#[inline(always)]
fn half_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Exactly the number of these bits of an `f16`, without a call. Subnormal ones, which are common among the scales of scales, take no part as
/// subnormal numbers of `f32`, with which processors are slow.
#[inline(always)]
pub(super) fn widen_half(bits: u16) -> f32 {
    const LEAST_NORMAL: u32 = 0x3880_0000; // 2⁻¹⁴.
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let subnormal = f32::from_bits(magnitude + LEAST_NORMAL) - f32::from_bits(LEAST_NORMAL);
    let offset = if magnitude >= 0x0f80_0000 { 0x7000_0000 } else { 0x3800_0000 }; // Infinities and NaN keep the largest exponent.
    let normal = f32::from_bits(magnitude + offset);
    let wide = if magnitude < 0x0080_0000 { subnormal } else { normal };
    f32::from_bits(wide.to_bits() | u32::from(bits & 0x8000) << 16)
}
