//! Products of matrices of `bf16` in the tile registers of a processor with AMX: the numbers are multiplied as they are, the
//! sums are formed in `f32` and rounded once.
//!
//! Both matrices may lie in memory in any order, and are packed into tiles: by all threads before anything is multiplied, but for the
//! columns of a product of few rows, of which each task packs its own. A block of the result, 32 rows of 32 columns, is summed over all its terms at once, so its bits depend on nothing but the numbers: not on the
//! number of threads, and not on the rows beside it.
//!
//! Matrices of `f32` are multiplied in the same registers where [`MatmulPrecision`](crate::MatmulPrecision) asks for it: each number is split in two
//! parts of `bf16`, and three of their four products are summed.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx;
mod packed;
mod panels;
mod parts;
mod units;

pub(crate) use packed::Packed;
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

/// Rows of a short product, whose columns are packed by the tasks that multiply with them: nobody else needs them.
const SHORT: usize = 512;

/// Bytes of packed columns that a task of a short product multiplies with row after row, and of packed rows that one of another
/// product multiplies with column after column: they stay in its core's second cache.
const NEAR: [usize; 2] = [1024 * 1024, 512 * 1024];

/// Tasks of a short product for each thread, if there are as many columns: so all threads end at about the same time.
const TASKS_OF_A_THREAD: usize = 4;

/// Tasks of another large product at least.
const TASKS: usize = 16;

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
    let packed = (shape[0] > SHORT).then(|| Panels::of_columns(right, units));
    let left = Panels::of_rows(left, units);
    Factors { left, right, packed, bias: bias.as_deref(), units }.multiply_into(out, shape);
}

/// Rows, terms and columns.
fn checked_shape(length: usize, [left, right]: [[usize; 2]; 2], bias: Option<usize>) -> [usize; 3] {
    let ([rows, terms], columns) = (left, right[1]);
    assert!(right[0] == terms && length == rows * columns, "a product of matrices");
    assert!(rows * terms * columns > 0, "a product of something");
    assert!(bias.is_none_or(|length| length == columns), "a bias as long as a row");
    [rows, terms, columns]
}

/// What is multiplied. The columns of a short product are packed by its tasks, so that they are not written to memory and read again.
struct Factors<'a, F> {
    left: Panels,
    right: Matrix<'a, F>,
    packed: Option<Panels>,
    bias: Option<&'a [f32]>,
    units: Units,
}

impl<F: Factor> Factors<'_, F> {
    fn multiply_into<T: Number<Sum = f32>>(&self, out: &mut [T], [rows, terms, columns]: [usize; 3]) {
        let line_bytes = F::TILES * size_of::<Tile>() / PANEL * terms.div_ceil(TERMS);
        let [height, width] = match self.packed {
            Some(_) => task_shape([rows, columns], line_bytes),
            None => [rows.next_multiple_of(PANEL), strip_width(columns, line_bytes, rayon::current_num_threads())],
        };
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
        let own;
        let (first, right) = match &self.packed {
            Some(all) => (place[1] / PANEL, all),
            None => {
                let columns = place[1]..place[1] + out[0].len();
                own = Panels::of_some_columns(self.right.part(0..self.right.shape()[0], columns), self.units);
                (0, &own)
            }
        };
        self.units.within(|| self.multiply_blocks(out, place, |column| right.panel(first + column)));
    }

    /// The same with panels of the right matrix, block by block.
    fn multiply_blocks<'p, T: Number<Sum = f32>>(
        &self,
        out: &mut [&mut [T]],
        place: [usize; 2],
        right: impl Fn(usize) -> &'p [[Tile; 2]],
    ) {
        let mut sums = Sums([[0.0; PANEL]; PANEL]);
        let width = out[0].len();
        for row in (0..out.len()).step_by(PANEL) {
            let left = self.left.panel((place[0] + row) / PANEL);
            let rows = row..out.len().min(row + PANEL);
            for column in (0..width).step_by(PANEL) {
                // SAFETY: `multiply_part` calls this within `Units::within`.
                unsafe { F::multiply(self.units, &mut sums, left, right(column / PANEL)) };
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

/// Columns of a task of a short product, in whole panels, from the bytes of a packed one.
fn strip_width(columns: usize, column_bytes: usize, threads: usize) -> usize {
    let near = (NEAR[0] / column_bytes / PANEL * PANEL).max(PANEL);
    near.min(columns.div_ceil(TASKS_OF_A_THREAD * threads).next_multiple_of(PANEL))
}

/// Rows and columns of a task of another product, both in whole panels, from the bytes of a packed row.
fn task_shape([rows, columns]: [usize; 2], row_bytes: usize) -> [usize; 2] {
    let near = (NEAR[1] / row_bytes).max(PANEL) / PANEL * PANEL;
    let height = near.min(rows.next_multiple_of(PANEL));
    let strips = TASKS.div_ceil(rows.div_ceil(height));
    [height, columns.div_ceil(strips).next_multiple_of(PANEL)]
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
        for [rows, terms, columns] in
            [[1, 1, 1], [3, 5, 2], [32, 32, 32], [33, 31, 65], [40, 70, 17], [5, 64, 200], [520, 40, 70]]
        {
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
        [[300, 200, 500], [600, 200, 250]].into_iter().for_each(assert_threads_change_no_bit);
    }

    fn assert_threads_change_no_bit([rows, terms, columns]: [usize; 3]) {
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
        assert_eq!(strip_width(768, 2 * 3072, 2), 96); // Eight tasks.
        assert_eq!(strip_width(50_257, 2 * 768, 2), 672); // As many columns as stay near.
        assert_eq!(strip_width(10, 2 << 20, 2), 32);
        assert_eq!(task_shape([2048, 1536], 2 * 384), [672, 384]);
        assert_eq!(task_shape([600, 10], 2 << 20), [32, 32]);
    }
}
