//! The positions of the tokens of a pass.

use burn::tensor::{Bool, Device, Int, Tensor};
use std::ops::Range;

/// The positions of the tokens of one pass, counted in tokens from 0, padding not counted.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Positions {
    /// Every row stands at `start .. start + len`.
    Contiguous {
        /// Position of the first token.
        start: usize,
        /// Number of tokens.
        len: usize,
    },
    /// Every row has its own, `[B, T]`, all below `bound`.
    PerRow {
        /// `[B, T]`.
        index: Tensor<2, Int>,
        /// One more than the largest position there can be.
        bound: usize,
    },
    /// Every token has a coordinate on each of several axes: row and column of a patch, or time, row and column. On one axis it is its position.
    Coordinates {
        /// `[1 | B, T, A]`.
        values: Tensor<3>,
        /// Number of tokens that the pass can see.
        len: usize,
    },
}

impl Positions {
    /// `len` positions from `start` on, the same in every row.
    pub fn contiguous(start: usize, len: usize) -> Self {
        Self::Contiguous { start, len }
    }

    /// The positions of `tokens`, of which the last is the last of the row: `documents` and `padding` are `[B, K]`, of all tokens.
    pub(crate) fn of(
        documents: Option<&Tensor<2, Int>>,
        padding: Option<&Tensor<2, Bool>>,
        tokens: Range<usize>,
    ) -> Self {
        match (documents, padding) {
            (Some(documents), padding) => Self::from_documents(documents, padding, tokens.len()),
            (None, Some(padding)) => Self::from_padding(padding, tokens.len()),
            (None, None) => Self::contiguous(tokens.start, tokens.len()),
        }
    }

    /// Counts the tokens that are not padding: `padding` is `[B, K]`, of which the last `len` tokens are this pass's.
    /// With padding on the left the first real token stands at 0, wherever the row begins.
    pub fn from_padding(padding: &Tensor<2, Bool>, len: usize) -> Self {
        let [_, keys] = padding.dims();
        let count = padding.clone().bool_not().int().cumsum(1);
        let index = (count - 1).clamp_min(0).narrow(1, keys - len, len);
        Self::PerRow { index, bound: keys }
    }

    /// Counts the tokens of each document from 0, padding not counted: `documents` and `padding` are `[B, K]`, of which
    /// the last `len` tokens are this pass's.
    pub fn from_documents(documents: &Tensor<2, Int>, padding: Option<&Tensor<2, Bool>>, len: usize) -> Self {
        let [batch, keys] = documents.dims();
        let shape = [batch, len, keys];
        let queries = documents.clone().narrow(1, keys - len, len).unsqueeze_dim::<3>(2).expand(shape);
        let other = queries.not_equal(documents.clone().unsqueeze_dim::<3>(1).expand(shape));
        let future = Tensor::<2, Bool>::tril_mask([len, keys], (keys - len) as i64, &documents.device());
        let mut skipped = other.bool_or(future.unsqueeze::<3>().expand(shape));
        if let Some(padding) = padding {
            skipped = skipped.bool_or(padding.clone().unsqueeze_dim::<3>(1).expand(shape));
        }
        let count = skipped.bool_not().int().sum_dim(2).squeeze_dim::<2>(2); // [B, T]
        Self::PerRow { index: (count - 1).clamp_min(0), bound: keys }
    }

    /// One more than the largest position there can be: the number of tokens that the pass can see.
    pub fn bound(&self) -> usize {
        match self {
            Self::Contiguous { start, len } => start + len,
            Self::PerRow { bound, .. } => *bound,
            Self::Coordinates { len, .. } => *len,
        }
    }

    /// Coordinates of a token: 1 in text.
    pub fn n_axes(&self) -> usize {
        match self {
            Self::Contiguous { .. } | Self::PerRow { .. } => 1,
            Self::Coordinates { values, .. } => values.dims()[2],
        }
    }

    /// The rows of `table`, `[P, D]`, at these positions: `[1 | B, T, D]`.
    pub(crate) fn rows_of(&self, table: Tensor<2>) -> Tensor<3> {
        match self {
            Self::Contiguous { start, len } => table.narrow(0, *start, *len).unsqueeze(),
            Self::PerRow { .. } | Self::Coordinates { .. } => {
                let index = self.index(&table.device());
                firelight_kernels::embedding(table, index)
            }
        }
    }

    /// Each position times each frequency, in radians: `[1 | B, T, F]`.
    pub(crate) fn angles(&self, frequencies: &[f64], device: &Device) -> Tensor<3> {
        self.index(device).float().unsqueeze_dim::<3>(2) * row(frequencies.iter().copied(), device)
    }

