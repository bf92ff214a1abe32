//! Products of many rows: some rows, or columns, of blocks become numbers at a time, and are multiplied as any matrix is. What a task
//! computes depends on the shapes alone, so that the bits of a result do, too.

use super::matrix::BlockMatrix;
use crate::flex::halves::{self, Units};
use crate::flex::{Matrix, MatrixMut, Number, filled, for_each_block, product};
use burn::tensor::bf16;
use rayon::prelude::*;

/// Rows of blocks that become numbers at once, at most.
const PANEL: usize = 256;

/// Tasks of a product at least, if there are so many panels.
const TASKS: usize = 16;

/// Rows of a gradient that a task computes.
const ROWS: usize = 256;

/// Columns of a gradient that a task computes, at least.
const COLUMNS: usize = 128;

/// `x weightᵀ + bias`.
pub(super) fn multiply(x: Matrix<'_, f32>, weight: BlockMatrix<'_>, bias: Option<&[f32]>) -> Vec<f32> {
    let ([rows, d_in], d_out) = (x.shape(), weight.shape()[0]);
    filled(rows * d_out, |out| {
        if let Some(bias) = bias {
            let fill =
                |_: usize, out: &mut [f32]| out.chunks_exact_mut(d_out).for_each(|out| out.copy_from_slice(bias));
            for_each_block(out, d_out, fill);
        }
        let height = d_out.div_ceil(TASKS).next_multiple_of(32).min(PANEL);
        let strips = MatrixMut::rows(out, d_out).into_strips(height);
        strips.into_par_iter().enumerate().for_each(|(panel, out)| {
            let outputs = panel * height..d_out.min((panel + 1) * height);
            let numbers: Vec<f32> = weight.numbers(outputs, &(0..d_in));
            product(out, bias.is_some(), x, Matrix::rows(&numbers, d_in).transposed(), 1.0, false);
        });
    })
}

/// `grad weight`.
pub(super) fn input_gradient(grad: Matrix<'_, f32>, weight: BlockMatrix<'_>) -> Vec<f32> {
    let (rows, [d_out, d_in]) = (grad.shape()[0], weight.shape());
    let width = weight.format().numbers().max(COLUMNS);
    filled(rows * d_in, |out| {
        let parts = out.chunks_mut(ROWS * d_in).enumerate().flat_map(|(part, out)| {
            let strips = MatrixMut::rows(out, d_in).into_strips(width).into_iter().enumerate();
            strips.map(move |(strip, out)| ([part * ROWS, strip * width], out))
        });
        parts.collect::<Vec<_>>().into_par_iter().for_each(|([row, column], mut out)| {
            let (rows, columns) = (row..rows.min(row + ROWS), column..d_in.min(column + width));
            for first in (0..d_out).step_by(PANEL) {
                let outputs = first..d_out.min(first + PANEL);
                let numbers: Vec<f32> = weight.numbers(outputs.clone(), &columns);
                let numbers = Matrix::rows(&numbers, columns.len());
                product(out.reborrow(), first > 0, grad.part(rows.clone(), outputs), numbers, 1.0, false);
            }
        });
    })
}

/// Numbers of `bf16` that a panel has, at most, but for a single row or block: 4 MiB.
const HALVES: usize = 1 << 21;

/// As [`multiply`] in `bf16`, rounded once, one panel after the other: a product has all threads.
pub(super) fn multiply_in_halves(
    x: Matrix<'_, bf16>,
    weight: BlockMatrix<'_>,
    bias: Option<&[bf16]>,
    units: Units,
) -> Vec<bf16> {
    let ([rows, d_in], d_out) = (x.shape(), weight.shape()[0]);
    let height = (HALVES / d_in).clamp(32, 1024).min(d_out);
    filled(rows * d_out, |out| {
        for first in (0..d_out).step_by(height) {
            let outputs = first..d_out.min(first + height);
            let numbers = weight.numbers_by_all(outputs.clone(), &(0..d_in));
            let (numbers, bias) = (Matrix::rows(&numbers, d_in), bias.map(|bias| &bias[outputs.clone()]));
            let panel: Vec<bf16> = filled(rows * outputs.len(), |panel| {
                halves::product(panel, x, numbers.transposed(), bias, units);
            });
            copy_columns(out, d_out, first, &panel, outputs.len());
        }
    })
}

/// As [`input_gradient`] in `bf16`, rounded once: a panel has all rows of some columns, for sums are never cut.
pub(super) fn input_gradient_in_halves(grad: Matrix<'_, bf16>, weight: BlockMatrix<'_>, units: Units) -> Vec<bf16> {
    let (rows, [d_out, d_in]) = (grad.shape()[0], weight.shape());
    let width = (HALVES / d_out).clamp(1, 1024).next_multiple_of(256);
    filled(rows * d_in, |out| {
        for first in (0..d_in).step_by(width) {
            let columns = first..d_in.min(first + width);
            let numbers = weight.numbers_by_all(0..d_out, &columns);
            let numbers = Matrix::rows(&numbers, columns.len());
            let panel: Vec<bf16> = filled(rows * columns.len(), |panel| {
                halves::product(panel, grad, numbers, None, units);
            });
            copy_columns(out, d_in, first, &panel, columns.len());
        }
    })
}

/// Writes a panel of `width` columns to the columns from `first` on of rows of `length` numbers.
fn copy_columns<N: Number>(out: &mut [N], length: usize, first: usize, panel: &[N], width: usize) {
    for_each_block(out, length, |row, out| {
        for (out, panel) in out.chunks_exact_mut(length).zip(panel[row * width..].chunks_exact(width)) {
            out[first..first + width].copy_from_slice(panel);
        }
    });
}
