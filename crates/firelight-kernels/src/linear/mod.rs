//! The affine map of a linear layer.

#[cfg(feature = "flex")]
mod bf16;
#[cfg(feature = "flex")]
mod few;
#[cfg(feature = "flex")]
mod flex;
mod reference;
#[cfg(feature = "flex")]
mod row;
#[cfg(feature = "flex")]
mod three_bf16;

use crate::MatmulPrecision;
use crate::path::check_types;
use burn::tensor::Tensor;

#[cfg(feature = "flex")]
use extension::LinearExtension;
#[cfg(feature = "flex")]
pub(crate) use extension::LinearKernel;

/// `x weight + bias`, with every leading dimension of `x` flattened into rows. [`MatmulPrecision`] says how products of `f32` are formed.
///
/// # Shapes
/// - `x`: `[..., I]`, `weight`: `[I, O]`, `bias`: `[O]`; output: `[..., O]`
///
/// # Panics
/// If the last dimension of `x` is not `I`, `bias` is not as long as `O`, or they hold numbers of several types.
pub fn linear<const D: usize>(x: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    check("linear", &x, &weight, bias.as_ref());
    let precision = MatmulPrecision::current();
    precision.tell(&x);
    #[cfg(feature = "flex")]
    if crate::half::is_half(&x) && x.dtype() != burn::tensor::DType::BF16 {
        use crate::half::{in_single, widen};
        return in_single(x, |x| linear(x, widen(weight), bias.map(widen)));
    }
    #[cfg(feature = "flex")]
    if crate::path::log_path("linear", crate::path::is_fused_on_cpu_in_any_type(&x) && weight.dims()[1] > 0) {
        return extension::linear(x, weight, bias, precision);
    }
    reference::linear(x, weight, bias)
}

pub(crate) fn check<const D: usize>(operation: &str, x: &Tensor<D>, weight: &Tensor<2>, bias: Option<&Tensor<1>>) {
    let (x_shape, shape) = (x.dims(), weight.dims());
    assert!(x_shape[D - 1] == shape[0], "{operation}: x {x_shape:?} does not end in the inputs of weight {shape:?}");
    let bias_shape = bias.map_or([shape[1]], Tensor::dims);
    assert!(
        bias_shape == [shape[1]],
        "{operation}: bias {bias_shape:?} is not as long as the outputs of weight {shape:?}"
    );
    let types = [("x", Some(x.dtype())), ("weight", Some(weight.dtype())), ("bias", bias.map(Tensor::dtype))];
    check_types(operation, &types);
}

#[cfg(feature = "flex")]
mod extension {
    use crate::MatmulPrecision;
    use crate::graph::{BackwardPass, CheckpointStrategy, Operation, record};
    use crate::optional::OptionalFloat;
    use burn::backend::{Autodiff, Backend, Dispatch, TensorMetadata, backend_extension, tensor::FloatTensor};
    use burn::tensor::{Shape, Tensor};

    /// The operation that Burn's dispatch and autodiff see.
    #[backend_extension(Flex, Autodiff)]
    pub(crate) trait LinearExtension: Backend {
        fn linear(
            x: FloatTensor<Self>,
            weight: FloatTensor<Self>,
            #[extension_type] bias: OptionalFloat<Self>,
            precision: MatmulPrecision,
        ) -> FloatTensor<Self>;
    }

    /// What a backend brings: the map and its three gradients. `grad` is `[..., O]`.
    pub(crate) trait LinearKernel: Backend {
        fn forward(
            x: FloatTensor<Self>,
            weight: FloatTensor<Self>,
            bias: Option<FloatTensor<Self>>,
            precision: MatmulPrecision,
        ) -> FloatTensor<Self>;
        fn input_gradient(
            weight: FloatTensor<Self>,
            grad: FloatTensor<Self>,
            x: &[usize],
            precision: MatmulPrecision,
        ) -> FloatTensor<Self>;
        fn weight_gradient(
            x: FloatTensor<Self>,
            grad: FloatTensor<Self>,
            precision: MatmulPrecision,
        ) -> FloatTensor<Self>;
        fn bias_gradient(grad: FloatTensor<Self>) -> FloatTensor<Self>;
    }

    pub(super) fn linear<const D: usize>(
        x: Tensor<D>,
        weight: Tensor<2>,
        bias: Option<Tensor<1>>,
        precision: MatmulPrecision,
    ) -> Tensor<D> {
        let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
        Tensor::from_dispatch(Dispatch::linear(x, weight, OptionalFloat::new(bias), precision))
    }

    /// The gradients of the affine map. Each keeps only what it needs: the weight for that of `x`, `x` for that of the
    /// weight, nothing for that of the bias.
    impl<B: LinearKernel, C: CheckpointStrategy> LinearExtension for Autodiff<B, C> {
        fn linear(
            x: FloatTensor<Self>,
            weight: FloatTensor<Self>,
            bias: OptionalFloat<Self>,
            precision: MatmulPrecision,
        ) -> FloatTensor<Self> {
            let affine = Affine { shape: x.shape(), precision };
            let (keeps_x, keeps_weight) = (weight.is_tracked(), x.is_tracked());
            match bias.into_option() {
                Some(bias) => {
                    record::<B, C, _, 3>([x, weight, bias], [keeps_x, keeps_weight, false], |[x, weight, bias]| {
                        (B::forward(x, weight, Some(bias), precision), affine)
                    })
                }
                None => record::<B, C, _, 2>([x, weight], [keeps_x, keeps_weight], |[x, weight]| {
                    (B::forward(x, weight, None, precision), affine)
                }),
            }
        }
    }

