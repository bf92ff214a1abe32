//! Which numbers are dropped: a function of a seed and the place of the number, so that nothing needs to be kept.
//!
//! Source: counters in place of a state as Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3, §2
//! (<https://doi.org/10.1145/2063384.2063405>). The bits are mixed by splitmix64 for a row (Steele et al. 2014, §4.3)
//! and by the 32-bit finaliser `lowbias32` of Wellons 2018 for a column.

use super::Real;

/// The rate and the seed of a pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dropout<T> {
    seed: u64,
    /// A number whose 32 bits are below is kept.
    threshold: u32,
    /// What a kept number is multiplied with.
    scale: T,
}

impl<T: Real> Dropout<T> {
    /// `None` if nothing is dropped.
    pub(crate) fn new(rate: f64, seed: u64) -> Option<Self> {
        let kept = 1.0 - rate;
        let threshold = (kept * 2f64.powi(32)) as u32;
        (rate > 0.0).then(|| Self { seed, threshold, scale: T::of(1.0 / kept) })
    }

    /// The factors of the columns of a row from `first` on: 0, or one over the share that is kept.
    #[inline(always)]
    pub(crate) fn fill(&self, row: u64, first: usize, factors: &mut [T]) {
        let mixed = splitmix(self.seed ^ splitmix(row));
        let (offset, mask) = (mixed as u32, (mixed >> 32) as u32);
        for (column, factor) in (first as u32..).zip(factors) {
            let kept = mix(column.wrapping_mul(0x9e37_79b9).wrapping_add(offset) ^ mask) < self.threshold;
            *factor = if kept { self.scale } else { T::ZERO };
        }
    }
}

#[inline(always)]
fn splitmix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[inline(always)]
fn mix(x: u32) -> u32 {
    let x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    let x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// The factors of all numbers, `[rows, columns]`, for a comparison with the reference.
#[cfg(test)]
pub(crate) fn factors(rate: f64, seed: u64, [rows, columns]: [usize; 2]) -> Vec<f64> {
    let dropout = Dropout::<f64>::new(rate, seed).expect("something is dropped");
    let mut factors = vec![0.0; rows * columns];
    for (row, factors) in factors.chunks_exact_mut(columns).enumerate() {
        dropout.fill(row as u64, 0, factors);
    }
    factors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_the_rate_is_dropped_and_the_mean_stays() {
        let factors = factors(0.25, 7, [200, 500]);
        let mean = factors.iter().sum::<f64>() / factors.len() as f64;
        // Four standard deviations of a mean of 100,000 numbers that are 0 or 4/3.
        assert!((mean - 1.0).abs() < 4.0 * (1.0f64 / 3.0 / 100_000.0).sqrt(), "{mean}");
        assert!(factors.iter().all(|&factor| factor == 0.0 || (factor - 4.0 / 3.0).abs() < 1e-12));
    }

    #[test]
    fn rows_columns_and_seeds_are_independent() {
        let one = factors(0.5, 1, [100, 100]);
        let agreement = |other: &[f64]| {
            let count = other.len();
            one.iter().zip(other).filter(|(a, b)| a == b).count() as f64 / count as f64
        };
        let other_seed = factors(0.5, 2, [100, 100]);
        for shift in [1, 100] {
            assert!((agreement(&one[shift..]) - 0.5).abs() < 0.02);
        }
        assert!((agreement(&other_seed) - 0.5).abs() < 0.02);
    }

    #[test]
    fn a_part_of_a_row_is_that_part_of_the_whole() {
        let dropout = Dropout::<f32>::new(0.3, 5).expect("something is dropped");
        let (mut whole, mut part) = ([0.0; 50], [0.0; 20]);
        dropout.fill(3, 0, &mut whole);
        dropout.fill(3, 30, &mut part);
        assert_eq!(whole[30..], part);
    }
}
