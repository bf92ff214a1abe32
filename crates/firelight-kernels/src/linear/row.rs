//! The product of a single row, or of a few, with a large matrix, as every step of a decoder takes it. Each weight is read from memory once,
//! so memory is what counts: it is read in long runs, on all threads. The sums of a row are the same to the bit whatever rows are beside it.

use crate::flex::{Matrix, Number, Real, add_to, by_columns, halve, simd, vectorised};
use rayon::prelude::*;
use std::ops::Range;

/// Rows that are multiplied with a weight in whole rows this way, at most. With more of them a product that packs the weight is as fast.
const ROWS: usize = 32;

/// The same for a weight in whole columns, whose product needs no packing: see [`multiply_few`](super::few::multiply_few).
const ROWS_FOR_COLUMNS: usize = 5;

/// Weights that pay for a second thread.
const PARALLEL: usize = 1 << 16;

/// Tasks of a product at least; their number depends on the shape alone, so that the order of the sums does too.
const TASKS: usize = 8;

/// Columns of a task: the sums of a single row stay in a core's first cache while rows of weights go by.
const COLUMNS: usize = 4096;

/// Places that rows of weights are read from, whose products are added up before they join a sum.
const STREAMS: usize = 4;

/// Rows that are read at once behind each of these places, on and on: memory answers some long streams faster than one, or than many
/// short ones.
const FOLLOWING: usize = 4;

/// Columns whose sums stay in registers, of up to eight rows, while those streams are added.
const TILE: usize = 32;

/// Lanes that the product with a column is summed in.
const LANES: usize = 16;

/// Whether [`add_rows`] serves so many rows and a weight: they are few, and it is large and lies in whole rows or whole columns. Never
/// without fused multiply-adds, which would be calls.
pub(super) fn are_long<W: Number>(rows: usize, weight: &Matrix<'_, W>) -> bool {
    let [d_in, d_out] = weight.shape();
    let most = match weight.has_whole_rows() {
        true => ROWS,
        false if weight.transposed().has_whole_rows() => ROWS_FOR_COLUMNS,
        false => 0,
    };
    simd::has_fma() && (1..=most).contains(&rows) && d_in * d_out >= PARALLEL
}

/// `out += x weight`, for `x` in whole rows and a weight that may be of half precision.
pub(super) fn add_rows<W: Number>(out: &mut [W::Sum], x: Matrix<'_, W::Sum>, weight: Matrix<'_, W>) {
    if weight.has_whole_rows() { add_weighted(out, x, weight) } else { add_columns(out, x, weight.transposed()) }
}

/// The sums of weighted rows. A task has some of the rows, and some of the columns where they are many.
fn add_weighted<W: Number>(out: &mut [W::Sum], x: Matrix<'_, W::Sum>, weight: Matrix<'_, W>) {
    let [d_in, d_out] = weight.shape();
    let blocks = d_out.div_ceil(COLUMNS);
    let parts = TASKS.div_ceil(blocks);
    let length = d_in.div_ceil(parts).next_multiple_of(STREAMS);
    let columns = |task: usize| (task % blocks) * COLUMNS..d_out.min((task % blocks + 1) * COLUMNS);
    let sums = (0..parts * blocks).into_par_iter().map(|task| {
        let part = task / blocks;
        let rows = (part * length).min(d_in)..((part + 1) * length).min(d_in);
        sums_of(x.part(0..x.shape()[0], rows.clone()), weight.part(rows, columns(task)))
    });
    let sums: Vec<Vec<W::Sum>> = sums.collect();
    out.par_chunks_exact_mut(d_out).enumerate().for_each(|(row, out)| {
        for (columns, sums) in sums.iter().enumerate().map(|(task, sums)| (columns(task), sums)) {
            add_to(&mut out[columns.clone()], &sums[row * columns.len()..][..columns.len()]);
        }
    });
}

