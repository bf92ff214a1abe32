//! Root mean square normalisation over the last dimension.
//!
//! Source: Zhang and Sennrich 2019, §4, eq. 4 (<https://arxiv.org/abs/1910.07467>); `gamma` is their `g`. The epsilon
//! under the root is LLaMA's.

mod reference;

use burn::tensor::Tensor;

/// `x / sqrt(mean(x²) + epsilon) * gamma`, with the mean over the last dimension.
///
/// # Shapes
/// - `x`: `[..., D]`, `gamma`: `[D]`; output: as `x`
///
/// # Panics
/// If `gamma` is not as long as the last dimension of `x`.
pub fn rms_norm<const D: usize>(x: Tensor<D>, gamma: Tensor<1>, epsilon: f64) -> Tensor<D> {
    assert!(
        gamma.dims()[0] == x.dims()[D - 1],
        "rms_norm: gamma {:?} must be as long as the last dimension of x {:?}",
        gamma.dims(),
        x.dims()
    );
    reference::rms_norm(x, gamma, epsilon)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData, Tolerance};
    use proptest::prelude::*;

    #[test]
    fn a_row_by_hand() {
        // mean(9, 16) = 12.5, so 3 and 4 become 3 / 3.535534 and 4 / 3.535534 = .848528 and 1.131371.
        let device = Device::default();
        let x = Tensor::<2>::from_floats([[3.0, 4.0]], &device);
        let output = rms_norm(x, Tensor::from_floats([1.0, 2.0], &device), 0.0).into_data();
        let expected = TensorData::from([[0.848528f32, 2.262742]]);
        output.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn the_output_has_unit_mean_square(row in prop::collection::vec(0.1f32..3.0, 8)) {
            let device = Device::default();
            let x = Tensor::<1>::from_floats(row.as_slice(), &device).unsqueeze::<2>();
            let mean = rms_norm(x, Tensor::ones([8], &device), 0.0).square().mean().into_scalar::<f32>();
            prop_assert!((mean - 1.0).abs() < 1e-4);
        }
    }

    #[test]
    #[should_panic(expected = "as long as the last dimension")]
    fn a_gamma_of_another_length_panics() {
        let device = Device::default();
        rms_norm(Tensor::<2>::zeros([2, 3], &device), Tensor::ones([4], &device), 1e-5);
    }
}
