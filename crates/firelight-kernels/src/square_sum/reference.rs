//! The sum of squares from Burn primitives.

use burn::tensor::Tensor;

/// Elements that are added in one sum: larger sums may be added in an order that differs from run to run.
const SUMMED_AT_ONCE: usize = 1 << 20;

pub(super) fn square_sum<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    let squares = x.square();
    if squares.shape().num_elements() <= SUMMED_AT_ONCE {
        return squares.sum();
    }
    let parts = squares.flatten::<1>(0, D - 1).split(SUMMED_AT_ONCE, 0);
    Tensor::cat(parts.into_iter().map(Tensor::sum).collect(), 0).sum()
}
