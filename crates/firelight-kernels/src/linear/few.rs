//! The product of some dozen rows with a large matrix in whole columns: the logits of a large batch of decoders whose head is tied. A
//! product packs such a matrix first, which takes as long as multiplying a few rows by it; its transpose, `weightᵀ xᵀ`,
//! packs the rows and reads the matrix where it lies.

use crate::flex::{Matrix, MatrixMut, Real, by_columns, product};
use rayon::prelude::*;

/// Rows for which the transpose is the faster way, at most.
const ROWS: usize = 128;

/// Columns of a task: what it multiplies is still in its core's second cache when it is turned round.
const COLUMNS: usize = 1024;

/// Whether [`multiply_few`] is the way to multiply rows `x` with a weight.
pub(super) fn are_few<T: Real>(x: &Matrix<'_, T>, weight: &Matrix<'_, T>) -> bool {
    x.shape()[0] <= ROWS && weight.shape()[1] >= 2 * COLUMNS && weight.transposed().has_whole_rows()
}

/// `out = x weight`.
pub(super) fn multiply_few<T: Real>(out: &mut [T], x: Matrix<'_, T>, weight: Matrix<'_, T>) {
    let ([rows, d_in], d_out) = (x.shape(), weight.shape()[1]);
    by_columns(out, d_out, COLUMNS).into_par_iter().enumerate().for_each(|(task, mut out)| {
        let first = task * COLUMNS;
        let columns = weight.part(0..d_in, first..d_out.min(first + COLUMNS)).transposed();
        let mut products = vec![T::ZERO; columns.shape()[0] * rows];
        product(MatrixMut::rows(&mut products, rows), false, columns, x.transposed(), T::ONE, false);
        for (row, out) in out.iter_mut().enumerate() {
            out.iter_mut().zip(products[row..].iter().step_by(rows)).for_each(|(out, &product)| *out = product);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_rows_equal_the_sums() {
        for (rows, d_in, d_out) in [(2, 3, 2048), (5, 17, 2500), (33, 8, 3071), (128, 2, 2049)] {
            let x: Vec<f64> = (0..rows * d_in).map(|i| (i % 5) as f64 - 2.0).collect();
            let weight: Vec<f64> = (0..d_out * d_in).map(|i| (i % 7) as f64 - 3.0).collect();
            let (left, right) = (Matrix::rows(&x, d_in), Matrix::rows(&weight, d_in).transposed());
            assert!(are_few(&left, &right));
            let mut out = vec![f64::NAN; rows * d_out];
            multiply_few(&mut out, left, right);
            for (place, &found) in out.iter().enumerate() {
                let (row, column) = (place / d_out, place % d_out);
                let sum: f64 = (0..d_in).map(|i| x[row * d_in + i] * weight[column * d_in + i]).sum();
                assert_eq!(found, sum, "{rows} rows of {d_in}: row {row}, column {column}");
            }
        }
    }

    #[test]
    fn many_rows_few_columns_and_whole_rows_go_the_usual_way() {
        let values = [0.0f32; 2 * 4096];
        let (x, weight) = (Matrix::rows(&values[..8], 2), Matrix::rows(&values, 2).transposed());
        assert!(are_few(&x, &weight));
        assert!(!are_few(&Matrix::rows(&values[..2 * 129], 2), &weight));
        assert!(!are_few(&x, &weight.part(0..2, 0..2047)));
        assert!(!are_few(&x, &Matrix::rows(&values, 4096)));
    }
}
