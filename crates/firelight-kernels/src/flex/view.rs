//! Tensors of four dimensions read and written where they lie.

use super::{Matrix, MatrixMut, Number, Real};
use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::Shape;
use std::marker::PhantomData;
use std::ops::Range;

/// `[B, heads, rows, width]` to read; the elements of a row lie side by side.
pub(crate) struct View<'a, T> {
    values: &'a [T],
    offset: usize,
    pub(crate) shape: [usize; 4],
    strides: [isize; 4],
}

impl<'a, T: Number> View<'a, T> {
    /// The tensor must be [`readable`].
    pub(crate) fn new(tensor: &'a FlexTensor) -> Self {
        let (shape, strides) = shape_and_strides(tensor);
        Self { values: T::storage(tensor), offset: tensor.layout().start_offset(), shape, strides }
    }

    /// Some rows of a head.
    pub(crate) fn matrix(&self, batch: usize, head: usize, rows: &Range<usize>) -> Matrix<'a, T> {
        let strides = [self.strides[2], self.strides[3]];
        Matrix::new(self.values, self.start(batch, head, rows.start), [rows.len(), self.shape[3]], strides)
    }

    pub(crate) fn row(&self, batch: usize, head: usize, row: usize) -> &'a [T] {
        &self.values[self.start(batch, head, row)..][..self.shape[3]]
    }

    fn start(&self, batch: usize, head: usize, row: usize) -> usize {
        let [b, h, r, _] = self.strides;
        (self.offset as isize + batch as isize * b + head as isize * h + row as isize * r) as usize
    }
}

/// The tensor with the elements of a row side by side, copied only if they are not.
pub(crate) fn readable(tensor: &FlexTensor) -> FlexTensor {
    let (shape, strides) = shape_and_strides(tensor);
    if strides[3] == 1 || shape[3] == 1 { tensor.clone() } else { tensor.to_contiguous() }
}

/// Where a row of a tensor of any dimensions begins, counted in row-major order.
pub(crate) fn start_of_row(layout: &Layout, mut row: usize) -> usize {
    let (shape, strides) = (layout.shape(), layout.strides());
    let mut start = layout.start_offset() as isize;
    for d in (0..shape.num_dims() - 1).rev() {
        start += (row % shape[d]) as isize * strides[d];
        row /= shape[d];
    }
    start as usize
}

fn shape_and_strides(tensor: &FlexTensor) -> ([usize; 4], [isize; 4]) {
    let layout = tensor.layout();
    (std::array::from_fn(|d| layout.shape()[d]), std::array::from_fn(|d| layout.strides()[d]))
}

/// `[B | 1, H | 1, Q | 1, K | 1]` to read as `[B, H, Q, K]`.
pub(crate) struct Broadcast<'a, N> {
    values: &'a [N],
    offset: usize,
    shape: [usize; 4],
    strides: [isize; 4],
}

impl<'a, N: Copy> Broadcast<'a, N> {
    pub(crate) fn new(tensor: &'a FlexTensor, values: &'a [N]) -> Self {
        let (shape, strides) = shape_and_strides(tensor);
        Self::with_strides(values, tensor.layout().start_offset(), shape, strides)
    }

    /// `[1, H | 1, 1, Q + K - 1]`, of which query `i` reads column `Q - 1 + j - i` for key `j`.
    pub(crate) fn by_distance(tensor: &'a FlexTensor, values: &'a [N], queries: usize) -> Self {
        let ([_, heads, _, distances], [_, head, _, step]) = shape_and_strides(tensor);
        let offset = tensor.layout().start_offset() as isize + (queries as isize - 1) * step;
        let shape = [1, heads, queries, distances + 1 - queries];
        Self::with_strides(values, offset as usize, shape, [0, head, -step, step])
    }

    /// `[B, K]`, equal for all heads and queries.
    pub(crate) fn of_keys(tensor: &'a FlexTensor, values: &'a [N]) -> Self {
        let layout = tensor.layout();
        let (shape, strides) = ([layout.shape()[0], 1, 1, layout.shape()[1]], layout.strides());
        Self::with_strides(values, layout.start_offset(), shape, [strides[0], 0, 0, strides[1]])
    }

