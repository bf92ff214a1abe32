//! Matrix products on views, through the `gemm` crate that Burn's flex backend multiplies with.

use super::{Number, Real};
use std::marker::PhantomData;
use std::ops::Range;

/// A matrix to read: a first element, and the distance to the next row and the next column.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a, T> {
    first: *const T,
    rows: usize,
    columns: usize,
    strides: [isize; 2],
    lifetime: PhantomData<&'a [T]>,
}

// SAFETY: a matrix is a shared slice that is read in another order.
unsafe impl<T: Sync> Send for Matrix<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Matrix<'_, T> {}

impl<'a, T: Number> Matrix<'a, T> {
    /// The matrix of shape `[rows, columns]` that begins at `values[offset]`.
    ///
    /// # Panics
    /// If an element lies outside `values`.
    pub(crate) fn new(values: &'a [T], offset: usize, [rows, columns]: [usize; 2], strides: [isize; 2]) -> Self {
        assert!(fits(values.len(), offset, [rows, columns], strides), "a view of a matrix leaves its buffer");
        Self { first: values[offset..].as_ptr(), rows, columns, strides, lifetime: PhantomData }
    }

    /// The matrix of whole rows of `columns` elements.
    pub(crate) fn rows(values: &'a [T], columns: usize) -> Self {
        Self::new(values, 0, [values.len() / columns.max(1), columns], [columns as isize, 1])
    }

    /// `[rows, columns]`.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    /// Whether the elements of a row stand side by side.
    pub(crate) fn has_whole_rows(&self) -> bool {
        self.strides[1] == 1
    }

    /// A row.
    ///
    /// # Panics
    /// If there is no such row, or its elements do not stand side by side.
    #[inline(always)]
    pub(crate) fn row(&self, row: usize) -> &'a [T] {
        assert!(row < self.rows && self.strides[1] == 1, "a row that a matrix does not have");
        // SAFETY: the constructor checked that every element lies in the buffer, and these are some of them.
        unsafe { std::slice::from_raw_parts(self.first.offset(row as isize * self.strides[0]), self.columns) }
    }

    /// An element.
    ///
    /// # Panics
    /// If there is no such element.
    pub(crate) fn at(&self, row: usize, column: usize) -> T {
        assert!(row < self.rows && column < self.columns, "an element that a matrix does not have");
        // SAFETY: the constructor checked that every element lies in the buffer, and this is one of them.
        unsafe { *self.first.offset(row as isize * self.strides[0] + column as isize * self.strides[1]) }
    }

    /// Some of the rows and columns.
    ///
    /// # Panics
    /// If there are not so many.
    pub(crate) fn part(self, rows: Range<usize>, columns: Range<usize>) -> Self {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows that a matrix does not have");
        assert!(columns.start <= columns.end && columns.end <= self.columns, "columns that a matrix does not have");
        let offset = match rows.is_empty() || columns.is_empty() {
            true => 0,
            false => rows.start as isize * self.strides[0] + columns.start as isize * self.strides[1],
        };
        // SAFETY: as above.
        let first = unsafe { self.first.offset(offset) };
        Self { first, rows: rows.len(), columns: columns.len(), ..self }
    }

    /// Rows and columns exchanged.
    pub(crate) fn transposed(self) -> Self {
        let ([a, b], rows, columns) = (self.strides, self.columns, self.rows);
        Self { rows, columns, strides: [b, a], ..self }
    }
}

/// A matrix to write.
pub(crate) struct MatrixMut<'a, T> {
    first: *mut T,
    rows: usize,
    columns: usize,
    strides: [isize; 2],
    lifetime: PhantomData<&'a mut [T]>,
}

impl<'a, T: Real> MatrixMut<'a, T> {
    /// As [`Matrix::new`].
    ///
    /// # Panics
    /// If an element lies outside `values`.
    pub(crate) fn new(values: &'a mut [T], [rows, columns]: [usize; 2], row_stride: usize) -> Self {
        let strides = [row_stride as isize, 1];
        assert!(fits(values.len(), 0, [rows, columns], strides), "a view of a matrix leaves its buffer");
        Self { first: values.as_mut_ptr(), rows, columns, strides, lifetime: PhantomData }
    }

