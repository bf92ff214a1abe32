//! A residual addition and the norm of its sum in one pass: every part of a Transformer's block ends in the one, and the next
//! begins with the other.
//!
//! Sources: those of [`layer_norm`] and [`rms_norm`]; the addition is that of He et al. 2016, §3.2, eq. 1
//! (<https://arxiv.org/abs/1512.03385>).

#[cfg(feature = "flex")]
mod flex;

use crate::path::check_types;
use crate::{layer_norm, rms_norm};
use burn::tensor::Tensor;

#[cfg(feature = "flex")]
use extension::{AddNormExtension, AddNormKernel};

/// `sum = x + branch` and [`layer_norm(sum)`](layer_norm). In half precision the sum is rounded before it is normalised.
///
/// # Shapes
/// - `x` and `branch`: `[..., D]`, `gamma` and `beta`: `[D]`; both outputs: as `x`
///
/// # Panics
/// If `x` and `branch` differ in shape, and as [`layer_norm`].
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_kernels::add_layer_norm;
///
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[1.0, 1.0], [5.0, 0.0]], &device);
/// let branch = Tensor::<2>::from_floats([[2.0, 0.0], [-2.0, 1.0]], &device);
/// let (sum, normed) = add_layer_norm(x, branch, Tensor::ones([2], &device), None, 0.0);
/// assert_eq!(sum.to_string(), Tensor::<2>::from_floats([[3.0, 1.0], [3.0, 1.0]], &device).to_string());
/// assert_eq!(normed.into_data().to_vec::<f32>().unwrap(), [1.0, -1.0, 1.0, -1.0]);
/// ```
pub fn add_layer_norm<const D: usize>(
    x: Tensor<D>,
    branch: Tensor<D>,
    gamma: Tensor<1>,
    beta: Option<Tensor<1>>,
    epsilon: f64,
) -> (Tensor<D>, Tensor<D>) {
    check("add_layer_norm", &x, &branch);
    crate::layer_norm::check("add_layer_norm", &x, &gamma, beta.as_ref());
    #[cfg(feature = "flex")]
    if crate::path::log_path("add_layer_norm", crate::path::is_fused_on_cpu_in_any_type(&x)) {
        return extension::add_norm(x, branch, gamma, beta, NormOfSum::Layer { epsilon });
    }
    let sum = x + branch;
    (sum.clone(), layer_norm(sum, gamma, beta, epsilon))
}

/// `sum = x + branch` and [`rms_norm(sum)`](rms_norm). In half precision the sum is rounded before it is normalised.
///
/// # Shapes
/// - `x` and `branch`: `[..., D]`, `gamma`: `[D]`; both outputs: as `x`
///
/// # Panics
/// If `x` and `branch` differ in shape, and as [`rms_norm`].
pub fn add_rms_norm<const D: usize>(
    x: Tensor<D>,
    branch: Tensor<D>,
    gamma: Tensor<1>,
    epsilon: f64,
) -> (Tensor<D>, Tensor<D>) {
    check("add_rms_norm", &x, &branch);
    crate::rms_norm::check("add_rms_norm", &x, &gamma);
    #[cfg(feature = "flex")]
    if crate::path::log_path("add_rms_norm", crate::path::is_fused_on_cpu_in_any_type(&x)) {
        return extension::add_norm(x, branch, gamma, None, NormOfSum::Rms { epsilon });
    }
    let sum = x + branch;
    (sum.clone(), rms_norm(sum, gamma, epsilon))
}

/// Which norm the sum has.
#[cfg(feature = "flex")]
#[derive(Debug, Clone, Copy)]
pub(crate) enum NormOfSum {
    /// Layer normalisation.
    Layer { epsilon: f64 },
    /// That by the root mean square, which has no `beta`.
    Rms { epsilon: f64 },
}

fn check<const D: usize>(operation: &str, x: &Tensor<D>, branch: &Tensor<D>) {
    assert!(x.dims() == branch.dims(), "{operation}: x {:?} and branch {:?} must be alike", x.dims(), branch.dims());
    check_types(operation, &[("x", Some(x.dtype())), ("branch", Some(branch.dtype()))]);
}