    /// For each axis and frequency the coordinate on that axis times the frequency, in radians: `[1 | B, T, F]`. Where a token
    /// has one position, it is that on every axis.
    pub(crate) fn turned(&self, turns: &[(usize, f64)], device: &Device) -> Tensor<3> {
        let frequencies = row(turns.iter().map(|(_, frequency)| *frequency), device);
        let values = match self {
            Self::Coordinates { values, .. } if self.n_axes() == 1 => return values.clone() * frequencies,
            Self::Coordinates { values, .. } => values,
            _ => return self.index(device).float().unsqueeze_dim::<3>(2) * frequencies,
        };
        let axes: Vec<i64> = turns.iter().map(|(axis, _)| *axis as i64).collect();
        values.clone().select(2, Tensor::from_ints(axes.as_slice(), device)) * frequencies
    }

    /// How many tokens each key stands after each query, negative for the past: `[1 | B, Q, K]`.
    pub(crate) fn distances(&self, keys: &Self, device: &Device) -> Tensor<3, Int> {
        keys.index(device).unsqueeze_dim::<3>(1) - self.index(device).unsqueeze_dim::<3>(2)
    }

    /// The distances of [`distances`](Self::distances) where all rows stand alike: that of the last query to the first key,
    /// and so on to that of the first query to the last key.
    pub(crate) fn common_distances(&self, keys: &Self) -> Option<Range<i64>> {
        let (Self::Contiguous { start, len }, Self::Contiguous { start: first, len: keys }) = (self, keys) else {
            return None;
        };
        let nearest = *first as i64 - (start + len) as i64 + 1;
        Some(nearest..nearest + (len + keys) as i64 - 1)
    }

    /// `[1 | B, T]`.
    ///
    /// # Panics
    /// If a token has several coordinates.
    pub(crate) fn index(&self, device: &Device) -> Tensor<2, Int> {
        match self {
            Self::Contiguous { start, len } => {
                Tensor::<1, Int>::arange(*start as i64..(start + len) as i64, device).unsqueeze()
            }
            Self::PerRow { index, .. } => index.clone(),
            Self::Coordinates { values, .. } if self.n_axes() == 1 => values.clone().squeeze_dim::<2>(2).int(),
            Self::Coordinates { .. } => panic!(
                "the position scheme knows one position a token, not {} coordinates: use rotary positions with axes",
                self.n_axes()
            ),
        }
    }
}

/// `[1, 1, F]`.
fn row(numbers: impl Iterator<Item = f64>, device: &Device) -> Tensor<3> {
    let numbers: Vec<f32> = numbers.map(|number| number as f32).collect();
    Tensor::<1>::from_floats(numbers.as_slice(), device).unsqueeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_not_counted() {
        let device = Device::default();
        let padding = Tensor::<2, Bool>::from_bool([[true, true, false, false], [false, false, false, true]], &device);
        let Positions::PerRow { index, bound } = Positions::from_padding(&padding, 3) else {
            panic!("padding gives rows of their own");
        };
        assert_eq!(index.try_to_vec_as::<i64>().expect("a host copy"), [0, 0, 1, 1, 2, 2]);
        assert_eq!(bound, 4);
    }

    #[test]
    fn one_coordinate_is_the_position() {
        let device = Device::default();
        let values = Tensor::<2>::from_floats([[4.0, 0.0, 2.0]], &device).unsqueeze_dim::<3>(2);
        let given = Positions::Coordinates { values, len: 3 };
        assert_eq!(given.index(&device).try_to_vec_as::<i64>().expect("a host copy"), [4, 0, 2]);
        let table = Tensor::<2>::from_floats([[0.0], [1.0], [2.0], [3.0], [4.0]], &device);
        let rows = given.rows_of(table).try_to_vec_as::<f32>().expect("a host copy");
        assert_eq!(rows, [4.0, 0.0, 2.0]);
        // Of three axes each turns as the one coordinate says.
        let turned = given.turned(&[(0, 1.0), (2, 0.5)], &device).try_to_vec_as::<f32>().expect("a host copy");
        assert_eq!(turned, [4.0, 2.0, 0.0, 0.0, 2.0, 1.0]);
    }

    #[test]
    fn every_document_begins_at_0() {
        let device = Device::default();
        let documents = Tensor::<2, Int>::from_ints([[5, 5, 2, 2, 2]], &device);
        let padding = Tensor::<2, Bool>::from_bool([[false, false, true, false, false]], &device);
        let index = |padding, len| {
            let Positions::PerRow { index, .. } = Positions::from_documents(&documents, padding, len) else {
                panic!("documents give rows of their own");
            };
            index.try_to_vec_as::<i64>().expect("a host copy")
        };
        assert_eq!(index(None, 5), [0, 1, 0, 1, 2]);
        assert_eq!(index(Some(&padding), 4), [1, 0, 0, 1]);
    }
}
