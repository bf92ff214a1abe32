//! What holds for a model that does not know positions.

use burn::tensor::{Int, Tensor};

use super::{Violation, compare, some};

/// Permutation equivariance: permuted tokens must give the same outputs, permuted. This holds for every model without positions.
///
/// `forward` maps `[B, T, X]` to `[B, T, Y]`.
///
/// # Errors
/// The first of three permutations that the outputs do not follow: reversed, turned by one token, two tokens exchanged; fewer
/// than two tokens.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use firelight_core::invariants::permutation;
///
/// let x = Tensor::<3>::random([1, 4, 2], Distribution::Default, &Device::flex());
/// assert!(permutation(|x| x.clone() - x.mean_dim(1), x.clone(), 1e-5).is_ok());
/// assert!(permutation(|x| x.cumsum(1), x, 1e-5).is_err());
/// ```
pub fn permutation(forward: impl Fn(Tensor<3>) -> Tensor<3>, x: Tensor<3>, tolerance: f64) -> Result<(), Violation> {
    let length = x.dims()[1] as i64;
    some("outputs permute with inputs", "tokens after the first", x.dims()[1].saturating_sub(1))?;
    let output = forward(x.clone());
    let reversed: Vec<i64> = (0..length).rev().collect();
    let turned: Vec<i64> = (0..length).map(|t| (t + 1) % length).collect();
    let exchanged: Vec<i64> = [length - 1].into_iter().chain(1..length - 1).chain([0]).take(length as usize).collect();
    for order in [reversed, turned, exchanged] {
        let index = Tensor::<1, Int>::from_ints(order.as_slice(), &x.device());
        let found = forward(x.clone().select(1, index.clone()));
        let expected = output.clone().select(1, index);
        compare("outputs permute with inputs", format!("order {order:?}"), expected, found, tolerance)?;
    }
    Ok(())
}
