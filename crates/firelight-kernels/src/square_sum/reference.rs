//! The sum of squares from Burn primitives.

use burn::tensor::Tensor;

/// Elements of one sum. Longer sums may be added in an order that differs from run to run, a GPU adds each in a single
/// thread, and software Vulkan (llvmpipe) ends a loop after 65,535 turns.
const SUMMED_AT_ONCE: usize = 1 << 12;

pub(super) fn square_sum<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    let mut terms = x.square().flatten::<1>(0, D - 1);
    while terms.dims()[0] > SUMMED_AT_ONCE {
        terms = sum_in_rows(terms);
    }
    terms.sum()
}

/// The sums of as many elements each, and one of the rest.
fn sum_in_rows(terms: Tensor<1>) -> Tensor<1> {
    let rows = terms.dims()[0] / SUMMED_AT_ONCE;
    let (whole, rest) = (rows * SUMMED_AT_ONCE, terms.dims()[0] % SUMMED_AT_ONCE);
    let sums = terms.clone().narrow(0, 0, whole).reshape([rows, SUMMED_AT_ONCE]).sum_dim(1).squeeze_dim(1);
    if rest == 0 { sums } else { Tensor::cat(vec![sums, terms.narrow(0, whole, rest).sum()], 0) }
}