/// `x weight` for a weight in whole rows.
fn sums_of<W: Number>(x: Matrix<'_, W::Sum>, weight: Matrix<'_, W>) -> Vec<W::Sum> {
    let [d_in, d_out] = weight.shape();
    let mut sums = vec![W::Sum::ZERO; x.shape()[0] * d_out];
    let stretch = d_in / STREAMS;
    vectorised(
        #[inline(always)]
        || {
            if x.shape()[0] == 1 {
                for first in 0..stretch {
                    add_places(&mut sums, x.row(0), weight, stretch, first);
                }
            } else {
                for first in (0..stretch).step_by(FOLLOWING) {
                    add_streams(&mut sums, x, weight, stretch, first..stretch.min(first + FOLLOWING));
                }
            }
            for place in STREAMS * stretch..d_in {
                for (row, sums) in sums.chunks_exact_mut(d_out).enumerate() {
                    let x = x.row(row)[place];
                    for (sum, weight) in sums.iter_mut().zip(weight.row(place)) {
                        *sum = x.mul_add(weight.widen(), *sum);
                    }
                }
            }
        },
    );
    sums
}

/// Adds the shares of one place of every stretch to the sums of a single row, which needs no tiles, in the same order.
#[inline(always)]
fn add_places<W: Number>(sums: &mut [W::Sum], x: &[W::Sum], weight: Matrix<'_, W>, stretch: usize, first: usize) {
    let places: [usize; STREAMS] = std::array::from_fn(|stream| stream * stretch + first);
    let (x, rows) = (places.map(|row| x[row]), places.map(|row| &weight.row(row)[..sums.len()]));
    for (column, sum) in sums.iter_mut().enumerate() {
        for stream in 0..STREAMS {
            *sum = x[stream].mul_add(rows[stream][column].widen(), *sum);
        }
    }
}

/// What a row has for the streams: a number for each of the places that are added up, one set after the other.
type Numbers<T> = [[T; STREAMS]; FOLLOWING];

/// Adds the shares of rows of weights that are read at once: those at some places of every stretch.
#[inline(always)]
fn add_streams<W: Number>(
    sums: &mut [W::Sum],
    x: Matrix<'_, W::Sum>,
    weight: Matrix<'_, W>,
    stretch: usize,
    places: Range<usize>,
) {
    let (rows, d_out, sets) = (x.shape()[0], weight.shape()[1], places.len());
    let place = |set: usize, stream: usize| stream * stretch + places.start + set.min(sets - 1);
    let weights: [[&[W]; STREAMS]; FOLLOWING] =
        std::array::from_fn(|set| std::array::from_fn(|stream| weight.row(place(set, stream))));
    let numbers = |row: usize| std::array::from_fn(|set| std::array::from_fn(|stream| x.row(row)[place(set, stream)]));
    let numbers: [Numbers<W::Sum>; ROWS] = std::array::from_fn(|row| numbers(row.min(rows - 1)));
    let weights = &weights[..sets];
    for column in (0..d_out - d_out % TILE).step_by(TILE) {
        let mut row = 0;
        while row < rows {
            row += match rows - row {
                8.. => add_tile::<W, 8>(sums, d_out, [row, column], &numbers, weights),
                4.. => add_tile::<W, 4>(sums, d_out, [row, column], &numbers, weights),
                2.. => add_tile::<W, 2>(sums, d_out, [row, column], &numbers, weights),
                _ => add_tile::<W, 1>(sums, d_out, [row, column], &numbers, weights),
            };
        }
    }
    for (numbers, sums) in numbers.iter().zip(sums.chunks_exact_mut(d_out)) {
        for column in d_out - d_out % TILE..d_out {
            for ([a, b, c, d], [first, second, third, fourth]) in numbers.iter().zip(weights) {
                for (number, row) in [(a, first), (b, second), (c, third), (d, fourth)] {
                    sums[column] = number.mul_add(row[column].widen(), sums[column]);
                }
            }
        }
    }
}

