//! Layer normalisation from Burn primitives.

use burn::tensor::Tensor;

pub(super) fn layer_norm<const D: usize>(
    x: Tensor<D>,
    gamma: Tensor<1>,
    beta: Option<Tensor<1>>,
    epsilon: f64,
) -> Tensor<D> {
    let centred = x.clone() - x.mean_dim(D - 1);
    let variance = centred.clone().square().mean_dim(D - 1);
    let scaled = centred / (variance + epsilon).sqrt() * gamma.unsqueeze();
    match beta {
        Some(beta) => scaled + beta.unsqueeze(),
        None => scaled,
    }
}