    /// The matrix whose first element a pointer names.
    ///
    /// # Safety
    /// The pointer must be valid for writes of all elements, which nobody else touches while the matrix lives.
    pub(crate) unsafe fn from_pointer(first: *mut T, [rows, columns]: [usize; 2], row_stride: usize) -> Self {
        Self { first, rows, columns, strides: [row_stride as isize, 1], lifetime: PhantomData }
    }

    /// The matrix of whole rows of `columns` elements.
    pub(crate) fn rows(values: &'a mut [T], columns: usize) -> Self {
        let rows = values.len() / columns.max(1);
        Self::new(values, [rows, columns], columns)
    }

    /// The same for a shorter time.
    pub(crate) fn reborrow(&mut self) -> MatrixMut<'_, T> {
        MatrixMut {
            first: self.first,
            rows: self.rows,
            columns: self.columns,
            strides: self.strides,
            lifetime: PhantomData,
        }
    }

    /// Strips of `width` columns and what is left.
    pub(crate) fn into_strips(self, width: usize) -> Vec<Self> {
        let (mut strips, mut rest) = (Vec::new(), self);
        while rest.columns > width {
            let (strip, others) = rest.split_at_column(width);
            strips.push(strip);
            rest = others;
        }
        strips.push(rest);
        strips
    }

    /// The first `rows` rows, and the others.
    fn split_at_row(self, rows: usize) -> (Self, Self) {
        assert!(rows < self.rows, "rows that a matrix does not have");
        // SAFETY: the row is one of the matrix, and the two parts have none in common.
        let first = unsafe { self.first.offset(rows as isize * self.strides[0]) };
        let others = Self { first, rows: self.rows - rows, lifetime: PhantomData, ..self };
        (Self { rows, ..self }, others)
    }

    /// The first `columns` columns, and the others.
    fn split_at_column(self, columns: usize) -> (Self, Self) {
        assert!(columns < self.columns, "columns that a matrix does not have");
        // SAFETY: as for rows.
        let first = unsafe { self.first.offset(columns as isize * self.strides[1]) };
        let others = Self { first, columns: self.columns - columns, lifetime: PhantomData, ..self };
        (Self { columns, ..self }, others)
    }
}

// SAFETY: a matrix is a mutable slice that is written in another order.
unsafe impl<T: Send> Send for MatrixMut<'_, T> {}

fn fits(length: usize, offset: usize, shape: [usize; 2], strides: [isize; 2]) -> bool {
    if shape.contains(&0) {
        return offset <= length;
    }
    let ends = [0, 1].map(|d| (shape[d] - 1) as isize * strides[d]);
    let least = offset as isize + ends.iter().filter(|end| **end < 0).sum::<isize>();
    let most = offset as isize + ends.iter().filter(|end| **end > 0).sum::<isize>();
    least >= 0 && most < length as isize
}

/// Multiplications that pay for a second thread where the threads are [`awake`](crate::awake): 16 rows with a matrix of 256 x
/// 256, which take some 20 microseconds.
const PARALLEL: usize = 1 << 20;

/// `out = keep * out + factor * left right`, where `keep` is 0 or 1; on several threads if `parallel`.
///
/// # Panics
/// If the shapes do not fit.
pub(crate) fn product<T: Real>(
    out: MatrixMut<'_, T>,
    keep: bool,
    left: Matrix<'_, T>,
    right: Matrix<'_, T>,
    factor: T,
    parallel: bool,
) {
    assert!(
        left.rows == out.rows && right.columns == out.columns && left.columns == right.rows,
        "a product of matrices"
    );
    let threads = if parallel && is_large(&out, &left) { gemm::Parallelism::Rayon(0) } else { gemm::Parallelism::None };
    // SAFETY: the constructors checked that every element of the three views lies in its buffer, and `out` is borrowed
    // mutably, so it overlaps neither.
    unsafe {
        gemm::gemm(
            out.rows,
            out.columns,
            left.columns,
            out.first,
            out.strides[1],
            out.strides[0],
            keep,
            left.first,
            left.strides[1],
            left.strides[0],
            right.first,
            right.strides[1],
            right.strides[0],
            T::ONE,
            factor,
            false,
            false,
            false,
            threads,
        );
    }
}

fn is_large<T>(out: &MatrixMut<'_, T>, left: &Matrix<'_, T>) -> bool {
    out.rows.saturating_mul(out.columns).saturating_mul(left.columns) >= PARALLEL
}

/// Rows or columns that a thread computes, at least. Where a product has no more of either, the `gemm` crate cuts the sums
/// elsewhere, and the bits of a result would depend on the number of threads.
const PART: usize = 64;

