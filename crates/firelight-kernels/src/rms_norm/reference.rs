//! Root mean square normalisation from Burn primitives.

use burn::tensor::Tensor;

pub(super) fn rms_norm<const D: usize>(x: Tensor<D>, gamma: Tensor<1>, epsilon: f64) -> Tensor<D> {
    let mean_square = x.clone().square().mean_dim(D - 1);
    x / (mean_square + epsilon).sqrt() * gamma.unsqueeze()
}
