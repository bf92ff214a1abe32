//! The product of a row, or of a few, as every step of a decoder takes it. Memory is what counts: each block is read once, and the rows are
//! rounded to eight bits, for which processors have instructions that keep up with memory.

use super::activations::Activations;
use super::dot_kernel::{Accumulators, DotKernel};
use super::matrix::BlockMatrix;
use crate::flex::by_columns;
use rayon::prelude::*;

/// Rows that are multiplied this way, at most. With more of them it pays to make numbers of the blocks.
pub(super) const ROWS: usize = 32;

/// Multiplications that pay for a second thread.
const PARALLEL: usize = 1 << 16;

/// Rows of blocks of a task, at least, and tasks for each thread. No bit of a result depends on either.
const OUTPUTS: usize = 16;
const TASKS: usize = 4;

/// `x weightᵀ + bias`, for rows `x` of whole groups of 32.
pub(super) fn multiply_few(x: &[f32], weight: BlockMatrix<'_>, bias: Option<&[f32]>) -> Vec<f32> {
    let ([d_out, d_in], kernel) = (weight.shape(), DotKernel::chosen());
    let (rows, x) = (x.len() / d_in, Activations::of(x, d_in));
    let mut out = vec![0.0; rows * d_out];
    let fill = |first: usize, mut out: Vec<&mut [f32]>| {
        let blocks = (first..first + out[0].len()).map(|row| weight.row(row));
        kernel.multiply(weight.format(), blocks, &x, &mut vec![Accumulators::ZERO; rows], |column, row, sum| {
            out[row][column] = bias.map_or(sum, |bias| sum + bias[first + column]);
        });
    };
    if rows * d_out * d_in < PARALLEL {
        fill(0, out.chunks_exact_mut(d_out).collect());
    } else {
        let width = d_out.div_ceil(TASKS * rayon::current_num_threads()).max(OUTPUTS);
        let tasks = by_columns(&mut out, d_out, width);
        tasks.into_par_iter().enumerate().for_each(|(task, out)| fill(task * width, out));
    }
    out
}
