//! Autodiff against slopes.

use burn::tensor::Tensor;
use firelight::core::invariants::gradients;

use super::{each, forward};
use crate::support::grid::{decoder_pairs, encoder_pairs};
use crate::support::{Noise, device};

#[test]
fn gradients_are_slopes() {
    let mut noise = Noise::new(6);
    each(decoder_pairs().into_iter().chain(encoder_pairs()), |config, plain| {
        let tracked = config.init(&device().autodiff());
        let weights = noise.tensor([1, 4, 16]);
        let f = |x: Tensor<3>| {
            let model = if x.device().is_autodiff() { &tracked } else { plain };
            let weights = Tensor::from_data(weights.to_data(), &x.device());
            (forward(model, x) * weights).sum()
        };
        // A kink of ReLU close to one input spoils its slopes; a wrong gradient is wrong at every input.
        let mut check = || gradients(f, noise.tensor([1, 4, 16]), 5e-3);
        check().or_else(|_| check()).or_else(|_| check())
    });
}
