//! Products of integers in the vector units of x86.
//!
//! Both instructions multiply numbers without a sign by numbers with one, so the sign of a code goes to its activation.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, `VPMADDUBSW` and `VPDPBUSD`.

use super::activations::Activations;
use super::dot_kernel::{Accumulators, multiply};
use crate::BlockFormat;
use crate::blocks::Chunk;
use std::arch::x86_64::*;

#[target_feature(enable = "avx2")]
pub(super) fn multiply_by_avx2<'a>(
    format: BlockFormat,
    blocks: impl Iterator<Item = &'a [u8]>,
    x: &[Activations],
    accumulators: &mut [Accumulators],
    finish: impl FnMut(usize, usize, f32),
) {
    multiply(format, blocks, x, accumulators, finish, |accumulators, chunk, x, has_mins| {
        add_by_avx2(accumulators, chunk, x, has_mins)
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni,avx2")]
pub(super) fn multiply_by_avx512<'a>(
    format: BlockFormat,
    blocks: impl Iterator<Item = &'a [u8]>,
    x: &[Activations],
    accumulators: &mut [Accumulators],
    finish: impl FnMut(usize, usize, f32),
) {
    multiply(format, blocks, x, accumulators, finish, |accumulators, chunk, x, has_mins| {
        add_by_avx512(accumulators, chunk, x, has_mins)
    });
}

/// As [`add`](super::dot_kernel::add): 32 numbers fill eight of the lanes, the next 32 the other eight.
#[inline]
#[target_feature(enable = "avx2")]
fn add_by_avx2(accumulators: &mut [Accumulators], chunk: &Chunk, x: &[Activations], has_mins: bool) {
    for (accumulators, x) in accumulators.iter_mut().zip(x) {
        let products = accumulators.products.as_mut_ptr();
        // SAFETY: there are two times eight lanes.
        let mut lanes = unsafe { [_mm256_loadu_ps(products), _mm256_loadu_ps(products.add(8))] };
        for group in 0..x.scales.len() {
            // SAFETY: a group is 32 codes.
            let (codes, x_codes) = unsafe {
                let place = 32 * group;
                (
                    _mm256_loadu_si256(chunk.codes.as_ptr().add(place).cast()),
                    _mm256_loadu_si256(x.codes.as_ptr().add(place).cast()),
                )
            };
            // At most 2 * 128 * 127, which fits into 16 bits.
            let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x_codes, codes));
            let fours = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
            let [lower, upper] = [chunk.scales[0][group], chunk.scales[1][group]];
            let scales = _mm256_set_m128(_mm_set1_ps(upper), _mm_set1_ps(lower));
            let scales = _mm256_mul_ps(scales, _mm256_set1_ps(x.scales[group]));
            lanes[group % 2] = _mm256_add_ps(lanes[group % 2], _mm256_mul_ps(fours, scales));
        }
        // SAFETY: as above.
        unsafe {
            _mm256_storeu_ps(products, lanes[0]);
            _mm256_storeu_ps(products.add(8), lanes[1]);
        }
        if has_mins {
            add_mins(accumulators, chunk, x);
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn add_mins(accumulators: &mut Accumulators, chunk: &Chunk, x: &Activations) {
    // SAFETY: there are eight numbers of each.
    unsafe {
        let shares = _mm256_mul_ps(_mm256_loadu_ps(chunk.mins.as_ptr()), _mm256_loadu_ps(x.sums.as_ptr()));
        let mins = accumulators.mins.as_mut_ptr();
        _mm256_storeu_ps(mins, _mm256_add_ps(_mm256_loadu_ps(mins), shares));
    }
}

/// Quarters of a chunk: 64 codes each.
const QUARTERS: usize = 4;

/// What the accumulators of all rows share of a quarter.
#[derive(Clone, Copy)]
struct Quarter {
    sizes: __m512i,
    is_negative: __mmask64,
    scales: __m512,
    /// Which scale of the activations each lane takes.
    x_scales: __m512i,
}

/// As [`add`](super::dot_kernel::add).
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2")]
fn add_by_avx512(accumulators: &mut [Accumulators], chunk: &Chunk, x: &[Activations], has_mins: bool) {
    // SAFETY: there are 16 scales.
    let scales = unsafe { _mm512_loadu_ps(chunk.scales.as_ptr().cast()) };
    let fours = _mm512_set_epi32(9, 9, 9, 9, 1, 1, 1, 1, 8, 8, 8, 8, 0, 0, 0, 0);
    let eights = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    let quarters: [Quarter; QUARTERS] = std::array::from_fn(|quarter| {
        // SAFETY: a quarter is 64 codes.
        let codes = unsafe { _mm512_loadu_si512(chunk.codes.as_ptr().add(64 * quarter).cast()) };
        let first = quarter as i32;
        Quarter {
            sizes: _mm512_abs_epi8(codes),
            is_negative: _mm512_movepi8_mask(codes),
            scales: _mm512_permutexvar_ps(_mm512_add_epi32(fours, _mm512_set1_epi32(2 * first)), scales),
            x_scales: _mm512_add_epi32(eights, _mm512_set1_epi32(2 * first)),
        }
    });
    for (accumulators, x) in accumulators.iter_mut().zip(x) {
        // SAFETY: there are 16 lanes, and eight scales of the activations.
        let (mut lanes, x_scales) = unsafe {
            let x_scales = _mm512_castps256_ps512(_mm256_loadu_ps(x.scales.as_ptr()));
            (_mm512_loadu_ps(accumulators.products.as_ptr()), x_scales)
        };
        for (place, quarter) in quarters.iter().enumerate() {
            // SAFETY: as above.
            let codes = unsafe { _mm512_loadu_si512(x.codes.as_ptr().add(64 * place).cast()) };
            let signed = _mm512_mask_sub_epi8(codes, quarter.is_negative, _mm512_setzero_si512(), codes);
            let fours = _mm512_dpbusd_epi32(_mm512_setzero_si512(), quarter.sizes, signed);
            let scales = _mm512_mul_ps(quarter.scales, _mm512_permutexvar_ps(quarter.x_scales, x_scales));
            lanes = _mm512_add_ps(lanes, _mm512_mul_ps(_mm512_cvtepi32_ps(fours), scales));
        }
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(accumulators.products.as_mut_ptr(), lanes) };
        if has_mins {
            add_mins(accumulators, chunk, x);
        }
    }
}
