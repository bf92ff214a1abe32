//! Products of matrices of `bf16` in the tile registers of a processor with AMX: the numbers are multiplied as they are, the
//! sums are formed in `f32` and rounded once.
//!
//! Both matrices may lie in memory in any order. They are packed into tiles: the rows of the left one first, by all threads, columns of
//! the right one by each task as many as stay in its core's second cache. A block of the result, 32 rows of 32
//! columns, is summed over all its terms at once, so its bits depend on nothing but the numbers: not on the
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
use panels::{Factor, PANEL, Panels, TERMS, Tile};
use rayon::prelude::*;

/// Whether this processor has tile registers for `bf16`.
pub(super) fn has_tiles() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    return amx::has_tiles();
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    false
}

/// Bytes of packed columns that a task multiplies with row after row: they stay in its core's second cache.
const NEAR: usize = 1024 * 1024;

/// Tasks of a thread, if there are as many columns: so all threads end at about the same time.
const TASKS: usize = 4;

/// Rows that pay for packing columns once more, which another task packs, too.
const TALL: usize = 512;

/// Multiplications that pay for a second thread.
const PARALLEL: usize = 1 << 21;

/// The sums of a block, row by row.
#[repr(align(64))]
pub(crate) struct Sums([[f32; PANEL]; PANEL]);

/// `out = left right + bias` in whole rows, each number rounded once. A bias is as long as a row.
///
/// # Panics
/// If the shapes do not fit, or one of them is 0.
pub(crate) fn product<F: Factor, T: Number<Sum = f32>>(
    out: &mut [T],
    left: Matrix<'_, F>,
    right: Matrix<'_, F>,
    bias: Option<&[F]>,
    units: Units,
) {
    let shape = checked_shape(out.len(), [left.shape(), right.shape()], bias.map(<[F]>::len));
    let bias: Option<Vec<f32>> = bias.map(converted);
    let left = Panels::of_left(left, units);
    Factors { left, right, bias: bias.as_deref(), units }.multiply_into(out, shape);
}

/// Rows, terms and columns.
fn checked_shape(length: usize, [left, right]: [[usize; 2]; 2], bias: Option<usize>) -> [usize; 3] {
    let ([rows, terms], columns) = (left, right[1]);
    assert!(right[0] == terms && length == rows * columns, "a product of matrices");
    assert!(rows * terms * columns > 0, "a product of something");
    assert!(bias.is_none_or(|length| length == columns), "a bias as long as a row");
    [rows, terms, columns]
}

/// What is multiplied. The columns of the right matrix are packed by the tasks that multiply with them, so that they are not written
/// to memory and read again.
struct Factors<'a, F> {
    left: Panels,
    right: Matrix<'a, F>,
    bias: Option<&'a [f32]>,
    units: Units,
}

impl<F: Factor> Factors<'_, F> {
    fn multiply_into<T: Number<Sum = f32>>(&self, out: &mut [T], [rows, terms, columns]: [usize; 3]) {
        let column_bytes = F::TILES * size_of::<Tile>() / PANEL * terms.div_ceil(TERMS);
        let [height, width] = task_shape([rows, columns], column_bytes, rayon::current_num_threads());
        let tasks = out.chunks_mut(height * columns).enumerate().flat_map(|(i, out)| {
            let strips = by_columns(out, columns, width).into_iter().enumerate();
            strips.map(move |(j, out)| ([i * height, j * width], out))
        });
        let task = |(place, mut out): ([usize; 2], Vec<&mut [T]>)| self.multiply_part(&mut out, place);
        match rows * columns * terms < PARALLEL {
            true => tasks.for_each(task),
            false => tasks.collect::<Vec<_>>().into_par_iter().for_each(task),
        }
    }

    /// Fills some rows of some columns, which begin at `place`.
    fn multiply_part<T: Number<Sum = f32>>(&self, out: &mut [&mut [T]], place: [usize; 2]) {
        let columns = place[1]..place[1] + out[0].len();
        let right = Panels::of_right(self.right.part(0..self.right.shape()[0], columns), self.units);
        self.units.within(|| self.multiply_blocks(out, place, &right));
    }

    /// The same with the packed columns, block by block.
    fn multiply_blocks<T: Number<Sum = f32>>(&self, out: &mut [&mut [T]], place: [usize; 2], right: &Panels) {
        let mut sums = Sums([[0.0; PANEL]; PANEL]);
        let width = out[0].len();
        for row in (0..out.len()).step_by(PANEL) {
            let left = self.left.panel((place[0] + row) / PANEL);
            let rows = row..out.len().min(row + PANEL);
            for column in (0..width).step_by(PANEL) {
                // SAFETY: `multiply_part` calls this within `Units::within`.
                unsafe { F::multiply(self.units, &mut sums, left, right.panel(column / PANEL)) };
                self.store(&mut out[rows.clone()], [column, place[1] + column], &sums);
            }
        }
    }

    /// Writes the sums of a block, as far as the result reaches, from a column of `out` on, which is another one of the bias.
    fn store<T: Number<Sum = f32>>(&self, out: &mut [&mut [T]], [column, of_bias]: [usize; 2], sums: &Sums) {
        let columns = column..out[0].len().min(column + PANEL);
        let bias = self.bias.map(|bias| &bias[of_bias..of_bias + columns.len()]);
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

/// Rows and columns of a task, both in whole panels.
fn task_shape([rows, columns]: [usize; 2], column_bytes: usize, threads: usize) -> [usize; 2] {
    let near = (NEAR / column_bytes / PANEL * PANEL).max(PANEL);
    let width = near.min(columns.div_ceil(TASKS * threads).next_multiple_of(PANEL));
    let parts = (2 * threads).div_ceil(columns.div_ceil(width));
    [rows.div_ceil(parts).max(TALL).next_multiple_of(PANEL), width]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_same_bits;
    use burn::tensor::bf16;

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
        assert_eq!(task_shape([512, 768], 2 * 3072, 2), [512, 96]); // Eight strips of all rows.
        assert_eq!(task_shape([512, 50_257], 2 * 768, 2), [512, 672]); // As many columns as stay near.
        assert_eq!(task_shape([4096, 64], 2 * 384, 8), [512, 32]); // Few columns: eight parts of the rows of each.
        assert_eq!(task_shape([40, 10], 2 << 20, 2), [512, 32]);
    }
}
