//! Numbers of `f32` as two parts of `bf16`, in tiles: `x = h + l + r` with `h = bf16(x)`, `l = bf16(x - h)` and a rest of at most
//! `2^-17 |x|`.

use super::super::{Matrix, Number, vectorised};
use super::panels::{Factor, SIDE, TERMS, Tile, fill};
use super::{Sums, Units};
use burn::tensor::bf16;

/// From here on the nearest number of `bf16` may be an infinity: the high part is then the next one towards zero.
const LARGE: f32 = f32::from_bits(0x7f00_0000); // 2^127

/// The numbers of two tiles, high parts and low ones.
type Halves = [[bf16; SIDE * TERMS]; 2];

/// Products of numbers in parts are three of `bf16`, see [`MatmulPrecision::Bf16x3`](crate::MatmulPrecision::Bf16x3).
impl Factor for f32 {
    const TILES: usize = 4;

    fn fill(tiles: &mut [Tile], lines: Matrix<'_, Self>, [line, term]: [usize; 2], units: Units, by_term: bool) {
        let [upper, lower, upper_low, lower_low] = tiles else { panic!("four tiles") };
        fill_parts([upper, upper_low], lines, [line, term], units, by_term);
        fill_parts([lower, lower_low], lines, [line + SIDE, term], units, by_term);
    }

    unsafe fn multiply(units: Units, sums: &mut Sums, left: &[[Tile; 2]], right: &[[Tile; 2]]) {
        // SAFETY: the caller vouches for it.
        unsafe { units.multiply_parts(sums, left, right) };
    }

    unsafe fn multiply_halves(units: Units, sums: &mut Sums, left: &[[Tile; 2]], right: &[[Tile; 2]]) {
        // SAFETY: the caller vouches for it.
        unsafe { units.multiply_left_parts(sums, left, right) };
    }
}

/// Fills a tile with the high parts of the lines and terms from a place on and another with the low ones, and both with zeros beyond
/// the edges.
fn fill_parts(tiles: [&mut Tile; 2], lines: Matrix<'_, f32>, [line, term]: [usize; 2], units: Units, by_term: bool) {
    let [count, terms] = lines.shape();
    if line >= count {
        tiles.into_iter().for_each(|tile| *tile = Tile::ZERO);
        return;
    }
    let part = lines.part(line..count.min(line + SIDE), term..terms.min(term + TERMS));
    let is_turned = !part.has_whole_rows() && part.transposed().has_whole_rows();
    let part = if is_turned { part.transposed() } else { part };
    let [rows, columns] = part.shape();
    let mut halves = [[bf16::ZERO; SIDE * TERMS]; 2];
    split_rows(&mut halves, part);
    for (tile, numbers) in tiles.into_iter().zip(&halves) {
        let numbers = Matrix::rows(&numbers[..rows * columns], columns);
        let numbers = if is_turned { numbers.transposed() } else { numbers };
        fill(tile, numbers, [0, 0], units, by_term);
    }
}

/// Both parts of a matrix, row by row.
fn split_rows([high, low]: &mut Halves, part: Matrix<'_, f32>) {
    let [rows, columns] = part.shape();
    vectorised(
        #[inline(always)]
        || {
            for row in 0..rows {
                let places = row * columns..(row + 1) * columns;
                let out = high[places.clone()].iter_mut().zip(&mut low[places]);
                match part.has_whole_rows() {
                    true => out.zip(part.row(row)).for_each(|((high, low), &x)| [*high, *low] = split(x)),
                    false => out.enumerate().for_each(|(i, (high, low))| [*high, *low] = split(part.at(row, i))),
                }
            }
        },
    );
}

/// The high and the low part of a number. Free of branches, so that loops over it become vector instructions.
#[inline(always)]
fn split(x: f32) -> [bf16; 2] {
    let truncated = bf16::from_bits((x.to_bits() >> 16) as u16);
    let high = if x.abs() < LARGE { <bf16 as Number>::round(x) } else { truncated };
    [high, <bf16 as Number>::round(x - Number::widen(high))]
}

#[cfg(test)]
mod tests {
    use super::super::product as product_of;
    use super::*;
    use crate::assert_same_bits;
    use proptest::prelude::*;

