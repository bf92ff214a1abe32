//! Dot products of eight-bit integers. Every kernel gives the same bits: sums of four products are exact in 32 bits, and are scaled and
//! accumulated in single precision in one order, without fused multiply-adds.

use super::activations::Activations;
use crate::BlockFormat;
use crate::blocks::{CHUNK, Chunk, GROUP};
#[cfg(target_arch = "x86_64")]
use crate::flex::simd;
use crate::flex::{fetch, halve, vectorised};

/// Lanes that products are summed in: four numbers of each of 64 belong to one.
pub(super) const LANES: usize = 16;

/// Partial sums of the dot product of a row of blocks and a row of activations.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct Accumulators {
    pub(super) products: [f32; LANES],
    /// The share of the minima, which is subtracted at the end.
    pub(super) mins: [f32; CHUNK / GROUP],
}

impl Accumulators {
    pub(super) const ZERO: Self = Self { products: [0.0; LANES], mins: [0.0; CHUNK / GROUP] };

    /// Never inlined: a compiler that sees the ends of several sums shuffles them all.
    #[inline(never)]
    fn total(&self) -> f32 {
        halve(self.products) - halve(self.mins)
    }
}

/// The instructions that integers are multiplied with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DotKernel {
    /// Loops, in whatever vector units those of the flex kernels run in: what the others are tested against.
    Plain,
    /// 32 numbers at a time, in three instructions.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 64 numbers at a time, in one instruction.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl DotKernel {
    /// The fastest of this processor within the level that is forced.
    pub(super) fn chosen() -> Self {
        #[cfg(target_arch = "x86_64")]
        match simd::integers() {
            simd::Integers::Avx512 => return Self::Avx512,
            simd::Integers::Avx2 => return Self::Avx2,
            simd::Integers::Plain => {}
        }
        Self::Plain
    }

    /// Multiplies rows of blocks, one after the other, with all rows of activations. `finish` gets the number of the row of blocks, that of
    /// the row of activations and their product.
    pub(super) fn multiply<'a>(
        self,
        format: BlockFormat,
        blocks: impl Iterator<Item = &'a [u8]>,
        x: &[Activations],
        accumulators: &mut [Accumulators],
        finish: impl FnMut(usize, usize, f32),
    ) {
        match self {
            Self::Plain => {
                let mut work = Some((blocks, finish));
                vectorised(
                    #[inline(always)]
                    || {
                        if let Some((blocks, finish)) = work.take() {
                            multiply(format, blocks, x, accumulators, finish, add);
                        }
                    },
                );
            }
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `simd` names this kernel only where the processor has its instructions.
            Self::Avx2 => unsafe { super::x86::multiply_by_avx2(format, blocks, x, accumulators, finish) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Self::Avx512 => unsafe { super::x86::multiply_by_avx512(format, blocks, x, accumulators, finish) },
        }
    }
}

/// Chunks that are unpacked before the first is multiplied: what is read wider than it was written has to have reached the cache.
const AHEAD: usize = 4;

/// Bytes of blocks that are asked for before they are read. A processor follows a stream by itself only to the end of a page.
const FETCHED_AHEAD: usize = 4096;

#[inline(always)]
fn fetch_ahead(bytes: &[u8]) {
    for line in (0..bytes.len()).step_by(64) {
        fetch(bytes.as_ptr().wrapping_add(FETCHED_AHEAD + line));
    }
}

/// The loops that all kernels share; `add` adds the products of a chunk to the accumulators of every row, and the minima if it has any.
#[inline(always)]
pub(super) fn multiply<'a>(
    format: BlockFormat,
    blocks: impl Iterator<Item = &'a [u8]>,
    x: &[Activations],
    accumulators: &mut [Accumulators],
    mut finish: impl FnMut(usize, usize, f32),
    add: impl Fn(&mut [Accumulators], &Chunk, &[Activations], bool),
) {
    let (mut chunks, rows) = ([const { Chunk::ZERO }; AHEAD], accumulators.len());
    for (row, blocks) in blocks.enumerate() {
        accumulators.fill(Accumulators::ZERO);
        let batches = blocks.chunks(AHEAD * format.chunk_bytes()).zip(x.chunks(AHEAD * rows));
        for (bytes, x) in batches {
            fetch_ahead(bytes);
            chunks
                .iter_mut()
                .zip(bytes.chunks(format.chunk_bytes()))
                .for_each(|(chunk, bytes)| chunk.unpack(format, bytes));
            for (chunk, x) in chunks.iter().zip(x.chunks_exact(rows)) {
                add(accumulators, chunk, x, format == BlockFormat::Q4K);
            }
        }
        accumulators.iter().enumerate().for_each(|(i, accumulators)| finish(row, i, accumulators.total()));
    }
}

