//! Rows of activations in eight bits.

use crate::blocks::{CHUNK, GROUP};
use crate::flex::{filled, for_each_block, vectorised};

/// 256 numbers `scale * code` of a row, with a scale for every 32; those beyond the end of the row are 0.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct Activations {
    pub(super) codes: [i8; CHUNK],
    pub(super) scales: [f32; CHUNK / GROUP],
    /// The sum of every 32 numbers, which minima are multiplied with.
    pub(super) sums: [f32; CHUNK / GROUP],
}

impl Activations {
    const ZERO: Self = Self { codes: [0; CHUNK], scales: [0.0; CHUNK / GROUP], sums: [0.0; CHUNK / GROUP] };

    /// Rows of `width` numbers, whole groups of them. The chunks of all rows that belong to the same columns stand side by side.
    pub(super) fn of(x: &[f32], width: usize) -> Vec<Self> {
        let rows = x.len() / width;
        let mut chunks = vec![Self::ZERO; rows * width.div_ceil(CHUNK)];
        vectorised(
            #[inline(always)]
            || {
                for (row, x) in x.chunks_exact(width).enumerate() {
                    for (column, x) in x.chunks(CHUNK).enumerate() {
                        chunks[column * rows + row].fill(x);
                    }
                }
            },
        );
        chunks
    }

    #[inline(always)]
    fn fill(&mut self, x: &[f32]) {
        let groups = x.as_chunks::<GROUP>().0.iter().zip(self.codes.as_chunks_mut::<GROUP>().0);
        for ((x, codes), (scale, sum)) in groups.zip(self.scales.iter_mut().zip(&mut self.sums)) {
            *scale = round(x, codes);
            *sum = *scale * codes.iter().map(|&code| i32::from(code)).sum::<i32>() as f32;
        }
    }
}

/// The numbers `scale * code` that stand for `x`, whole groups of numbers.
pub(super) fn rounded(x: &[f32]) -> Vec<f32> {
    filled(x.len(), |out| {
        for_each_block(out, GROUP, |group, out| {
            let x = &x[group * GROUP..][..out.len()];
            vectorised(
                #[inline(always)]
                || {
                    for (x, out) in x.as_chunks::<GROUP>().0.iter().zip(out.as_chunks_mut::<GROUP>().0) {
                        let mut codes = [0; GROUP];
                        let scale = round(x, &mut codes);
                        for i in 0..GROUP {
                            out[i] = scale * f32::from(codes[i]);
                        }
                    }
                },
            );
        });
    })
}

/// Below this the inverse of a scale may be infinite: such numbers become 0.
const LEAST: f32 = 1e-30;

/// Writes the nearest codes, the largest magnitude being 127. Returns the scale: NaN where a number is not finite, so that it
/// does not go unnoticed.
#[inline(always)]
fn round(x: &[f32; GROUP], codes: &mut [i8; GROUP]) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2²³: adding it leaves no fraction, and the integer in the lowest bits.
    // 0 for finite numbers, NaN for others.
    let (mut most, mut flaw) = (0.0f32, 0.0f32);
    for &x in x {
        most = if x.abs() > most { x.abs() } else { most };
        flaw += x * 0.0;
    }
    let inverse = if most < LEAST || flaw.is_nan() { 0.0 } else { 127.0 / most };
    for (code, &x) in codes.iter_mut().zip(x) {
        *code = (x * inverse + ROUND).to_bits() as i8;
    }
    let scale = if most < LEAST { 0.0 } else { most / 127.0 };
    if flaw.is_nan() { f32::NAN } else { scale }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_nearest() {
        let mut x = vec![0.0; 3 * 288];
        x.iter_mut().enumerate().for_each(|(i, x)| *x = (i as f32 * 0.7).sin() * 10f32.powi(i as i32 / 32 % 9 - 4));
        let (chunks, rounded) = (Activations::of(&x, 288), rounded(&x));
        assert_eq!(chunks.len(), 6);
        for (i, x) in x.iter().enumerate() {
            let chunk = &chunks[i % 288 / CHUNK * 3 + i / 288];
            let (group, place) = (i % 288 % CHUNK / GROUP, i % 288 % CHUNK);
            let error = (chunk.scales[group] * f32::from(chunk.codes[place]) - x).abs();
            assert!(error <= chunk.scales[group] * 0.501, "{i}");
            let codes = &chunk.codes[group * GROUP..][..GROUP];
            let sum: f32 = codes.iter().map(|&code| f32::from(code)).sum();
            assert_eq!(chunk.sums[group], chunk.scales[group] * sum);
            assert_eq!(codes.iter().map(|code| code.unsigned_abs()).max(), Some(127));
            assert_eq!(rounded[i], chunk.scales[group] * f32::from(chunk.codes[place]));
        }
        // The second chunk of a row has one group alone.
        assert!(
            chunks[3..].iter().all(|chunk| chunk.codes[GROUP..] == [0; CHUNK - GROUP] && chunk.scales[1..] == [0.0; 7])
        );
    }

    #[test]
    fn tiny_numbers_are_none_and_what_is_not_finite_is_seen() {
        let mut x = [1e-38; 128];
        (x[40], x[70], x[100]) = (f32::NAN, f32::INFINITY, f32::MAX);
        let chunk = &Activations::of(&x, 128)[0];
        assert_eq!((chunk.scales[0], chunk.codes[0]), (0.0, 0));
        assert!(chunk.scales[1].is_nan() && chunk.scales[2].is_nan() && chunk.sums[1].is_nan());
        assert_eq!((chunk.scales[3], chunk.codes[100]), (f32::MAX / 127.0, 127));
    }
}
