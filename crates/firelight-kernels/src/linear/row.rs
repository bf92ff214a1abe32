//! The product of a single row with a large matrix, as every step of a decoder takes it. Each weight is read once, so
//! memory is what counts: it is read in long runs, on all threads.

use crate::flex::{Matrix, Real, add_to, halve, vectorised};
use rayon::prelude::*;

/// Weights that pay for a second thread.
const PARALLEL: usize = 1 << 16;

/// Tasks of a product at least; their number depends on the shape alone, so that the order of the sums does too.
const TASKS: usize = 8;

/// Outputs that a task sums at once: they stay in a core's first cache while rows of weights go by.
const COLUMNS: usize = 4096;

/// Places that rows of weights are read from at once, each of them on and on: memory answers a few long streams faster than
/// one, or than many short ones.
const STREAMS: usize = 4;

/// Lanes that the product with a column is summed in.
const LANES: usize = 16;

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
    let rows = x.len().div_ceil(parts).next_multiple_of(STREAMS);
    let mut partial = vec![T::ZERO; out.len() * parts];
    partial.par_chunks_mut(out.len()).enumerate().for_each(|(part, sums)| {
        let (first, last) = ((part * rows).min(x.len()), ((part + 1) * rows).min(x.len()));
        sums.par_chunks_mut(COLUMNS).enumerate().for_each(|(block, sums)| {
            add_block(sums, &x[first..last], weight.part(first..last, block * COLUMNS..block * COLUMNS + sums.len()));
        });
    });
    partial.chunks_exact(out.len()).for_each(|sums| add_to(out, sums));
}

/// `sums += x weight` for a weight in whole rows, read from several places at once.
fn add_block<T: Real>(sums: &mut [T], x: &[T], weight: Matrix<'_, T>) {
    let stretch = x.len() / STREAMS;
    vectorised(
        #[inline(always)]
        || {
            for first in 0..stretch {
                let places: [usize; STREAMS] = std::array::from_fn(|stream| stream * stretch + first);
                let (x, rows) = (places.map(|row| x[row]), places.map(|row| &weight.row(row)[..sums.len()]));
                for (column, sum) in sums.iter_mut().enumerate() {
                    let mut total = T::ZERO;
                    for stream in 0..STREAMS {
                        total += x[stream] * rows[stream][column];
                    }
                    *sum += total;
                }
            }
            for (row, &x) in (STREAMS * stretch..).zip(&x[STREAMS * stretch..]) {
                for (sum, &weight) in sums.iter_mut().zip(weight.row(row)) {
                    *sum += x * weight;
                }
            }
        },
    );
}

/// The products of `x` with every column; `columns` is the weight transposed. A task reads its columns from two places at
/// once, as rows are read.
fn add_columns<T: Real>(out: &mut [T], x: &[T], columns: Matrix<'_, T>) {
    let width = out.len().div_ceil(4 * TASKS);
    out.par_chunks_mut(width).enumerate().for_each(|(task, out)| {
        let (first, half) = (task * width, out.len() / 2);
        vectorised(
            #[inline(always)]
            || {
                for i in 0..half {
                    let [lower, upper] = products(x, [first + i, first + half + i].map(|column| columns.row(column)));
                    out[i] += lower;
                    out[half + i] += upper;
                }
                if let Some(last) = out.get_mut(2 * half) {
                    *last += products(x, [columns.row(first + 2 * half); 2])[0];
                }
            },
        );
    });
}

/// The products of `x` with two columns, each of which is summed as if it were alone.
#[inline(always)]
fn products<T: Real>(x: &[T], columns: [&[T]; 2]) -> [T; 2] {
    let (x, x_rest) = x.as_chunks::<LANES>();
    let [(first, first_rest), (second, second_rest)] = columns.map(<[T]>::as_chunks::<LANES>);
    let (mut lower, mut upper) = ([T::ZERO; LANES], [T::ZERO; LANES]);
    for ((x, first), second) in x.iter().zip(first).zip(second) {
        add_products(&mut lower, x, first);
        add_products(&mut upper, x, second);
    }
    [with_rest(&lower, x_rest, first_rest), with_rest(&upper, x_rest, second_rest)]
}

/// `sums += x weights` in each lane.
#[inline(always)]
fn add_products<T: Real>(sums: &mut [T; LANES], x: &[T; LANES], weights: &[T; LANES]) {
    for ((sum, &x), &weight) in sums.iter_mut().zip(x).zip(weights) {
        *sum += x * weight;
    }
}

/// The sum of the lanes and of the columns left over. Never inlined: where the compiler sees the ends of both sums, it pairs
/// their lanes and shuffles every weight.
#[inline(never)]
fn with_rest<T: Real>(lanes: &[T; LANES], x: &[T], weights: &[T]) -> T {
    let mut sum = halve(*lanes);
    for (&x, &weight) in x.iter().zip(weights) {
        sum += x * weight;
    }
    sum
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