/// Adds to the sums of `R` rows and [`TILE`] columns. Returns how many rows that are.
#[inline(always)]
fn add_tile<W: Number, const R: usize>(
    sums: &mut [W::Sum],
    d_out: usize,
    [row, column]: [usize; 2],
    numbers: &[Numbers<W::Sum>; ROWS],
    weights: &[[&[W]; STREAMS]],
) -> usize {
    let place = row * d_out + column;
    let mut tile = [[W::Sum::ZERO; TILE]; R];
    for (row, tile) in tile.iter_mut().enumerate() {
        tile.copy_from_slice(&sums[place + row * d_out..][..TILE]);
    }
    let numbers = &numbers[row..row + R];
    for (set, [first, second, third, fourth]) in weights.iter().enumerate() {
        let (first, second) = (tile_at(first, column), tile_at(second, column));
        let (third, fourth) = (tile_at(third, column), tile_at(fourth, column));
        for (row, tile) in tile.iter_mut().enumerate() {
            let [a, b, c, d] = numbers[row][set];
            for lane in 0..TILE {
                let sum = b.mul_add(second[lane], a.mul_add(first[lane], tile[lane]));
                tile[lane] = d.mul_add(fourth[lane], c.mul_add(third[lane], sum));
            }
        }
    }
    for (row, tile) in tile.iter().enumerate() {
        sums[place + row * d_out..][..TILE].copy_from_slice(tile);
    }
    R
}

/// The weights of a tile's columns.
#[inline(always)]
fn tile_at<W: Number>(weights: &[W], column: usize) -> [W::Sum; TILE] {
    let weights: &[W; TILE] =
        weights[column..].first_chunk().unwrap_or_else(|| unreachable!("tiles end with the rows"));
    let mut wide = [W::Sum::ZERO; TILE];
    for lane in 0..TILE {
        wide[lane] = weights[lane].widen();
    }
    wide
}

/// The products of rows `x` with every column; `columns` is the weight transposed. A task reads its columns from two places at
/// once, as rows are read.
fn add_columns<W: Number>(out: &mut [W::Sum], x: Matrix<'_, W::Sum>, columns: Matrix<'_, W>) {
    let d_out = columns.shape()[0];
    let rows: Vec<&[W::Sum]> = (0..x.shape()[0]).map(|row| x.row(row)).collect();
    let width = d_out.div_ceil(4 * TASKS);
    by_columns(out, d_out, width).into_par_iter().enumerate().for_each(|(task, mut out)| {
        let (first, length) = (task * width, out[0].len());
        let half = length / 2;
        vectorised(
            #[inline(always)]
            || {
                for i in 0..half {
                    let pair = [first + i, first + half + i].map(|column| columns.row(column));
                    for (x, out) in rows.iter().zip(&mut out) {
                        let [lower, upper] = products(x, pair);
                        out[i] += lower;
                        out[half + i] += upper;
                    }
                }
                if length > 2 * half {
                    let last = [columns.row(first + 2 * half); 2];
                    for (x, out) in rows.iter().zip(&mut out) {
                        out[2 * half] += products(x, last)[0];
                    }
                }
            },
        );
    });
}

/// The products of `x` with two columns, each of which is summed as if it were alone.
#[inline(always)]
fn products<W: Number>(x: &[W::Sum], columns: [&[W]; 2]) -> [W::Sum; 2] {
    let (x, x_rest) = x.as_chunks::<LANES>();
    let [(first, first_rest), (second, second_rest)] = columns.map(<[W]>::as_chunks::<LANES>);
    let (mut lower, mut upper) = ([W::Sum::ZERO; LANES], [W::Sum::ZERO; LANES]);
    for ((x, first), second) in x.iter().zip(first).zip(second) {
        add_products(&mut lower, x, first);
        add_products(&mut upper, x, second);
    }
    [with_rest(&lower, x_rest, first_rest), with_rest(&upper, x_rest, second_rest)]
}

