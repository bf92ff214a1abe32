//! Layer normalisation over the last dimension.
//!
//! Source: Ba et al. 2016, §3.1, eq. 4 (<https://arxiv.org/abs/1607.06450>); `gamma` and `beta` are their `g` and `b`.

#[cfg(feature = "cube")]
mod cube;
#[cfg(feature = "flex")]
pub(crate) mod flex;
mod reference;

use crate::path::check_types;
use burn::tensor::Tensor;

#[cfg(feature = "extension")]
use extension::LayerNormExtension;
#[cfg(feature = "extension")]
pub(crate) use extension::LayerNormKernel;
#[cfg(feature = "flex")]
pub(crate) use extension::record_layer_norm;

/// `(x - mean) / sqrt(variance + epsilon) * gamma + beta`, with the mean and the (biased) variance of the last dimension.
///
/// # Shapes
/// - `x`: `[..., D]`, `gamma` and `beta`: `[D]`; output: as `x`
///
/// # Panics
/// If `gamma` or `beta` are not as long as the last dimension of `x`, or they hold numbers of several types.
pub fn layer_norm<const D: usize>(x: Tensor<D>, gamma: Tensor<1>, beta: Option<Tensor<1>>, epsilon: f64) -> Tensor<D> {
    check("layer_norm", &x, &gamma, beta.as_ref());
    #[cfg(feature = "extension")]
    if crate::path::log_path("layer_norm", crate::path::is_fused_in_any_type(&x)) {
        return extension::layer_norm(x, gamma, beta, epsilon);
    }
    reference::layer_norm(x, gamma, beta, epsilon)
}

pub(crate) fn check<const D: usize>(operation: &str, x: &Tensor<D>, gamma: &Tensor<1>, beta: Option<&Tensor<1>>) {
    let width = x.dims()[D - 1];
    let fits = |length: usize| length == width;
    assert!(
        fits(gamma.dims()[0]) && beta.is_none_or(|beta| fits(beta.dims()[0])),
        "{operation}: gamma {:?} and beta {:?} must be as long as the last dimension of x {:?}",
        gamma.dims(),
        beta.map(Tensor::dims),
        x.dims()
    );
    let beta_type = beta.map(Tensor::dtype);
    check_types(operation, &[("x", Some(x.dtype())), ("gamma", Some(gamma.dtype())), ("beta", beta_type)]);
}

#[cfg(feature = "extension")]
mod extension {
    use crate::graph::{BackwardPass, CheckpointStrategy, Operation, record};
    use crate::optional::OptionalFloat;
    use burn::backend::{Autodiff, Backend, Dispatch, backend_extension, tensor::FloatTensor};
    use burn::tensor::Tensor;

    /// The operation that Burn's dispatch and autodiff see.
    #[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff)]
    pub(crate) trait LayerNormExtension: Backend {
        fn layer_norm(
            x: FloatTensor<Self>,
            gamma: FloatTensor<Self>,
            #[extension_type] beta: OptionalFloat<Self>,
            epsilon: f64,
        ) -> FloatTensor<Self>;
    }

    /// What a backend brings: the operation, and the gradients of `x`, `gamma` and `beta`.
    pub(crate) trait LayerNormKernel: Backend {
        fn forward(
            x: FloatTensor<Self>,
            gamma: FloatTensor<Self>,
            beta: Option<FloatTensor<Self>>,
            epsilon: f64,
        ) -> FloatTensor<Self>;
        fn backward(
            x: FloatTensor<Self>,
            gamma: FloatTensor<Self>,
            grad: FloatTensor<Self>,
            epsilon: f64,
        ) -> [FloatTensor<Self>; 3];
    }

    pub(super) fn layer_norm<const D: usize>(
        x: Tensor<D>,
        gamma: Tensor<1>,
        beta: Option<Tensor<1>>,
        epsilon: f64,
    ) -> Tensor<D> {
        let (x, gamma) = (x.into_dispatch(), gamma.into_dispatch());
        Tensor::from_dispatch(Dispatch::layer_norm(x, gamma, OptionalFloat::new(beta), epsilon))
    }

    /// The gradients of layer normalisation, from its input: mean and variance are computed again, which costs less than
    /// the memory traffic of the rest.
    impl<B: LayerNormKernel, C: CheckpointStrategy> LayerNormExtension for Autodiff<B, C> {
        fn layer_norm(
            x: FloatTensor<Self>,
            gamma: FloatTensor<Self>,
            beta: OptionalFloat<Self>,
            epsilon: f64,
        ) -> FloatTensor<Self> {
            let beta = beta.into_option();
            let [x_values, gamma_values] = [&x, &gamma].map(|x| x.clone().into_primitive());
            let beta_values = beta.clone().map(|beta| beta.into_primitive());
            let output = B::forward(x_values, gamma_values, beta_values, epsilon);
            record_layer_norm::<B, C>([x, gamma], beta, epsilon, output)
        }
    }