    fn with_strides(values: &'a [N], offset: usize, shape: [usize; 4], strides: [isize; 4]) -> Self {
        let strides = std::array::from_fn(|d| if shape[d] == 1 { 0 } else { strides[d] });
        Self { values, offset, shape, strides }
    }

    /// Whether all queries read the same row.
    pub(crate) fn is_one_row(&self) -> bool {
        self.shape[2] == 1
    }

    /// Calls `body` with some keys of a row: their index counted from the first, and their value.
    #[inline(always)]
    pub(crate) fn for_each_key(
        &self,
        [batch, head, query]: [usize; 3],
        keys: &Range<usize>,
        mut body: impl FnMut(usize, N),
    ) {
        let [b, h, q, k] = self.strides;
        let start = self.offset as isize + batch as isize * b + head as isize * h + query as isize * q;
        let start = start + keys.start as isize * k;
        if k == 1 {
            let row = &self.values[start as usize..][..keys.len()];
            row.iter().enumerate().for_each(|(i, &value)| body(i, value));
        } else {
            (0..keys.len()).for_each(|i| body(i, self.values[(start + i as isize * k) as usize]));
        }
    }
}

/// A new tensor `[B, H, Q, F]` whose rows tasks write, each row one task at a time.
pub(crate) struct Rows<'a, T> {
    first: *mut T,
    length: usize,
    strides: [usize; 3],
    width: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: threads share the pointer alone; who dereferences it promises that no two threads have the same rows.
unsafe impl<T: Send> Sync for Rows<'_, T> {}

impl<'a, T: Real> Rows<'a, T> {
    pub(crate) fn new(values: &'a mut [T], shape: [usize; 4], by_token: bool) -> Self {
        let [b, h, r, _] = strides_of(shape, by_token);
        let (length, width) = (values.len(), shape[3]);
        Self { first: values.as_mut_ptr(), length, strides: [b, h, r], width, lifetime: PhantomData }
    }

    /// A row to write.
    ///
    /// # Safety
    /// As long as it lives nobody else may have this row.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn row(&self, batch: usize, head: usize, row: usize) -> &mut [T] {
        let start = self.start(batch, head, &(row..row + 1));
        // SAFETY: `start` has checked that the row lies in the buffer, and the caller keeps others away.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(start), self.width) }
    }

    /// Some rows of a head to write; those of other heads may lie between them.
    ///
    /// # Safety
    /// As long as it lives nobody else may have one of its rows.
    pub(crate) unsafe fn matrix(&self, batch: usize, head: usize, rows: &Range<usize>) -> MatrixMut<'_, T> {
        let start = self.start(batch, head, rows);
        // SAFETY: `start` has checked that the rows lie in the buffer, and the caller keeps others away.
        unsafe { MatrixMut::from_pointer(self.first.add(start), [rows.len(), self.width], self.strides[2]) }
    }

    fn start(&self, batch: usize, head: usize, rows: &Range<usize>) -> usize {
        let [b, h, r] = self.strides;
        let start = batch * b + head * h + rows.start * r;
        assert!(start + rows.len().saturating_sub(1) * r + self.width <= self.length, "rows leave their buffer");
        start
    }
}

/// Whether the heads of a token lie side by side, as a projection leaves them; the results are then laid out alike, and
/// joining the heads again moves nothing.
pub(crate) fn is_by_token(tensor: &FlexTensor) -> bool {
    let (shape, strides) = shape_and_strides(tensor);
    shape[1] > 1 && shape[2] > 1 && strides[1] < strides[2]
}

fn strides_of([_, h, q, f]: [usize; 4], by_token: bool) -> [usize; 4] {
    if by_token { [q * h * f, f, h * f, 1] } else { [h * q * f, q * f, f, 1] }
}

/// The tensor of rows that were written in this order.
pub(crate) fn into_tensor<T: Real>(values: Vec<T>, shape: [usize; 4], by_token: bool) -> FlexTensor {
    let strides = strides_of(shape, by_token).map(|stride| stride as isize);
    let layout = Layout::new(Shape::from(shape.to_vec()), strides.to_vec(), 0);
    let flat = Shape::from(vec![values.len()]);
    T::tensor(values, flat).with_layout(layout)
}
