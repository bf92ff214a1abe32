//! The affine map as one matrix product.

use burn::tensor::Tensor;

/// Rows are flattened first: on a product of higher rank Burn's autodiff forms the weight gradient once per batch item
/// and sums the copies.
pub(super) fn linear<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    let mut shape = x.dims();
    let [d_in, d_out] = weight.dims();
    let rows = shape[..D - 1].iter().product();
    shape[D - 1] = d_out;
    let product = x.reshape([rows, d_in]).matmul(weight);
    let output = match bias {
        Some(bias) => product + bias.unsqueeze(),
        None => product,
    };
    output.reshape(shape)
}