    /// Joins the norm of `x` with `gamma`, which was computed as `output`, to the graph.
    pub(crate) fn record_layer_norm<B: LayerNormKernel, C: CheckpointStrategy>(
        [x, gamma]: [FloatTensor<Autodiff<B, C>>; 2],
        beta: Option<FloatTensor<Autodiff<B, C>>>,
        epsilon: f64,
        output: FloatTensor<B>,
    ) -> FloatTensor<Autodiff<B, C>> {
        let norm = LayerNorm { epsilon };
        match beta {
            Some(beta) => record::<B, C, _, 3>([x, gamma, beta], [true, true, false], |_| (output, norm)),
            None => record::<B, C, _, 2>([x, gamma], [true; 2], |_| (output, norm)),
        }
    }

    #[derive(Debug, Clone)]
    struct LayerNorm {
        epsilon: f64,
    }

    impl<B: LayerNormKernel, const N: usize> Operation<B, N> for LayerNorm {
        fn backward(self, pass: BackwardPass<B, N>) -> [Option<FloatTensor<B>>; N] {
            let mut inputs = pass.inputs.into_iter().flatten();
            let mut next = || inputs.next().expect("x and gamma are kept");
            let mut gradients = B::backward(next(), next(), pass.gradient, self.epsilon).into_iter();
            std::array::from_fn(|_| gradients.next())
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
        // Mean 2, variance 2/3, so the outer values are -+1 / sqrt(2/3) = -+1.224745.
        let device = Device::default();
        let x = Tensor::<2>::from_floats([[1.0, 2.0, 3.0]], &device);
        let gamma = Tensor::<1>::from_floats([1.0, 1.0, 2.0], &device);
        let beta = Tensor::<1>::from_floats([0.0, 0.5, 0.0], &device);
        let output = layer_norm(x, gamma, Some(beta), 0.0).into_data();
        let expected = TensorData::from([[-1.224_745f32, 0.5, 2.449_49]]);
        assert_close(&output, &expected, 1e-5);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn shift_and_scale_of_a_row_change_nothing(row in prop::collection::vec(-3.0f32..3.0, 8), a in 1.0f32..4.0, b in -2.0f32..2.0) {
            prop_assume!(row.iter().any(|x| (x - row[0]).abs() > 0.5));
            let device = Device::default();
            let norm = |row: &[f32]| {
                let x = Tensor::<1>::from_floats(row, &device).unsqueeze::<2>();
                layer_norm(x, Tensor::ones([8], &device), None, 1e-9).into_data()
            };
            let moved: Vec<f32> = row.iter().map(|x| a * x + b).collect();
            assert_close(&norm(&row), &norm(&moved), 1e-4);
        }
    }

    #[test]
    #[should_panic(expected = "as long as the last dimension")]
    fn a_gamma_of_another_length_panics() {
        let device = Device::default();
        layer_norm(Tensor::<2>::zeros([2, 3], &device), Tensor::ones([4], &device), None, 1e-5);
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_equals_the_reference() {
        use crate::testing::{Case, compare, normal, random};
        for case in
            [Case::all(&[6, 5]), Case::all(&[300, 130]), Case::on_gpu(&[6, 5]), Case::on_gpu(&[70, 300])].concat()
        {
            let flat = |x: Tensor<2>| x.reshape([case.shape[1]]);
            let parameter = |seed| random(&case, [1, case.shape[1]], seed);
            let inputs = [normal(&case, 0), parameter(1), parameter(2)];
            let fused = |[x, g, b]: [Tensor<2>; 3]| layer_norm(x, flat(g), Some(flat(b)), 1e-5);
            compare(&case, inputs, fused, |[x, g, b]| reference::layer_norm(x, flat(g), Some(flat(b)), 1e-5));
            let inputs = [normal(&case, 0), parameter(1)];
            let fused = |[x, g]: [Tensor<2>; 2]| layer_norm(x, flat(g), None, 1e-5);
            compare(&case, inputs, fused, |[x, g]| reference::layer_norm(x, flat(g), None, 1e-5));
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
            let found = layer_norm(x.clone(), gamma.clone().cast(DType::F16), None, 1e-5).cast(DType::F32);
            let expected = reference::layer_norm(x.cast(DType::F32), gamma, None, 1e-5);
            assert_close(&found, &expected, 5e-3);
        }
    }
}
