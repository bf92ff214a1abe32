//! The look-up on the flex backend: rows copied forward; backward every row of the weight adds up its tokens, in parallel
//! over the rows, so that no two tasks write to one place.

use super::{EmbeddingExtension, EmbeddingKernel};
use crate::flex::{BLOCK, Number, Real, block_rows, contiguous, filled, for_each_block, integers, values, vectorised};
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, Shape, bf16, f16};
use rayon::prelude::*;

impl EmbeddingExtension for Flex {
    fn rows_of(weight: FlexTensor, tokens: FlexTensor) -> FlexTensor {
        Self::gather(weight, tokens)
    }
}

/// Calls a function with the type of the elements of a tensor.
macro_rules! with_number {
    ($tensor:expr, $function:ident($($argument:expr),*)) => {
        match $tensor.dtype() {
            DType::F64 => $function::<f64>($($argument),*),
            DType::F16 => $function::<f16>($($argument),*),
            DType::BF16 => $function::<bf16>($($argument),*),
            _ => $function::<f32>($($argument),*),
        }
    };
}

impl EmbeddingKernel for Flex {
    fn gather(weight: FlexTensor, tokens: FlexTensor) -> FlexTensor {
        with_number!(weight, gather(weight, tokens))
    }

    fn scatter(grad: FlexTensor, tokens: FlexTensor, vocab_size: usize) -> FlexTensor {
        with_number!(grad, scatter(grad, tokens, vocab_size))
    }
}

/// The rows that the tokens name, in the order of the tokens.
///
/// # Panics
/// If there is no such row.
fn rows(tokens: &FlexTensor, vocab_size: usize) -> Vec<usize> {
    let row = |(place, token): (usize, i64)| {
        let row = usize::try_from(token).ok().filter(|&row| row < vocab_size);
        row.unwrap_or_else(|| panic!("embedding: token {token} at {place} is not one of {vocab_size} rows"))
    };
    integers(tokens).into_iter().enumerate().map(row).collect()
}

fn gather<N: Number>(weight: FlexTensor, tokens: FlexTensor) -> FlexTensor {
    let weight = contiguous(weight);
    let [vocab_size, width] = [0, 1].map(|d| weight.layout().shape()[d]);
    let (numbers, rows) = (values::<N>(&weight), rows(&tokens, vocab_size));
    let out = filled(rows.len() * width, |out| {
        for_each_block(out, width, |first, out| {
            for (out, &row) in out.chunks_exact_mut(width).zip(&rows[first..]) {
                out.copy_from_slice(&numbers[row * width..][..width]);
            }
        });
    });
    let [batch, length] = [0, 1].map(|d| tokens.layout().shape()[d]);
    N::tensor(out, Shape::from(vec![batch, length, width]))
}

fn scatter<N: Number>(grad: FlexTensor, tokens: FlexTensor, vocab_size: usize) -> FlexTensor {
    let grad = contiguous(grad);
    let width = grad.layout().shape()[2];
    let (numbers, tokens_by_row) = (values::<N>(&grad), TokensByRow::new(&rows(&tokens, vocab_size), vocab_size));
    let out = filled(vocab_size * width, |out| {
        // Small blocks, for a few rows may have most of the tokens.
        let block = block_rows(width).min(vocab_size.div_ceil(64)) * width;
        let sum = |(index, out): (usize, &mut [N])| add_up(out, numbers, &tokens_by_row, index * block / width, width);
        if numbers.len() + out.len() <= 4 * BLOCK {
            out.chunks_mut(block).enumerate().for_each(sum);
        } else {
            out.par_chunks_mut(block).enumerate().for_each(sum);
        }
    });
    N::tensor(out, Shape::from(vec![vocab_size, width]))
}

/// Writes the rows from `first` on, each the sum of its tokens' gradients.
fn add_up<N: Number>(out: &mut [N], numbers: &[N], tokens_by_row: &TokensByRow, first: usize, width: usize) {
    let mut sums = vec![N::Sum::ZERO; width];
    vectorised(
        #[inline(always)]
        || {
            for (row, out) in out.chunks_exact_mut(width).enumerate() {
                sums.fill(N::Sum::ZERO);
                for &place in tokens_by_row.of(first + row) {
                    let gradient = &numbers[place * width..][..width];
                    sums.iter_mut().zip(gradient).for_each(|(sum, gradient)| *sum += gradient.widen());
                }
                out.iter_mut().zip(&sums).for_each(|(out, &sum)| *out = N::round(sum));
            }
        },
    );
}

/// The tokens of every row, in order: a counting sort.
struct TokensByRow {
    ends: Vec<usize>,
    tokens: Vec<usize>,
}

impl TokensByRow {
    fn new(rows: &[usize], vocab_size: usize) -> Self {
        let mut ends = vec![0; vocab_size + 1];
        rows.iter().for_each(|&row| ends[row + 1] += 1);
        (0..vocab_size).for_each(|row| ends[row + 1] += ends[row]);
        // Now the beginning of every row, which moves to its end.
        let mut tokens = vec![0; rows.len()];
        for (place, &row) in rows.iter().enumerate() {
            tokens[ends[row]] = place;
            ends[row] += 1;
        }
        Self { ends, tokens }
    }

    fn of(&self, row: usize) -> &[usize] {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.tokens[start..self.ends[row]]
    }
}
