//! The documents of packed rows, as what outlives a pass keeps them: a name for each token, `[B, T]`. The cache keeps those of all
//! tokens, the history of a convolution those of the few that it reads.

use burn::tensor::{Device, Int, Tensor};

/// The documents of tokens that were read `before`, `[B, P]`, and of `[B, T]` new ones behind them: `[B, P + T]`. New tokens that name
/// none belong to the last document of their row.
pub(crate) fn extended(
    before: Tensor<2, Int>,
    new: Option<Tensor<2, Int>>,
    [batch, length]: [usize; 2],
) -> Tensor<2, Int> {
    let last = before.clone().narrow(1, before.dims()[1] - 1, 1);
    Tensor::cat(vec![before, new.unwrap_or_else(|| last.expand([batch, length]))], 1)
}

/// The documents of some rows that are put below others.
pub(crate) struct DocumentRows {
    /// `[B, T]`, if any are named.
    pub(crate) documents: Option<Tensor<2, Int>>,
    /// `[B, T]`, the rows and their tokens.
    pub(crate) shape: [usize; 2],
    pub(crate) device: Device,
}

/// The documents of the rows of all `batches`, one below the other, `[B + B', T]` of the longest `T`, if any are named. Rows without
/// documents are one, with the smallest of the names. Shorter rows are padded on the left, by a name that no token has.
pub(crate) fn joined(batches: Vec<DocumentRows>) -> Option<Tensor<2, Int>> {
    let named = batches.iter().filter_map(|rows| rows.documents.clone());
    let smallest = named.map(|documents| documents.min().into_scalar::<i64>()).min()?;
    let longest = batches.iter().map(|rows| rows.shape[1]).max()?;
    let padded = |DocumentRows { documents, shape: [rows, length], device }: DocumentRows| {
        let names = |length, name: i64| Tensor::<2, Int>::full([rows, length], name, &device);
        let own = documents.unwrap_or_else(|| names(length, smallest));
        Tensor::cat(vec![names(longest - length, smallest - 1), own], 1)
    };
    Some(Tensor::cat(batches.into_iter().map(padded).collect(), 0))
}
