//! A matrix in blocks to read.

use crate::BlockFormat;
use crate::blocks::{CHUNK, Chunk};
use crate::flex::{Number, filled, vectorised};
use burn::backend::flex::FlexTensor;
use rayon::prelude::*;
use std::ops::Range;

/// Rows of blocks, one behind the other.
#[derive(Clone, Copy)]
pub(super) struct BlockMatrix<'a> {
    bytes: &'a [u8],
    format: BlockFormat,
    /// `[rows, columns]`.
    shape: [usize; 2],
}

impl<'a> BlockMatrix<'a> {
    /// That of a contiguous tensor, `[rows, bytes of a row]`, which is not empty.
    pub(super) fn of(tensor: &'a FlexTensor, format: BlockFormat) -> Self {
        let (start, end) = tensor.layout().contiguous_offsets().expect("the tensor was made contiguous");
        let shape = tensor.layout().shape();
        Self::new(&tensor.storage::<u8>()[start..end], format, [shape[0], super::width(format, shape[1])])
    }

    /// # Panics
    /// If the bytes are not those of the shape, or this is empty.
    pub(super) fn new(bytes: &'a [u8], format: BlockFormat, shape: [usize; 2]) -> Self {
        let row = format.row_bytes(shape[1]);
        assert!(row.is_some_and(|row| row > 0 && row * shape[0] == bytes.len()), "rows of whole blocks");
        Self { bytes, format, shape }
    }

    pub(super) fn format(&self) -> BlockFormat {
        self.format
    }

    /// `[rows, columns]`.
    pub(super) fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// The blocks of a row.
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> &'a [u8] {
        let length = self.bytes.len() / self.shape[0];
        &self.bytes[row * length..][..length]
    }

    /// Some columns, whole blocks of them, of some rows as numbers: `[rows, columns]`, read by this thread.
    pub(super) fn numbers<N: Number<Sum = f32>>(&self, rows: Range<usize>, columns: &Range<usize>) -> Vec<N> {
        filled(rows.len() * columns.len(), |out| self.fill(out, rows, columns))
    }

    /// The same, read by all threads.
    pub(super) fn numbers_by_all<N: Number<Sum = f32>>(&self, rows: Range<usize>, columns: &Range<usize>) -> Vec<N> {
        const ROWS: usize = 16;
        filled(rows.len() * columns.len(), |out| {
            out.par_chunks_mut(ROWS * columns.len()).enumerate().for_each(|(task, out)| {
                let first = rows.start + task * ROWS;
                self.fill(out, first..rows.end.min(first + ROWS), columns);
            });
        })
    }

    fn fill<N: Number<Sum = f32>>(&self, out: &mut [N], rows: Range<usize>, columns: &Range<usize>) {
        let place = |column: usize| column / self.format.numbers() * self.format.bytes();
        let part = place(columns.start)..place(columns.end);
        vectorised(
            #[inline(always)]
            || {
                let (mut chunk, mut wide) = (Chunk::ZERO, [0.0; CHUNK]);
                for (row, out) in rows.clone().zip(out.chunks_exact_mut(columns.len())) {
                    let bytes = self.row(row)[part.clone()].chunks(self.format.chunk_bytes());
                    for (bytes, out) in bytes.zip(out.chunks_mut(CHUNK)) {
                        chunk.unpack(self.format, bytes);
                        chunk.expand(&mut wide);
                        out.iter_mut().zip(&wide).for_each(|(out, &number)| *out = N::round(number));
                    }
                }
            },
        );
    }
}
