//! Products of matrices of `bf16` in the tile registers of a processor with AMX: the numbers are multiplied as they are, the
//! sums are formed in `f32` and rounded once.
//!
//! Both matrices are packed into tiles first, which may lie in memory in any order. A block of the result, 32 rows of 32
//! columns, is then summed over all its terms at once, so its bits depend on nothing but the numbers: not on the
//! number of threads, and not on the rows beside it.
//!
//! Matrices of `f32` are multiplied in the same registers where [`MatmulPrecision`](crate::MatmulPrecision) asks for it: each number is split in two
//! parts of `bf16`, and three of their four products are summed.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx;
mod panels;
mod parts;
mod units;

pub(crate) use units::Units;

use super::{Matrix, Number, by_columns, converted, vectorised};
use burn::tensor::bf16;
use panels::{PANEL, Panels, Tile};
use rayon::prelude::*;

/// Whether this processor has tile registers for `bf16`.
pub(super) fn has_tiles() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    return amx::has_tiles();
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    false
}

/// Bytes of the left matrix that a task multiplies with column after column: they stay in its core's second cache.
const NEAR: usize = 512 * 1024;

/// Tasks of a large product at least.
const TASKS: usize = 16;

/// Multiplications that pay for a second thread.
const PARALLEL: usize = 1 << 21;

/// The sums of a block, row by row.
#[repr(align(64))]
struct Sums([[f32; PANEL]; PANEL]);

/// `out = left right + bias` in whole rows, each number rounded once. A bias is as long as a row.
///
/// # Panics
/// If the shapes do not fit, or one of them is 0.
pub(crate) fn product<T: Number<Sum = f32>>(
    out: &mut [T],
    left: Matrix<'_, bf16>,
    right: Matrix<'_, bf16>,
    bias: Option<&[bf16]>,
    units: Units,
) {
    let shape = checked_shape(out.len(), [left.shape(), right.shape()], bias.map(<[bf16]>::len));
    let bias: Option<Vec<f32>> = bias.map(converted);
    let (left, right) = (Panels::of_left(left, units), Panels::of_right(right, units));
    Factors { left, right, bias: bias.as_deref(), units, multiply: Units::multiply, bytes: 2 }
        .multiply_into(out, shape);
}

/// `out = left right + bias` in whole rows, of numbers in two parts of `bf16`: three products for each, see
/// [`MatmulPrecision::Bf16x3`](crate::MatmulPrecision::Bf16x3). A bias is as long as a row.
///
/// # Panics
/// As [`product`].
pub(crate) fn three_products(
    out: &mut [f32],
    left: Matrix<'_, f32>,
    right: Matrix<'_, f32>,
    bias: Option<&[f32]>,
    units: Units,
) {
    let shape = checked_shape(out.len(), [left.shape(), right.shape()], bias.map(<[f32]>::len));
    let (left, right) = (Panels::of_left_in_parts(left, units), Panels::of_right_in_parts(right, units));
    Factors { left, right, bias, units, multiply: Units::multiply_parts, bytes: 4 }.multiply_into(out, shape);
}

/// Rows, terms and columns.
fn checked_shape(length: usize, [left, right]: [[usize; 2]; 2], bias: Option<usize>) -> [usize; 3] {
    let ([rows, terms], columns) = (left, right[1]);
    assert!(right[0] == terms && length == rows * columns, "a product of matrices");
    assert!(rows * terms * columns > 0, "a product of something");
    assert!(bias.is_none_or(|length| length == columns), "a bias as long as a row");
    [rows, terms, columns]
}

/// What is multiplied, packed.
struct Factors<'a> {
    left: Panels,
    right: Panels,
    bias: Option<&'a [f32]>,
    units: Units,
    /// [`Units::multiply`] or [`Units::multiply_parts`].
    multiply: Multiply,
    /// Of a packed number: two, or two for each of its parts.
    bytes: usize,
}

/// The sums of a block from two panels.
type Multiply = unsafe fn(Units, &mut Sums, &[[Tile; 2]], &[[Tile; 2]]);

impl Factors<'_> {
    fn multiply_into<T: Number<Sum = f32>>(&self, out: &mut [T], [rows, terms, columns]: [usize; 3]) {
        let [height, width] = task_shape(rows, self.bytes * terms, columns);
        let tasks = out.chunks_mut(height * columns).enumerate().flat_map(|(i, out)| {
            let strips = by_columns(out, columns, width).into_iter().enumerate();
            strips.map(move |(j, out)| ([i * height, j * width], out))
        });
        let task = |([row, column], mut out): ([usize; 2], Vec<&mut [T]>)| {
            let part = Part { factors: self, row, column };
            self.units.within(|| part.multiply(&mut out));
        };
        match rows * columns * terms < PARALLEL {
            true => tasks.for_each(task),
            false => tasks.collect::<Vec<_>>().into_par_iter().for_each(task),
        }
    }
}

/// Rows and columns of a task, both in whole panels, from the bytes of a row of the left matrix.
fn task_shape(rows: usize, row_bytes: usize, columns: usize) -> [usize; 2] {
    let near = (NEAR / row_bytes.max(1)).max(PANEL) / PANEL * PANEL;
    let height = near.min(rows.next_multiple_of(PANEL));
    let strips = TASKS.div_ceil(rows.div_ceil(height));
    [height, columns.div_ceil(strips).next_multiple_of(PANEL)]
}

/// What a task multiplies.
struct Part<'a> {
    factors: &'a Factors<'a>,
    row: usize,
    column: usize,
}