#[cfg(feature = "flex")]
mod extension {
    use super::NormOfSum;
    use crate::graph::{BackwardPass, CheckpointStrategy, Operation, record};
    use crate::layer_norm::{LayerNormKernel, record_layer_norm};
    use crate::optional::OptionalFloat;
    use crate::rms_norm::{RmsNormKernel, record_rms_norm};
    use burn::backend::{Autodiff, Backend, Dispatch, backend_extension, tensor::FloatTensor};
    use burn::tensor::Tensor;

    /// The operation that Burn's dispatch and autodiff see.
    #[backend_extension(Flex, Autodiff)]
    pub(crate) trait AddNormExtension: Backend {
        fn add_norm(
            x: FloatTensor<Self>,
            branch: FloatTensor<Self>,
            gamma: FloatTensor<Self>,
            #[extension_type] beta: OptionalFloat<Self>,
            norm: NormOfSum,
        ) -> (FloatTensor<Self>, FloatTensor<Self>);
    }

    /// What a backend brings: the sum and its norm. Their gradients are those of an addition and of the norm alone.
    pub(crate) trait AddNormKernel: LayerNormKernel + RmsNormKernel {
        fn sum_and_norm(
            x: FloatTensor<Self>,
            branch: FloatTensor<Self>,
            gamma: FloatTensor<Self>,
            beta: Option<FloatTensor<Self>>,
            norm: NormOfSum,
        ) -> [FloatTensor<Self>; 2];
    }

    pub(super) fn add_norm<const D: usize>(
        x: Tensor<D>,
        branch: Tensor<D>,
        gamma: Tensor<1>,
        beta: Option<Tensor<1>>,
        norm: NormOfSum,
    ) -> (Tensor<D>, Tensor<D>) {
        let [x, branch] = [x, branch].map(Tensor::into_dispatch);
        let beta = OptionalFloat::new(beta);
        let (sum, normed) = Dispatch::add_norm(x, branch, gamma.into_dispatch(), beta, norm);
        (Tensor::from_dispatch(sum), Tensor::from_dispatch(normed))
    }

    /// A residual addition and the norm of its sum in the graph: two operations that stand there by themselves, with outputs that
    /// were made together. An operation of Burn's graph has one output; so each keeps its own gradient.
    impl<B: AddNormKernel, C: CheckpointStrategy> AddNormExtension for Autodiff<B, C> {
        fn add_norm(
            x: FloatTensor<Self>,
            branch: FloatTensor<Self>,
            gamma: FloatTensor<Self>,
            beta: OptionalFloat<Self>,
            norm: NormOfSum,
        ) -> (FloatTensor<Self>, FloatTensor<Self>) {
            let beta = beta.into_option();
            let [x_values, branch_values, gamma_values] = [&x, &branch, &gamma].map(|x| x.clone().into_primitive());
            let beta_values = beta.clone().map(|beta| beta.into_primitive());
            let [sum, normed] = B::sum_and_norm(x_values, branch_values, gamma_values, beta_values, norm);
            let sum = record::<B, C, _, 2>([x, branch], [false; 2], |_| (sum, Sum));
            let inputs = [sum.clone(), gamma];
            let normed = match norm {
                NormOfSum::Layer { epsilon } => record_layer_norm::<B, C>(inputs, beta, epsilon, normed),
                NormOfSum::Rms { epsilon } => record_rms_norm::<B, C>(inputs, epsilon, normed),
            };
            (sum, normed)
        }
    }

    #[derive(Debug, Clone)]
    struct Sum;