/// `sums += x weights` in each lane.
#[inline(always)]
fn add_products<W: Number>(sums: &mut [W::Sum; LANES], x: &[W::Sum; LANES], weights: &[W; LANES]) {
    for ((sum, &x), weight) in sums.iter_mut().zip(x).zip(weights) {
        *sum = x.mul_add(weight.widen(), *sum);
    }
}

/// The sum of the lanes and of the columns left over. Never inlined: where the compiler sees the ends of both sums, it pairs
/// their lanes and shuffles every weight. So it has no vector instructions, and multiplies and adds by themselves.
#[inline(never)]
fn with_rest<W: Number>(lanes: &[W::Sum; LANES], x: &[W::Sum], weights: &[W]) -> W::Sum {
    let mut sum = halve(*lanes);
    for (&x, weight) in x.iter().zip(weights) {
        sum += x * weight.widen();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_columns_of_every_length_equal_the_sums() {
        for (rows, d_in, d_out) in
            [(1, 7, 3), (1, 8, 70), (1, 61, 4096), (3, 17, 9000), (1, 3, 1), (2, 9, 5), (32, 13, 600), (5, 40, 4097)]
        {
            let x: Vec<f64> = (0..rows * d_in).map(|i| (i % 5) as f64 - 2.0).collect();
            let weight: Vec<f64> = (0..d_in * d_out).map(|i| (i % 7) as f64 - 3.0).collect();
            let at = |i, j, strides: [usize; 2]| weight[i * strides[0] + j * strides[1]];
            for strides in [[d_out, 1], [1, d_in]] {
                let sum = |row: usize, j| 1.0 + (0..d_in).map(|i| x[row * d_in + i] * at(i, j, strides)).sum::<f64>();
                let expected = (0..rows).flat_map(|row| (0..d_out).map(move |j| sum(row, j)));
                let mut out = vec![1.0; rows * d_out];
                let weight = Matrix::new(&weight, 0, [d_in, d_out], strides.map(|stride| stride as isize));
                add_rows(&mut out, Matrix::rows(&x, d_in), weight);
                assert_eq!(out, expected.collect::<Vec<_>>(), "{rows} rows, {d_in} to {d_out}");
            }
        }
    }

    #[test]
    fn a_row_has_the_same_bits_whatever_rows_are_beside_it() {
        let (rows, d_in, d_out) = (19, 101, 5000);
        let numbers = |count: usize| (0..count).map(|i| (i as f32 * 0.37).sin()).collect::<Vec<_>>();
        let (x, weight) = (numbers(rows * d_in), numbers(d_in * d_out));
        for strides in [[d_out, 1], [1, d_in]] {
            let weight = Matrix::new(&weight, 0, [d_in, d_out], strides.map(|stride| stride as isize));
            let mut together = vec![0.0; rows * d_out];
            add_rows(&mut together, Matrix::rows(&x, d_in), weight);
            for (x, together) in x.chunks_exact(d_in).zip(together.chunks_exact(d_out)) {
                let mut alone = vec![0.0; d_out];
                add_rows(&mut alone, Matrix::rows(x, d_in), weight);
                assert_eq!(alone, together);
            }
        }
    }

    #[test]
    fn many_rows_and_small_weights_go_another_way() {
        if !simd::has_fma() {
            return; // No rows go this way.
        }
        let values = [0.0f32; 1 << 16];
        let weight = Matrix::rows(&values, 256);
        assert!(are_long(32, &weight) && are_long(1, &weight.transposed()));
        assert!(are_long(5, &weight.transposed()) && !are_long(6, &weight.transposed()));
        assert!(!are_long(0, &weight) && !are_long(33, &weight) && !are_long(1, &weight.part(0..255, 0..256)));
    }
}
