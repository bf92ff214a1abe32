//! Sigmoid linear unit, also called swish.
//!
//! Source: Ramachandran et al. 2017, §3 with `β = 1` (<https://arxiv.org/abs/1710.05941>).

mod reference;

use burn::tensor::Tensor;

/// `x σ(x)`, elementwise.
///
/// # Shapes
/// - any; the output has the shape of `x`
pub fn silu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if crate::path::log_path("silu", crate::path::is_fused_on_cpu_in_any_type(&x)) {
        return crate::activation::activate(x, crate::activation::Activation::Silu);
    }
    reference::silu(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_close;
    use burn::tensor::{Device, TensorData};

    #[test]
    fn values_by_hand() {
        // σ(1) = .731059, and x σ(x) + (-x) σ(-x) = x (2 σ(x) - 1).
        let x = Tensor::<1>::from_floats([-1.0, 0.0, 1.0], &Device::default());
        let expected = TensorData::from([-0.268_941f32, 0.0, 0.731_059]);
        assert_close(&silu(x), &expected, 1e-6);
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_equals_the_reference() {
        use crate::testing::{Case, compare, normal};
        for case in Case::all(&[4, 33]) {
            compare(&case, [normal(&case, 0)], |[x]| silu(x), |[x]| reference::silu(x));
        }
    }
}
