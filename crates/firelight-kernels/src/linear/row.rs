//! The product of a single row with a large matrix, as every step of a decoder takes it. Each weight is read once, so
//! memory is what counts: it is read in long runs, on all threads.

use crate::flex::{Matrix, Real, add_to, sum, vectorised};
use rayon::prelude::*;

/// Weights that pay for a second thread.
const PARALLEL: usize = 1 << 16;

/// Tasks of a product at least; their number depends on the shape alone, so that the order of the sums does too.
const TASKS: usize = 8;

/// Outputs that a task sums at once: they stay in a core's first cache while rows of weights go by.
const COLUMNS: usize = 4096;

/// Rows of weights that are read side by side.
const ROWS: usize = 8;

/// Whether [`add_row`] serves a weight: it is large, and lies in whole rows or whole columns.
pub(super) fn is_long<T: Real>(weight: &Matrix<'_, T>) -> bool {
    let [d_in, d_out] = weight.shape();
    d_in * d_out >= PARALLEL && (weight.has_whole_rows() || weight.transposed().has_whole_rows())
}

/// `out += x weight`.
pub(super) fn add_row<T: Real>(out: &mut [T], x: &[T], weight: Matrix<'_, T>) {
    if weight.has_whole_rows() { add_rows(out, x, weight) } else { add_columns(out, x, weight.transposed()) }
}

/// The sum of weighted rows. A task has some of the rows, and some of the columns where they are many.
fn add_rows<T: Real>(out: &mut [T], x: &[T], weight: Matrix<'_, T>) {
    let parts = TASKS.div_ceil(out.len().div_ceil(COLUMNS));
    let rows = x.len().div_ceil(parts).next_multiple_of(ROWS);
    let mut partial = vec![T::ZERO; out.len() * parts];
    partial.par_chunks_mut(out.len()).enumerate().for_each(|(part, sums)| {
        let (first, last) = ((part * rows).min(x.len()), ((part + 1) * rows).min(x.len()));
        sums.par_chunks_mut(COLUMNS).enumerate().for_each(|(block, sums)| {
            add_block(sums, &x[first..last], weight.part(first..last, block * COLUMNS..block * COLUMNS + sums.len()));
        });
    });
    partial.chunks_exact(out.len()).for_each(|sums| add_to(out, sums));
}

/// `sums += x weight` for a weight in whole rows, several of them side by side.
fn add_block<T: Real>(sums: &mut [T], x: &[T], weight: Matrix<'_, T>) {
    let whole = x.len() / ROWS * ROWS;
    vectorised(
        #[inline(always)]
        || {
            for first in (0..whole).step_by(ROWS) {
                let x: [T; ROWS] = std::array::from_fn(|row| x[first + row]);
                let rows: [&[T]; ROWS] = std::array::from_fn(|row| &weight.row(first + row)[..sums.len()]);
                for (column, sum) in sums.iter_mut().enumerate() {
                    let mut total = T::ZERO;
                    for row in 0..ROWS {
                        total += x[row] * rows[row][column];
                    }
                    *sum += total;
                }
            }
            for (row, &x) in (whole..).zip(&x[whole..]) {
                for (sum, &weight) in sums.iter_mut().zip(weight.row(row)) {
                    *sum += x * weight;
                }
            }
        },
    );
}

/// The products of `x` with every column; `columns` is the weight transposed.
fn add_columns<T: Real>(out: &mut [T], x: &[T], columns: Matrix<'_, T>) {
    let width = out.len().div_ceil(4 * TASKS);
    out.par_chunks_mut(width).enumerate().for_each(|(task, out)| {
        vectorised(
            #[inline(always)]
            || {
                for (i, out) in out.iter_mut().enumerate() {
                    *out += sum([x, columns.row(task * width + i)], |[x, weight]| x * weight);
                }
            },
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_columns_of_every_length_equal_the_sums() {
        for (d_in, d_out) in [(7, 3), (8, 70), (61, 4096), (17, 9000), (3, 1)] {
            let x: Vec<f64> = (0..d_in).map(|i| (i % 5) as f64 - 2.0).collect();
            let weight: Vec<f64> = (0..d_in * d_out).map(|i| (i % 7) as f64 - 3.0).collect();
            let at = |i, j, strides: [usize; 2]| weight[i * strides[0] + j * strides[1]];
            for strides in [[d_out, 1], [1, d_in]] {
                let expected = (0..d_out).map(|j| 1.0 + (0..d_in).map(|i| x[i] * at(i, j, strides)).sum::<f64>());
                let mut out = vec![1.0; d_out];
                add_row(&mut out, &x, Matrix::new(&weight, 0, [d_in, d_out], strides.map(|s| s as isize)));
                assert_eq!(out, expected.collect::<Vec<_>>());
            }
        }
    }
}
