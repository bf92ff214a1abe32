//! Products that are formed within one task, one after the other: matrices are packed into memory that is used again.

use super::super::{Matrix, vectorised};
use super::panels::{Factor, PANEL, Panels};
use super::{Sums, Units};
use burn::tensor::bf16;
use std::marker::PhantomData;

/// A matrix that has been packed, or none yet.
pub(crate) struct Packed<F> {
    panels: Panels,
    /// Rows of a left matrix, columns of a right one.
    lines: usize,
    units: Units,
    number: PhantomData<F>,
}

impl<F: Factor> Packed<F> {
    pub(crate) fn new(units: Units) -> Self {
        Self { panels: Panels::default(), lines: 0, units, number: PhantomData }
    }

    /// Takes the rows of a left matrix.
    pub(crate) fn pack_rows(&mut self, rows: Matrix<'_, F>) -> &Self {
        self.pack(rows, false)
    }

    /// Takes the columns of a right matrix.
    pub(crate) fn pack_columns(&mut self, columns: Matrix<'_, F>) -> &Self {
        self.pack(columns.transposed(), true)
    }

    fn pack(&mut self, lines: Matrix<'_, F>, by_term: bool) -> &Self {
        self.panels.fill(lines, self.units, by_term);
        self.lines = lines.shape()[0];
        self
    }

    /// Combines every element of `out`, in whole rows, with its sum in the product of these rows with some columns. Rows of `f32` are in two
    /// parts of `bf16`: their products miss at most `2^-17` of a number. An infinity among the columns becomes a NaN there.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub(crate) fn multiply_into(
        &self,
        out: &mut [f32],
        columns: &Packed<bf16>,
        combine: impl Fn(f32, f32) -> f32 + Copy,
    ) {
        assert!(out.len() == self.lines * columns.lines, "a product of packed matrices");
        let mut sums = Sums([[0.0; PANEL]; PANEL]);
        self.units.within(|| {
            for (row, out) in out.chunks_mut(PANEL * columns.lines).enumerate() {
                for column in 0..columns.lines.div_ceil(PANEL) {
                    let (left, right) = (self.panels.panel(row), columns.panels.panel(column));
                    // SAFETY: this is within the units.
                    unsafe { F::multiply_halves(self.units, &mut sums, left, right) };
                    combine_block(out, columns.lines, column * PANEL, &sums, combine);
                }
            }
        });
    }
}

/// Combines some rows, from a column on, with the sums of a block.
fn combine_block(out: &mut [f32], width: usize, column: usize, sums: &Sums, combine: impl Fn(f32, f32) -> f32 + Copy) {
    let columns = column..width.min(column + PANEL);
    vectorised(
        #[inline(always)]
        || {
            for (out, sums) in out.chunks_exact_mut(width).zip(&sums.0) {
                out[columns.clone()].iter_mut().zip(sums).for_each(|(out, &sum)| *out = combine(*out, sum));
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_same_bits;

    fn numbers(count: usize, phase: f32) -> Vec<f32> {
        (0..count).map(|i| (i as f32 * 0.73 + phase).sin() * 2f32.powi(i as i32 % 9 - 4)).collect()
    }

    #[test]
    fn products_of_integers_are_exact_and_memory_is_used_again() {
        for units in Units::all() {
            let (mut left, mut parts, mut right) = (Packed::new(units), Packed::new(units), Packed::new(units));
            for [rows, terms, columns] in [[70, 65, 40], [1, 1, 1], [33, 31, 65], [32, 64, 32]] {
                let a: Vec<f32> = (0..rows * terms).map(|i| (i % 5) as f32 - 2.0).collect();
                let b: Vec<bf16> = (0..terms * columns).map(|i| bf16::from_f32((i % 7) as f32)).collect();
                let halves: Vec<bf16> = a.iter().copied().map(bf16::from_f32).collect();
                let sum = |i: usize, j: usize| -> f32 {
                    (0..terms).map(|k| a[i * terms + k] * b[k * columns + j].to_f32()).sum()
                };
                let expected: Vec<f32> =
                    (0..rows * columns).map(|i| 1.0 + 2.0 * sum(i / columns, i % columns)).collect();
                let right = right.pack_columns(Matrix::rows(&b, columns));
                let combine = |before: f32, sum: f32| before + 2.0 * sum;
                let mut out = [vec![1.0; rows * columns], vec![1.0; rows * columns]];
                left.pack_rows(Matrix::rows(&halves, terms)).multiply_into(&mut out[0], right, combine);
                parts.pack_rows(Matrix::rows(&a, terms)).multiply_into(&mut out[1], right, combine);
                assert!(out.iter().all(|out| *out == expected), "{rows} x {terms} x {columns} by {units:?}");
            }
        }
    }

    #[test]
    fn rows_in_parts_keep_many_more_digits_than_bf16_on_every_unit() {
        let [rows, terms, columns] = [40, 300, 50];
        let a = numbers(rows * terms, 0.0);
        let b: Vec<bf16> = numbers(terms * columns, 1.0).into_iter().map(bf16::from_f32).collect();
        let found: Vec<Vec<f32>> = Units::all()
            .into_iter()
            .map(|units| {
                let (mut left, mut right) = (Packed::new(units), Packed::new(units));
                let mut out = vec![f32::NAN; rows * columns];
                let right = right.pack_columns(Matrix::rows(&b, columns));
                left.pack_rows(Matrix::rows(&a, terms)).multiply_into(&mut out, right, |_, sum| sum);
                out
            })
            .collect();
        for (i, &sum) in found[0].iter().enumerate() {
            let terms =
                (0..terms).map(|k| f64::from(a[i / columns * terms + k]) * b[k * columns + i % columns].to_f64());
            let (exact, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + f64::abs(term)));
            assert!((f64::from(sum) - exact).abs() < 2f64.powi(-16) * size, "{sum} {exact}");
        }
        found[1..].iter().for_each(|other| assert_same_bits(&found[0], other));
    }
}
