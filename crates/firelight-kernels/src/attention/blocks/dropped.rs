//! Which weights of a block are dropped, computed on the host: what the kernel of a GPU is compared with, and what ndarray
//! takes in tests.

use super::super::extension::BlockDropout;

/// The two numbers in `[0, 1)` of a seed.
#[cfg(feature = "ndarray")]
pub(in super::super) fn numbers(seed: u64) -> [f32; 2] {
    let bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [bits >> 40, bits << 24 >> 40].map(|number| number as f32 / 16_777_216.0)
}

/// What the weights of a block of the shape `[B, H, q, k]` are multiplied with.
pub(in super::super) fn factors(seed: [f32; 2], shape: [usize; 4], place: BlockDropout) -> Vec<f64> {
    let ([batch, heads, queries, keys], kept) = (shape, 1.0 - place.rate);
    let [start, mask] = seed.map(|number| (number * 16_777_216.0) as u32);
    let factor = |index: usize| {
        let (query, key) = (index / keys, index % keys + place.first_key);
        let row = query / queries * place.queries + place.first_query + query % queries;
        let offset = mix(hash(row).wrapping_add(start));
        let bits = mix(hash(key).wrapping_add(offset) ^ mix(offset ^ mask));
        if bits < (kept * 2f64.powi(32)) as u32 { f64::from((1.0 / kept) as f32) } else { 0.0 }
    };
    (0..batch * heads * queries * keys).map(factor).collect()
}

fn hash(index: usize) -> u32 {
    (index as u32).wrapping_mul(0x9e37_79b9)
}

fn mix(x: u32) -> u32 {
    let x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    let x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// The shape `[2, 3, q, 40 - first_key]` of a block and its place, for some of 50 queries from the first one on.
pub(super) fn of_a_block(queries: [usize; 2], first_key: usize) -> ([usize; 4], BlockDropout) {
    let place = BlockDropout { queries: 50, first_query: queries[0], first_key, rate: 0.25 };
    ([2, 3, queries[1] - queries[0], 40 - first_key], place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(seed: [f32; 2], queries: [usize; 2], first_key: usize) -> Vec<f64> {
        let (shape, place) = of_a_block(queries, first_key);
        factors(seed, shape, place)
    }

    #[test]
    fn the_share_of_the_rate_is_dropped_and_seeds_are_independent() {
        let (one, other) = (of([0.1, 0.2], [0, 50], 0), of([0.1, 0.3], [0, 50], 0));
        let mean = one.iter().sum::<f64>() / one.len() as f64;
        // Four standard deviations of a mean of 12,000 numbers that are 0 or 4/3.
        assert!((mean - 1.0).abs() < 4.0 * (1.0f64 / 3.0 / 12_000.0).sqrt(), "{mean}");
        let agreement =
            |other: &[f64]| one.iter().zip(other).filter(|(a, b)| a == b).count() as f64 / other.len() as f64;
        // Kept in both with a chance of 9/16, dropped in both with 1/16.
        for other in [&other, &one[1..], &one[40..]] {
            assert!((agreement(other) - 0.625).abs() < 0.02);
        }
    }

    #[test]
    fn a_block_drops_what_the_whole_does() {
        let (whole, part) = (of([0.1, 0.2], [0, 50], 0), of([0.1, 0.2], [20, 30], 15));
        assert_eq!(part.len(), 2 * 3 * 10 * 25);
        for (index, factor) in part.into_iter().enumerate() {
            let [head, query, key] = [index / 250, index / 25 % 10 + 20, index % 25 + 15];
            assert_eq!(factor, whole[(head * 50 + query) * 40 + key]);
        }
    }
}
