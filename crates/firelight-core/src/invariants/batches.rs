//! What holds in a batch: neither padding nor the other rows change the outputs of a row, nor do packed documents each other's.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

use super::{Violation, compare, noise, some};

/// Padding must change nothing for the other tokens, whatever stands in its place.
///
/// `forward` maps `[B, T, X]` and the flags of the padding, `[B, T]`, true where a token is padding, to `[B, T, Y]`.
/// `sides` tokens are added before and after `x`. A model whose attention pattern counts padding, as chunks do, bears
/// none on the left.
///
/// # Errors
/// The first row whose tokens see the padding, or stand elsewhere because of it.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::invariants::padding;
/// use firelight_core::{Pass, SequenceInput, TransformerConfig};
///
/// let device = Device::flex();
/// let model = TransformerConfig::new(8, 2, 1).init(&device);
/// let forward = |x, flags| {
///     model.forward(x, &SequenceInput::default().with_padding(flags), &mut Pass::default())
/// };
/// assert!(padding(forward, Tensor::ones([2, 3, 8], &device), [2, 1], 1e-5).is_ok());
/// ```
pub fn padding(
    forward: impl Fn(Tensor<3>, Tensor<2, Bool>) -> Tensor<3>,
    x: Tensor<3>,
    sides: [usize; 2],
    tolerance: f64,
) -> Result<(), Violation> {
    let ([batch, length, width], device) = (x.dims(), x.device());
    some("padding changes nothing", "rows", batch)?;
    let flags = |length, padded: bool| Tensor::<2, Int>::full([batch, length], i64::from(padded), &device).bool();
    let alone = forward(x.clone(), flags(length, false));
    // What stands there is far off, so that a trace of it shows.
    let junk =
        sides.map(|side| (side > 0).then(|| (noise([batch, side, width], side, &device) * 10.0, flags(side, true))));
    let [before, after] = junk;
    let parts: Vec<_> = [before, Some((x, flags(length, false))), after].into_iter().flatten().collect();
    let (parts, padded): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let found = forward(Tensor::cat(parts, 1), Tensor::cat(padded, 1)).narrow(1, sides[0], length);
    for row in 0..batch {
        let [alone, found] = [&alone, &found].map(|output| output.clone().narrow(0, row, 1));
        compare("padding changes nothing", format!("row {row}"), alone, found, tolerance)?;
    }
    Ok(())
}

/// A row of a batch must have the outputs that it has alone.
///
/// `forward` maps `[B, T, X]` to `[B, T, Y]`, for any `B`.
///
/// # Errors
/// The first row that the others change.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use firelight_core::invariants::batch_independence;
///
/// let x = Tensor::<3>::random([3, 4, 2], Distribution::Default, &Device::flex());
/// assert!(batch_independence(|x| x.exp(), x.clone(), 1e-5).is_ok());
/// assert!(batch_independence(|x| x.clone() - x.mean_dim(0), x, 1e-5).is_err()); // A norm over the batch.
/// ```
pub fn batch_independence(
    forward: impl Fn(Tensor<3>) -> Tensor<3>,
    x: Tensor<3>,
    tolerance: f64,
) -> Result<(), Violation> {
    let [batch, _, _] = x.dims();
    some("the rows of a batch are independent", "rows", batch)?;
    let together = forward(x.clone());
    for row in 0..batch {
        let alone = forward(x.clone().narrow(0, row, 1));
        let found = together.clone().narrow(0, row, 1);
        compare("the rows of a batch are independent", format!("row {row}"), alone, found, tolerance)?;
    }
    Ok(())
}

/// Each of the documents that are packed into a row must have the outputs that it has alone.
///
/// `forward` maps `[B, T, X]` and the document of each token, `[B, T]`, to `[B, T, Y]`. `lengths` are the tokens of each document of
/// `x`, in turn, in every row. A document of one token between two others finds what looks further back than to the token before.
///
/// # Errors
/// The first document that the others change; no documents.
///
/// # Panics
/// If `lengths` have a 0 or are not `T` in sum.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Distribution, Int, Tensor};
/// use firelight_core::invariants::documents;
/// use firelight_core::{Pass, PositionConfig, SequenceInput, TransformerConfig};
///
/// let device = Device::flex();
/// let model = TransformerConfig::new(8, 2, 1).with_position(PositionConfig::rotary()).init(&device);
/// let forward = |x, names| {
///     model.forward(x, &SequenceInput::default().with_documents(names), &mut Pass::default())
/// };
/// let x = Tensor::<3>::random([2, 7, 8], Distribution::Default, &device);
/// assert!(documents(forward, x.clone(), &[3, 1, 3], 1e-5).is_ok());
/// let leak = documents(|x, _: Tensor<2, Int>| x.cumsum(1), x, &[3, 1, 3], 1e-5).expect_err("sums of all");
/// assert_eq!(leak.location, "document 1");
/// ```
#[doc(alias = "sequence packing")]
pub fn documents(
    forward: impl Fn(Tensor<3>, Tensor<2, Int>) -> Tensor<3>,
    x: Tensor<3>,
    lengths: &[usize],
    tolerance: f64,
) -> Result<(), Violation> {
    let ([batch, length, _], device) = (x.dims(), x.device());
    some("packed documents are strangers", "documents", lengths.len())?;
    let fits = lengths.iter().sum::<usize>() == length && !lengths.contains(&0);
    assert!(fits, "documents of {lengths:?} tokens are not the {length} tokens of a row: each has 1 or more");
    let together = forward(x.clone(), names(lengths, batch, &device));
    let mut start = 0;
    for (index, &length) in lengths.iter().enumerate() {
        let [document, found] = [&x, &together].map(|all| all.clone().narrow(1, start, length));
        let alone = forward(document, names(&[length], batch, &device));
        compare("packed documents are strangers", format!("document {index}"), alone, found, tolerance)?;
        start += length;
    }
    Ok(())
}

/// The names of documents of these lengths, `[B, T]`: not in the order of the numbers, which means nothing.
pub(super) fn names(lengths: &[usize], batch: usize, device: &Device) -> Tensor<2, Int> {
    let documents = lengths.iter().enumerate();
    let row: Vec<i64> = documents.flat_map(|(index, &length)| vec![(lengths.len() - index) as i64; length]).collect();
    let tokens = row.len();
    Tensor::<2, Int>::from_data(TensorData::new(row, [1, tokens]), device).expand([batch, tokens])
}