/// The order of the sums: lane `l` has numbers `4 l` to `4 l + 3` of every 64, and a minimum has a lane for every eighth group.
#[inline(always)]
pub(super) fn add(accumulators: &mut [Accumulators], chunk: &Chunk, x: &[Activations], has_mins: bool) {
    for (accumulators, x) in accumulators.iter_mut().zip(x) {
        let fours = chunk.codes.as_chunks::<4>().0.iter().zip(x.codes.as_chunks::<4>().0);
        for (four, (codes, x_codes)) in fours.enumerate() {
            let products = codes.iter().zip(x_codes).map(|(&code, &x)| i32::from(code) * i32::from(x));
            let scale = chunk.scales[four / 4 % 2][four / 8] * x.scales[four / 8];
            accumulators.products[four % LANES] += products.sum::<i32>() as f32 * scale;
        }
        if has_mins {
            for (group, sum) in accumulators.mins.iter_mut().enumerate() {
                *sum += chunk.mins[group] * x.sums[group];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flex::simd;

    /// Blocks of random bytes, so that every code occurs, with finite scales.
    fn blocks(format: BlockFormat, count: usize) -> Vec<u8> {
        let mut state = 5u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as u8
        };
        let mut bytes: Vec<u8> = (0..count * format.bytes()).map(|_| next()).collect();
        let places: &[usize] = match format {
            BlockFormat::Q8_0 | BlockFormat::Q4_0 => &[1],
            BlockFormat::Q4K => &[1, 3],
            BlockFormat::Q6K => &[209],
        };
        for block in bytes.chunks_exact_mut(format.bytes()) {
            places.iter().for_each(|&place| block[place] &= 0xbf); // The highest bit of the exponent.
        }
        bytes
    }

    fn products(kernel: DotKernel, format: BlockFormat, blocks: &[u8], x: &[Activations], rows: usize) -> Vec<u32> {
        let (mut found, mut accumulators) = (Vec::new(), vec![Accumulators::ZERO; rows]);
        let width = blocks.len() / 3;
        kernel.multiply(format, blocks.chunks(width), x, &mut accumulators, |row, i, sum| {
            assert_eq!(found.len(), row * rows + i);
            found.push(sum);
        });
        assert!(found.iter().all(|sum: &f32| sum.is_finite()));
        found.iter().map(|sum| sum.to_bits()).collect()
    }

    #[test]
    fn every_kernel_gives_the_same_bits() {
        for format in BlockFormat::ALL {
            for width in [format.numbers(), 3 * format.numbers(), 2048] {
                let blocks = blocks(format, 3 * width / format.numbers());
                for rows in [1, 2, 7] {
                    let x: Vec<f32> = (0..rows * width).map(|i| (i as f32 * 0.37).sin() * (1 + i % 5) as f32).collect();
                    let x = Activations::of(&x, width);
                    let levels = simd::on_every_level(|| products(DotKernel::chosen(), format, &blocks, &x, rows));
                    let expected = products(DotKernel::Plain, format, &blocks, &x, rows);
                    for (level, found) in levels {
                        assert!(found == expected, "{format}, {rows} rows of {width}, {level}");
                    }
                }
            }
        }
        simd::on_every_level(|| println!("products of integers by {:?}", DotKernel::chosen()));
    }

    #[test]
    fn sums_are_those_of_the_integers() {
        for format in BlockFormat::ALL {
            let mut chunk = Chunk::ZERO;
            chunk.unpack(format, &blocks(format, CHUNK / format.numbers()));
            let x: Vec<f32> = (0..CHUNK).map(|i| (i % 13) as f32 - 6.0).collect();
            let activations = Activations::of(&x, CHUNK);
            (chunk.scales, chunk.mins) = ([[2.0; 8]; 2], [0.5; 8]);
            let mut accumulators = [Accumulators::ZERO];
            add(&mut accumulators, &chunk, &activations, true);
            let rounded = |i: usize| f64::from(activations[0].scales[i / GROUP]) * f64::from(activations[0].codes[i]);
            let expected: f64 = (0..CHUNK).map(|i| (2.0 * f64::from(chunk.codes[i]) - 0.5) * rounded(i)).sum();
            assert!(
                (f64::from(accumulators[0].total()) - expected).abs() < 1e-2,
                "{format} {} {expected}",
                accumulators[0].total()
            );
        }
    }
}
