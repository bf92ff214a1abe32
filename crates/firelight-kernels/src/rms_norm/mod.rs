//! Root mean square normalisation over the last dimension.
//!
//! Source: Zhang and Sennrich 2019, §4, eq. 4 (<https://arxiv.org/abs/1910.07467>); `gamma` is their `g`. The epsilon
//! under the root is LLaMA's.

#[cfg(feature = "cube")]
mod cube;
#[cfg(feature = "flex")]
pub(crate) mod flex;
mod reference;

use burn::tensor::Tensor;

#[cfg(feature = "extension")]
use extension::RmsNormExtension;
#[cfg(feature = "extension")]
pub(crate) use extension::RmsNormKernel;
#[cfg(feature = "flex")]
pub(crate) use extension::record_rms_norm;

/// `x / sqrt(mean(x²) + epsilon) * gamma`, with the mean over the last dimension.
///
/// # Shapes
/// - `x`: `[..., D]`, `gamma`: `[D]`; output: as `x`
///
/// # Panics
/// If `gamma` is not as long as the last dimension of `x`, or they hold numbers of two types.
pub fn rms_norm<const D: usize>(x: Tensor<D>, gamma: Tensor<1>, epsilon: f64) -> Tensor<D> {
    check("rms_norm", &x, &gamma);
    #[cfg(feature = "extension")]
    if crate::path::log_path("rms_norm", crate::path::is_fused_in_any_type(&x)) {
        return extension::rms_norm(x, gamma, epsilon);
    }
    reference::rms_norm(x, gamma, epsilon)
}

pub(crate) fn check<const D: usize>(operation: &str, x: &Tensor<D>, gamma: &Tensor<1>) {
    assert!(
        gamma.dims()[0] == x.dims()[D - 1],
        "{operation}: gamma {:?} must be as long as the last dimension of x {:?}",
        gamma.dims(),
        x.dims()
    );
    crate::path::check_types(operation, &[("x", Some(x.dtype())), ("gamma", Some(gamma.dtype()))]);
}

#[cfg(feature = "extension")]
mod extension {
    use crate::graph::{BackwardPass, CheckpointStrategy, Operation, record};
    use burn::backend::{Autodiff, Backend, Dispatch, backend_extension, tensor::FloatTensor};
    use burn::tensor::Tensor;

    /// The operation that Burn's dispatch and autodiff see.
    #[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff)]
    pub(crate) trait RmsNormExtension: Backend {
        fn rms_norm(x: FloatTensor<Self>, gamma: FloatTensor<Self>, epsilon: f64) -> FloatTensor<Self>;
    }

    /// What a backend brings: the operation, and the gradients of `x` and `gamma`.
    pub(crate) trait RmsNormKernel: Backend {
        fn forward(x: FloatTensor<Self>, gamma: FloatTensor<Self>, epsilon: f64) -> FloatTensor<Self>;
        fn backward(
            x: FloatTensor<Self>,
            gamma: FloatTensor<Self>,
            grad: FloatTensor<Self>,
            epsilon: f64,
        ) -> [FloatTensor<Self>; 2];
    }

    pub(super) fn rms_norm<const D: usize>(x: Tensor<D>, gamma: Tensor<1>, epsilon: f64) -> Tensor<D> {
        Tensor::from_dispatch(Dispatch::rms_norm(x.into_dispatch(), gamma.into_dispatch(), epsilon))
    }

    /// The gradients of root mean square normalisation, from its input: the mean square is computed again, which costs less
    /// than the memory traffic of the rest.
    impl<B: RmsNormKernel, C: CheckpointStrategy> RmsNormExtension for Autodiff<B, C> {
        fn rms_norm(x: FloatTensor<Self>, gamma: FloatTensor<Self>, epsilon: f64) -> FloatTensor<Self> {
            record::<B, C, _, 2>([x, gamma], [true; 2], |[x, gamma]| {
                (B::forward(x, gamma, epsilon), RmsNorm { epsilon })
            })
        }
    }

    /// Joins the norm of `x` with `gamma`, which was computed as `output`, to the graph.
    #[cfg(feature = "flex")]
    pub(crate) fn record_rms_norm<B: RmsNormKernel, C: CheckpointStrategy>(
        inputs: [FloatTensor<Autodiff<B, C>>; 2],
        epsilon: f64,
        output: FloatTensor<B>,
    ) -> FloatTensor<Autodiff<B, C>> {
        record::<B, C, _, 2>(inputs, [true; 2], |_| (output, RmsNorm { epsilon }))
    }

    #[derive(Debug, Clone)]
    struct RmsNorm {
        epsilon: f64,
    }

    impl<B: RmsNormKernel> Operation<B, 2> for RmsNorm {
        fn backward(self, pass: BackwardPass<B, 2>) -> [Option<FloatTensor<B>>; 2] {
            let [x, gamma] = pass.inputs.map(|input| input.expect("x and gamma are kept"));
            B::backward(x, gamma, pass.gradient, self.epsilon).map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_close;
    use burn::tensor::{Device, TensorData};
    use proptest::prelude::*;

    #[test]
    fn a_row_by_hand() {
        // mean(9, 16) = 12.5, so 3 and 4 become 3 / 3.535534 and 4 / 3.535534 = .848528 and 1.131371.
        let device = Device::default();
        let x = Tensor::<2>::from_floats([[3.0, 4.0]], &device);
        let output = rms_norm(x, Tensor::from_floats([1.0, 2.0], &device), 0.0).into_data();
        let expected = TensorData::from([[0.848528f32, 2.262742]]);
        assert_close(&output, &expected, 1e-5);
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

    #[cfg(feature = "flex")]
    #[test]
    fn fused_equals_the_reference() {
        use crate::testing::{Case, compare, normal, random};
        for case in
            [Case::all(&[6, 5]), Case::all(&[300, 130]), Case::on_gpu(&[6, 5]), Case::on_gpu(&[70, 300])].concat()
        {
            let flat = |x: Tensor<2>| x.reshape([case.shape[1]]);
            let inputs = [normal(&case, 0), random(&case, [1, case.shape[1]], 1)];
            let fused = |[x, g]: [Tensor<2>; 2]| rms_norm(x, flat(g), 1e-5);
            compare(&case, inputs, fused, |[x, g]| reference::rms_norm(x, flat(g), 1e-5));
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    #[cfg_attr(not(feature = "cube"), ignore = "needs a GPU: cargo xtask test --device wgpu")]
    fn half_precision_on_a_gpu_is_near_the_reference_of_single_precision() {
        use crate::testing::{Case, normal};
        use burn::tensor::DType;
        for case in Case::gpu_in_half_precision(&[6, 300]) {
            let x = normal(&case, 0).cast(DType::F16);
            let gamma = Tensor::<1>::ones([300], &case.device());
            let found = rms_norm(x.clone(), gamma.clone().cast(DType::F16), 1e-5).cast(DType::F32);
            assert_close(&found, &reference::rms_norm(x.cast(DType::F32), gamma, 1e-5), 5e-3);
        }
    }
}