impl Part<'_> {
    /// Fills some rows of some columns.
    fn multiply<T: Number<Sum = f32>>(&self, out: &mut [&mut [T]]) {
        let mut sums = Sums([[0.0; PANEL]; PANEL]);
        let Factors { left, right, units, multiply, .. } = self.factors;
        let width = out.first().map_or(0, |row| row.len());
        for column in (0..width).step_by(PANEL) {
            let right = right.panel((self.column + column) / PANEL);
            for row in (0..out.len()).step_by(PANEL) {
                // SAFETY: `multiply_into` calls this within `Units::within`.
                unsafe { (*multiply)(*units, &mut sums, left.panel((self.row + row) / PANEL), right) };
                let rows = row..out.len().min(row + PANEL);
                self.store(&mut out[rows], column, &sums);
            }
        }
    }

    /// Writes the sums of a block, as far as the result reaches.
    fn store<T: Number<Sum = f32>>(&self, out: &mut [&mut [T]], column: usize, sums: &Sums) {
        let columns = column..out[0].len().min(column + PANEL);
        let bias = self.factors.bias.map(|bias| &bias[self.column + columns.start..self.column + columns.end]);
        vectorised(
            #[inline(always)]
            || {
                for (out, sums) in out.iter_mut().zip(&sums.0) {
                    let out = out[columns.clone()].iter_mut().zip(sums);
                    match bias {
                        Some(bias) => out.zip(bias).for_each(|((out, &sum), bias)| *out = T::round(sum + bias)),
                        None => out.for_each(|(out, &sum)| *out = T::round(sum)),
                    }
                }
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_same_bits;

    fn numbers(count: usize, phase: f32) -> Vec<bf16> {
        (0..count).map(|i| bf16::from_f32((i as f32 * 0.73 + phase).sin() * 2f32.powi(i as i32 % 9 - 4))).collect()
    }

    /// A matrix of small integers as it may lie in memory: whole rows, whole columns, and neither.
    fn views(values: &[bf16], [rows, columns]: [usize; 2]) -> [Matrix<'_, bf16>; 3] {
        let strides = [[columns, 1], [1, rows], [2 * columns, 2]];
        strides.map(|strides| Matrix::new(values, 0, [rows, columns], strides.map(|stride| stride as isize)))
    }

    #[test]
    fn products_of_integers_are_exact_in_every_layout_and_at_every_edge() {
        let integers = |count: usize, modulus: usize| {
            let values = (0..count).map(|i| bf16::from_f32((i % modulus) as f32 - 2.0));
            values.collect::<Vec<_>>()
        };
        for [rows, terms, columns] in [[1, 1, 1], [3, 5, 2], [32, 32, 32], [33, 31, 65], [40, 70, 17], [5, 64, 200]] {
            let (a, b) = (integers(2 * rows * terms, 5), integers(2 * terms * columns, 7));
            let bias = integers(columns, 3);
            for left in views(&a, [rows, terms]) {
                for right in views(&b, [terms, columns]) {
                    let sum = |i, j: usize| {
                        let terms = (0..terms).map(|k| left.at(i, k).to_f32() * right.at(k, j).to_f32());
                        terms.sum::<f32>() + bias[j].to_f32()
                    };
                    let expected: Vec<f32> = (0..rows * columns).map(|i| sum(i / columns, i % columns)).collect();
                    for units in Units::all() {
                        let mut out = vec![f32::NAN; rows * columns];
                        product(&mut out, left, right, Some(&bias), units);
                        assert_eq!(out, expected, "{rows} x {terms} x {columns} by {units:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_unit_gives_the_same_bits_and_no_worse_than_f32() {
        let [rows, terms, columns] = [70, 1000, 90];
        let (a, b) = (numbers(rows * terms, 0.0), numbers(terms * columns, 1.0));
        let (left, right) = (Matrix::rows(&a, terms), Matrix::rows(&b, columns));
        let found = Units::all().into_iter().map(|units| {
            let mut out = vec![f32::NAN; rows * columns];
            product(&mut out, left, right, None, units);
            out
        });
        let found: Vec<_> = found.collect();
        for (i, &sum) in found[0].iter().enumerate() {
            let terms = (0..terms).map(|k| left.at(i / columns, k).to_f64() * right.at(k, i % columns).to_f64());
            let (exact, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
            assert!((f64::from(sum) - exact).abs() < 1e-6 * size, "{sum} {exact}");
        }
        println!("products of bf16 by {:?}", Units::all());
        found[1..].iter().for_each(|other| assert_same_bits(&found[0], other));
    }

    #[test]
    fn threads_change_no_bit() {
        let [rows, terms, columns] = [300, 200, 500];
        let (a, b) = (numbers(rows * terms, 0.0), numbers(terms * columns, 1.0));
        let by = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
            let mut out = vec![bf16::NAN; rows * columns];
            let (left, right) = (Matrix::rows(&a, terms), Matrix::rows(&b, columns));
            pool.install(|| product(&mut out, left, right, None, Units::chosen().unwrap_or(Units::Plain)));
            out
        };
        let alone = by(1);
        assert!([2, 3, 7].into_iter().all(|threads| by(threads) == alone));
    }

    #[test]
    fn tasks_are_whole_panels_that_stay_near() {
        assert_eq!(task_shape(2048, 2 * 384, 1536), [672, 384]);
        assert_eq!(task_shape(1, 2 * 768, 50_257), [32, 3168]);
        assert_eq!(task_shape(40, 2 << 20, 10), [32, 32]);
    }
}