    /// 2^-8: `1 + E` lies in the middle of 1 and the next number of `bf16`, and goes to 1, the even one.
    const E: f32 = 0.003_906_25;

    /// Sines of many sizes, with all bits of `f32`.
    fn numbers(count: usize, phase: f32) -> Vec<f32> {
        (0..count).map(|i| (i as f32 * 0.73 + phase).sin() * 2f32.powi(i as i32 % 9 - 4)).collect()
    }

    /// A matrix as it may lie in memory: whole rows, whole columns, and neither.
    fn views(values: &[f32], [rows, columns]: [usize; 2]) -> [Matrix<'_, f32>; 3] {
        let strides = [[columns, 1], [1, rows], [2 * columns, 2]];
        strides.map(|strides| Matrix::new(values, 0, [rows, columns], strides.map(|stride| stride as isize)))
    }

    fn product(left: Matrix<'_, f32>, right: Matrix<'_, f32>, bias: Option<&[f32]>, units: Units) -> Vec<f32> {
        let mut out = vec![f32::NAN; left.shape()[0] * right.shape()[1]];
        product_of(&mut out, left, right, bias, units);
        out
    }

    /// The largest error of a product beside `Σ |a b|`; infinite where a sum is NaN, which a maximum would overlook.
    fn error(found: &[f32], left: Matrix<'_, f32>, right: Matrix<'_, f32>) -> f64 {
        let ([_, terms], columns) = (left.shape(), right.shape()[1]);
        let errors = found.iter().enumerate().map(|(i, &sum)| {
            let terms = (0..terms).map(|k| f64::from(left.at(i / columns, k)) * f64::from(right.at(k, i % columns)));
            let (exact, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + f64::abs(term)));
            let error = (f64::from(sum) - exact).abs() / size.max(f64::MIN_POSITIVE);
            if error.is_nan() { f64::INFINITY } else { error }
        });
        errors.fold(0.0, f64::max)
    }

    /// What [`MatmulPrecision::Bf16x3`](crate::MatmulPrecision::Bf16x3) says of the error, and half a unit for each addition that may stand
    /// behind another: 18 within a tile, three to join tiles.
    fn bound(terms: usize) -> f64 {
        2f64.powi(-15) * (1.0 + 2f64.powi(-16)) + (20 + 3 * terms.div_ceil(TERMS)) as f64 * 2f64.powi(-24)
    }

    #[test]
    fn parts_by_hand() {
        let parts = |x: f32| split(x).map(|part| part.to_f32());
        assert_eq!(parts(1.0), [1.0, 0.0]);
        assert_eq!(parts(1.0 + E), [1.0, E]);
        assert_eq!(parts(-1.0 - 3.0 * E), [-1.0 - 4.0 * E, E]); // In the middle, too.
        assert_eq!(parts(16_777_215.0), [16_777_216.0, -1.0]);
        let largest = parts(f32::MAX);
        assert!(
            largest[0].is_finite() && (f64::from(f32::MAX) - largest.map(f64::from).iter().sum::<f64>()).abs() < 1e34
        );
        assert!(parts(f32::NAN)[1].is_nan() && parts(f32::INFINITY)[1].is_nan());
    }

    #[test]
    fn a_sum_that_is_lost_in_bf16_is_exact_in_parts() {
        // (1 + E) 1 - 1 1 = E, and (1 + E) 3 = 3 + 3 E: by `bf16` alone 0 and 3.
        let (left, right) = ([1.0 + E, -1.0, 1.0 + E, 0.0], [1.0, 3.0, 1.0, 0.0]);
        let rounded = [left, right].map(|numbers| numbers.map(bf16::from_f32));
        for units in Units::all() {
            let mut plain = [f32::NAN; 4];
            let [a, b] = [&rounded[0], &rounded[1]].map(|numbers| Matrix::rows(numbers, 2));
            product_of(&mut plain, a, b, None, units);
            assert_eq!(plain, [0.0, 3.0, 1.0, 3.0]);
            let found = product(Matrix::rows(&left, 2), Matrix::rows(&right, 2), None, units);
            assert_eq!(found, [E, 3.0 + 3.0 * E, 1.0 + E, 3.0 + 3.0 * E]);
        }
    }

    #[test]
    fn the_largest_error_is_as_large_as_derived() {
        // Just below the middle: the high part is 1 and the low one, rounded, E. What is left out is E².
        let x = 1.0 + E - 2f32.powi(-23);
        for units in Units::all() {
            let found = product(Matrix::rows(&[x], 1), Matrix::rows(&[x], 1), None, units);
            let error = error(&found, Matrix::rows(&[x], 1), Matrix::rows(&[x], 1));
            assert!(error > 0.9 * 2f64.powi(-16) && error < bound(1), "{error:e}");
        }
    }

    #[test]
    fn products_of_integers_are_exact_in_every_layout_and_at_every_edge() {
        // Of 11 bits, which `bf16` does not hold; the product of two low parts is left out, so one side is small.
        let integers =
            |count: usize, modulus: usize| (0..count).map(|i| (i % modulus) as f32 - 2.0).collect::<Vec<_>>();
        for [rows, terms, columns] in [[1, 1, 1], [3, 5, 2], [32, 32, 32], [33, 31, 65], [40, 70, 17], [5, 64, 200]] {
            let (a, b) = (integers(2 * rows * terms, 1999), integers(2 * terms * columns, 7));
            let bias = integers(columns, 3);
            for left in views(&a, [rows, terms]) {
                for right in views(&b, [terms, columns]) {
                    let sum = |i, j: usize| (0..terms).map(|k| left.at(i, k) * right.at(k, j)).sum::<f32>() + bias[j];
                    let expected: Vec<f32> = (0..rows * columns).map(|i| sum(i / columns, i % columns)).collect();
                    for units in Units::all() {
                        let found = product(left, right, Some(&bias), units);
                        assert_eq!(found, expected, "{rows} x {terms} x {columns} by {units:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_unit_gives_the_same_bits_and_many_more_digits_than_bf16() {
        let [rows, terms, columns] = [40, 500, 50];
        let (a, b) = (numbers(rows * terms, 0.0), numbers(terms * columns, 1.0));
        let (left, right) = (Matrix::rows(&a, terms), Matrix::rows(&b, columns));
        let found = Units::all().into_iter().map(|units| product(left, right, None, units)).collect::<Vec<_>>();
        println!("products in parts of bf16 by {:?}", Units::all());
        found[1..].iter().for_each(|other| assert_same_bits(&found[0], other));
        let [a, b] = [&a, &b].map(|numbers| numbers.iter().copied().map(bf16::from_f32).collect::<Vec<_>>());
        let mut plain = vec![f32::NAN; rows * columns];
        product_of(&mut plain, Matrix::rows(&a, terms), Matrix::rows(&b, columns), None, Units::Plain);
        let [parts, plain] = [&found[0], &plain].map(|found| error(found, left, right));
        assert!(parts < 2f64.powi(-18) && plain > 100.0 * parts, "{parts:e} {plain:e}");
    }

    #[test]
    fn threads_change_no_bit() {
        let [rows, terms, columns] = [300, 100, 200];
        let (a, b) = (numbers(rows * terms, 0.0), numbers(terms * columns, 1.0));
        let by = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
            let units = Units::chosen().unwrap_or(Units::Plain);
            pool.install(|| product(Matrix::rows(&a, terms), Matrix::rows(&b, columns), None, units))
        };
        let alone = by(1);
        assert!([2, 3, 7].into_iter().all(|threads| by(threads) == alone));
    }

    proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(24))]
        #[test]
        fn no_error_is_above_the_bound(
            rows in 1usize..5, terms in 1usize..100, columns in 1usize..5, scale in -30i32..30, seed in any::<u32>(),
        ) {
            let mut state = u64::from(seed);
            let mut number = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((state >> 40) as f32 / 2f32.powi(23) - 1.0) * 2f32.powi(scale) // All 24 bits, of both signs.
            };
            let [a, b] = [rows * terms, terms * columns].map(|count| (0..count).map(|_| number()).collect::<Vec<f32>>());
            let (left, right) = (Matrix::rows(&a, terms), Matrix::rows(&b, columns));
            for units in Units::all() {
                let error = error(&product(left, right, None, units), left, right);
                prop_assert!(error <= bound(terms), "{error:e} by {units:?}");
            }
        }
    }
}