    #[derive(Debug, Clone)]
    struct Affine {
        /// That of `x`.
        shape: Shape,
        /// Those of the forward pass.
        precision: MatmulPrecision,
    }

    impl<B: LinearKernel, const N: usize> Operation<B, N> for Affine {
        fn backward(self, pass: BackwardPass<B, N>) -> [Option<FloatTensor<B>>; N] {
            let kept = |index: usize| pass.inputs[index].clone();
            let gradient = |index| match index {
                0 => {
                    kept(1).map(|weight| B::input_gradient(weight, pass.gradient.clone(), &self.shape, self.precision))
                }
                1 => kept(0).map(|x| B::weight_gradient(x, pass.gradient.clone(), self.precision)),
                _ => Some(B::bias_gradient(pass.gradient.clone())),
            };
            std::array::from_fn(|index| pass.is_wanted[index].then(|| gradient(index)).flatten())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_close;
    use burn::tensor::{Device, Distribution, TensorData};

    #[test]
    fn a_product_by_hand() {
        let device = Device::default();
        let x = Tensor::<3>::from_floats([[[1.0, 2.0]], [[3.0, 4.0]]], &device);
        let weight = Tensor::<2>::from_floats([[1.0, 0.0, 2.0], [0.0, 1.0, -1.0]], &device);
        let output = linear(x, weight, Some(Tensor::from_floats([0.5, 0.0, 0.0], &device))).into_data();
        output.assert_eq(&TensorData::from([[[1.5f32, 2.0, 0.0]], [[3.5, 4.0, 2.0]]]), false);
    }

    #[test]
    fn batched_rows_equal_single_rows() {
        let device = Device::default();
        let x = Tensor::<3>::random([3, 4, 5], Distribution::Default, &device);
        let weight = Tensor::<2>::random([5, 6], Distribution::Default, &device);
        let whole = linear(x.clone(), weight.clone(), None).slice([1..2, 2..3]).into_data();
        let single = linear(x.slice([1..2, 2..3]), weight, None).into_data();
        assert_close(&whole, &single, 1e-6);
    }

    #[test]
    #[should_panic(expected = "linear: x [2, 4] does not end in the inputs of weight [3, 4]")]
    fn a_wrong_width_panics() {
        let device = Device::default();
        linear(Tensor::<2>::zeros([2, 4], &device), Tensor::zeros([3, 4], &device), None);
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_equals_the_reference() {
        use crate::testing::{Case, compare, normal, random};
        for case in [[6, 5], [300, 70], [1, 700]].iter().flat_map(Case::all) {
            let [_, d_in] = case.shape;
            for d_out in [1, 3, 130] {
                let inputs = || [normal(&case, 0), random(&case, [d_in, d_out], 1)];
                compare(&case, inputs(), |[x, w]| linear(x, w, None), |[x, w]| reference::linear(x, w, None));
                let inputs = [normal(&case, 0), random(&case, [d_in, d_out], 1), random(&case, [1, d_out], 2)];
                let bias = |b: Tensor<2>| Some(b.reshape([d_out]));
                let (fused, slow) = (linear::<2>, reference::linear::<2>);
                compare(&case, inputs, |[x, w, b]| fused(x, w, bias(b)), |[x, w, b]| slow(x, w, bias(b)));
            }
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn a_few_rows_times_a_tied_weight_equal_the_reference() {
        let device = Device::flex();
        let x = Tensor::<3>::random([3, 2, 5], Distribution::Default, &device);
        let weight = Tensor::<2>::random([2100, 5], Distribution::Default, &device).transpose();
        let fused = linear(x.clone(), weight.clone(), None).into_data();
        assert_close(&fused, &reference::linear(x, weight, None), 1e-5);
    }

    #[cfg(feature = "flex")]
    #[test]
    fn constants_need_no_gradient() {
        // A frozen weight, and an input that nobody differentiates: the other gradients are 1ᵀ of their factors.
        let device = Device::flex().autodiff();
        let x = Tensor::<2>::from_floats([[1.0, 2.0]], &device);
        let weight = Tensor::<2>::from_floats([[3.0], [4.0]], &device);
        let (tracked_x, tracked_weight) = (x.clone().require_grad(), weight.clone().require_grad());
        let grads = linear(tracked_x.clone(), weight, None).backward();
        tracked_x.grad(&grads).expect("x is tracked").into_data().assert_eq(&TensorData::from([[3f32, 4.0]]), true);
        let grads = linear(x, tracked_weight.clone(), None).backward();
        let gradient = tracked_weight.grad(&grads).expect("the weight is tracked").into_data();
        gradient.assert_eq(&TensorData::from([[1f32], [2.0]]), true);
    }
}
