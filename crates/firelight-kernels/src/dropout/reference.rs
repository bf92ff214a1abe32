//! Dropout from Burn primitives: a mask from the generator of the backend, which autodiff keeps.

use burn::tensor::{Distribution, Tensor};

pub(crate) fn dropout<const D: usize>(x: Tensor<D>, rate: f64) -> Tensor<D> {
    if rate == 0.0 {
        return x;
    }
    #[cfg(feature = "extension")]
    crate::recompute::replay::before_drawing(&x.device());
    let kept = x.random_like(Distribution::Bernoulli(1.0 - rate));
    x * kept * (1.0 / (1.0 - rate))
}