    impl<B: AddNormKernel> Operation<B, 2> for Sum {
        fn backward(self, pass: BackwardPass<B, 2>) -> [Option<FloatTensor<B>>; 2] {
            [Some(pass.gradient.clone()), Some(pass.gradient)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_close;
    use burn::tensor::{Device, TensorData};

    #[test]
    fn a_row_by_hand() {
        // 1 + 2 and 2 + 2 are 3 and 4, whose mean square is 12.5: 3 / 3.535534 and 2 * 4 / 3.535534.
        let device = Device::default();
        let [x, branch] = [[[1.0, 2.0]], [[2.0, 2.0]]].map(|rows| Tensor::<2>::from_floats(rows, &device));
        let gamma = Tensor::from_floats([1.0, 2.0], &device);
        let (sum, normed) = add_rms_norm(x, branch, gamma, 0.0);
        sum.into_data().assert_eq(&TensorData::from([[3.0f32, 4.0]]), true);
        let expected = TensorData::from([[0.848_528f32, 2.262_742]]);
        assert_close(&normed, &expected, 1e-5);
    }

    #[test]
    #[should_panic(expected = "add_rms_norm: x [2, 3] and branch [1, 3] must be alike")]
    fn a_branch_of_another_shape_panics() {
        let device = Device::default();
        let zeros = |rows| Tensor::<2>::zeros([rows, 3], &device);
        add_rms_norm(zeros(2), zeros(1), Tensor::ones([3], &device), 1e-5);
    }

    #[cfg(feature = "flex")]
    type Outputs = (Tensor<2>, Tensor<2>);

    /// The sum and its norm by two operations.
    #[cfg(feature = "flex")]
    fn apart([x, branch]: [Tensor<2>; 2], norm: impl Fn(Tensor<2>) -> Tensor<2>) -> Outputs {
        let sum = x + branch;
        (sum.clone(), norm(sum))
    }

    /// Both outputs side by side, so that gradients of either are compared.
    #[cfg(feature = "flex")]
    fn both((sum, normed): Outputs) -> Tensor<2> {
        Tensor::cat(vec![sum, normed], 0)
    }

    #[cfg(feature = "flex")]
    #[test]
    fn sum_norm_and_gradients_equal_those_of_two_operations() {
        use crate::testing::{Case, compare, normal, random};
        for case in [Case::all(&[6, 5]), Case::all(&[300, 130])].concat() {
            let flat = |x: Tensor<2>| x.reshape([case.shape[1]]);
            let parameter = |seed| random(&case, [1, case.shape[1]], seed);
            let inputs = [normal(&case, 0), normal(&case, 3), parameter(1), parameter(2)];
            let fused =
                |[x, branch, g, b]: [Tensor<2>; 4]| both(add_layer_norm(x, branch, flat(g), Some(flat(b)), 1e-5));
            compare(&case, inputs, fused, |[x, branch, g, b]| {
                both(apart([x, branch], |sum| layer_norm(sum, flat(g.clone()), Some(flat(b.clone())), 1e-5)))
            });
            let inputs = [normal(&case, 0), normal(&case, 3), parameter(1)];
            let fused = |[x, branch, g]: [Tensor<2>; 3]| both(add_layer_norm(x, branch, flat(g), None, 1e-5));
            compare(&case, inputs.clone(), fused, |[x, branch, g]| {
                both(apart([x, branch], |sum| layer_norm(sum, flat(g.clone()), None, 1e-5)))
            });
            let fused = |[x, branch, g]: [Tensor<2>; 3]| both(add_rms_norm(x, branch, flat(g), 1e-5));
            compare(&case, inputs, fused, |[x, branch, g]| {
                both(apart([x, branch], |sum| rms_norm(sum, flat(g.clone()), 1e-5)))
            });
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn the_bits_are_those_of_two_operations_and_one_output_may_be_left_alone() {
        use crate::testing::{Case, random};
        use burn::tensor::DType;
        type Both = fn([Tensor<2>; 2], [Tensor<1>; 2]) -> Outputs;
        let ways: [[Both; 2]; 2] = [
            [
                |[x, y], [g, b]| add_layer_norm(x, y, g, Some(b), 1e-5),
                |inputs, [g, b]| apart(inputs, |sum| layer_norm(sum, g.clone(), Some(b.clone()), 1e-5)),
            ],
            [
                |[x, y], [g, _]| add_rms_norm(x, y, g, 1e-5),
                |inputs, [g, _]| apart(inputs, |sum| rms_norm(sum, g.clone(), 1e-5)),
            ],
        ];
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let case = Case { shape: [70, 33], ..Case::plain() };
            let parameters = || [3, 4].map(|seed| random(&case, [33], seed).cast(dtype));
            let run = |way: Both, pick: fn(Outputs) -> Tensor<2>| {
                let fixed = random(&case, case.shape, 1).cast(dtype);
                let branch = random(&case, case.shape, 2).cast(dtype).detach().require_grad();
                let output = pick(way([fixed, branch.clone()], parameters()));
                let weights = random(&case, case.shape, 5).cast(dtype);
                let grads = (output.clone() * weights).sum().backward();
                (output.into_data(), branch.grad(&grads).expect("a gradient").into_data())
            };
            for [fused, apart] in ways {
                for pick in [|(sum, _): Outputs| sum, |(_, normed): Outputs| normed] {
                    assert_eq!(run(fused, pick), run(apart, pick), "{dtype:?}");
                }
            }
        }
    }
}
