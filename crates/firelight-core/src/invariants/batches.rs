//! What holds in a batch: neither padding nor the other rows change the outputs of a row.

use burn::tensor::{Bool, Int, Tensor};

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

/// A row must come out in company as it does alone.
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
/// use firelight_core::invariants::batch_mates;
///
/// let x = Tensor::<3>::random([3, 4, 2], Distribution::Default, &Device::flex());
/// assert!(batch_mates(|x| x.exp(), x.clone(), 1e-5).is_ok());
/// assert!(batch_mates(|x| x.clone() - x.mean_dim(0), x, 1e-5).is_err()); // A norm over the batch.
/// ```
pub fn batch_mates(forward: impl Fn(Tensor<3>) -> Tensor<3>, x: Tensor<3>, tolerance: f64) -> Result<(), Violation> {
    let [batch, _, _] = x.dims();
    some("the rows of a batch are strangers", "rows", batch)?;
    let together = forward(x.clone());
    for row in 0..batch {
        let alone = forward(x.clone().narrow(0, row, 1));
        let found = together.clone().narrow(0, row, 1);
        compare("the rows of a batch are strangers", format!("row {row}"), alone, found, tolerance)?;
    }
    Ok(())
}