/// `out = left right`, where each thread computes a part of `out` by itself: for the gradient of a weight, a small matrix of
/// long sums. Threads that share the packed blocks of one product wait for one another at each of the many blocks of such
/// sums.
///
/// # Panics
/// If the shapes do not fit.
pub(crate) fn product_of_long_sums<T: Real>(out: MatrixMut<'_, T>, left: Matrix<'_, T>, right: Matrix<'_, T>) {
    let threads = if is_large(&out, &left) { rayon::current_num_threads() } else { 1 };
    product_in_parts(out, left, right, threads);
}

fn product_in_parts<T: Real>(out: MatrixMut<'_, T>, left: Matrix<'_, T>, right: Matrix<'_, T>, threads: usize) {
    let ([rows, columns], terms) = ([out.rows, out.columns], left.columns);
    let (long, short) = (rows.max(columns), rows.min(columns));
    let part = if short > PART { PART } else { 2 * PART };
    if threads < 2 || long < 2 * part {
        return product(out, false, left, right, T::ONE, threads > 1);
    }
    let (few, many) = (threads / 2, threads.div_ceil(2));
    let at = (long * few / threads).next_multiple_of(part).min(long - part);
    let ((out, other), lefts, rights) = match rows >= columns {
        true => (out.split_at_row(at), [left.part(0..at, 0..terms), left.part(at..rows, 0..terms)], [right; 2]),
        false => (out.split_at_column(at), [left; 2], [right.part(0..terms, 0..at), right.part(0..terms, at..columns)]),
    };
    rayon::join(
        || product_in_parts(out, lefts[0], rights[0], few),
        || product_in_parts(other, lefts[1], rights[1], many),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_of_views_by_hand() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0f32], [5.0, 6.0, 7.0, 8.0f32]);
        let mut out = vec![1.0f32; 4];
        product(MatrixMut::rows(&mut out, 2), true, Matrix::rows(&a, 2), Matrix::rows(&b, 2).transposed(), 2.0, false);
        // 1 + 2 [[1, 2], [3, 4]] [[5, 7], [6, 8]].
        assert_eq!(out, [35.0, 47.0, 79.0, 107.0]);
    }

    #[test]
    fn strips_are_the_columns_of_a_matrix() {
        let (ones, mut out) = ([1.0f32; 7], vec![0.0; 2 * 7]);
        for (i, mut strip) in MatrixMut::rows(&mut out, 7).into_strips(3).into_iter().enumerate() {
            let columns = Matrix::rows(&ones, 7).part(0..1, 3 * i..7.min(3 * i + 3));
            let left = [i as f32, 10.0];
            product(strip.reborrow(), false, Matrix::rows(&left, 1), columns, 1.0, false);
            product(strip, true, Matrix::rows(&left, 1), columns, 1.0, false);
        }
        assert_eq!(out, [0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 4.0, 20.0, 20.0, 20.0, 20.0, 20.0, 20.0, 20.0]);
    }

    #[test]
    fn parts_equal_the_whole_to_the_bit() {
        let shapes = [(64, 127, 9), (128, 128, 700), (130, 515, 65), (517, 200, 300), (3, 2000, 640), (192, 192, 2080)];
        for (rows, columns, terms) in shapes {
            let numbers = |count: usize| (0..count).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect::<Vec<_>>();
            let (a, b) = (numbers(terms * rows), numbers(terms * columns));
            let (left, right) = (Matrix::rows(&a, rows).transposed(), Matrix::rows(&b, columns));
            let by = |threads: usize| {
                let mut out = vec![f32::NAN; rows * columns];
                product_in_parts(MatrixMut::rows(&mut out, columns), left, right, threads);
                out
            };
            let whole = by(1);
            let sum: f32 = (0..terms).map(|k| a[k * rows + rows - 1] * b[k * columns + columns - 1]).sum();
            assert!((whole[rows * columns - 1] / sum - 1.0).abs() < 1e-4);
            for threads in [2, 3, 5, 16] {
                assert_eq!(by(threads), whole, "{rows} x {columns} in {threads} parts");
            }
        }
    }

    #[test]
    #[should_panic(expected = "leaves its buffer")]
    fn a_view_outside_its_buffer_panics() {
        Matrix::new(&[0.0f32; 5], 0, [2, 3], [3, 1]);
    }
}
