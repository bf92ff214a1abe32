//! One step of Adam with decoupled weight decay.
//!
//! Source: Loshchilov and Hutter 2019, algorithm 2 (<https://arxiv.org/abs/1711.05101>).

#[cfg(feature = "flex")]
mod flex;
mod reference;

use burn::tensor::Tensor;

/// The settings of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWStep {
    /// The learning rate of this step.
    pub learning_rate: f64,
    /// Decay of the running mean of the gradients, in `[0, 1)`.
    pub beta_1: f64,
    /// Decay of the running mean of their squares, in `[0, 1)`.
    pub beta_2: f64,
    /// Added to the root of the running squares.
    pub epsilon: f64,
    /// Decay of the parameter, as a share per unit of learning rate.
    pub weight_decay: f64,
    /// Number of this step, from 1 on.
    pub time: usize,
}

impl AdamWStep {
    /// What the running means are divided by, as they begin at 0: `1 - beta^t`.
    fn corrections(&self) -> [f64; 2] {
        [self.beta_1, self.beta_2].map(|beta| 1.0 - beta.powi(self.time.min(i32::MAX as usize) as i32))
    }
}

/// The parameter after one step, and the running means of its gradients and of their squares.
///
/// `m = β₁ m + (1 - β₁) g`, `v = β₂ v + (1 - β₂) g²`, `p = (1 - η λ) p - η (m / (1 - β₁ᵗ)) / (sqrt(v / (1 - β₂ᵗ)) + ε)`.
/// Without `moments` they are 0. Nothing is recorded for a backward pass.
///
/// # Shapes
/// - all equal
///
/// # Panics
/// If the shapes differ, or the types of the numbers; gradient and moments of a parameter of half precision may be in `f32` on
/// the CPU.
pub fn adamw<const D: usize>(
    parameter: Tensor<D>,
    gradient: Tensor<D>,
    moments: Option<[Tensor<D>; 2]>,
    step: &AdamWStep,
) -> (Tensor<D>, [Tensor<D>; 2]) {
    let moments = moments.unwrap_or_else(|| [gradient.zeros_like(), gradient.zeros_like()]);
    for (name, shape) in [("gradient", gradient.dims()), ("moment", moments[0].dims()), ("moment", moments[1].dims())] {
        assert!(shape == parameter.dims(), "adamw: {name} {shape:?} is not of the parameter's {:?}", parameter.dims());
    }
    #[cfg(feature = "flex")]
    if crate::half::is_half(&parameter) {
        let [mean, square] = moments;
        return in_single([parameter, gradient, mean, square], step);
    }
    let [parameter_type, gradient_type] = [&parameter, &gradient].map(|tensor| Some(tensor.dtype()));
    let moment_types = moments.each_ref().map(|moment| ("moment", Some(moment.dtype())));
    let types = [("parameter", parameter_type), ("gradient", gradient_type)];
    crate::path::check_types("adamw", &[types, moment_types].concat());
    #[cfg(feature = "flex")]
    if crate::path::log_path("adamw", fits(&parameter, [&gradient, &moments[0], &moments[1]])) {
        return extension::adamw(parameter, gradient, moments, *step);
    }
    reference::adamw(parameter, gradient, moments, step)
}

/// Each result is rounded once, to the type of what it replaces.
#[cfg(feature = "flex")]
fn in_single<const D: usize>(tensors: [Tensor<D>; 4], step: &AdamWStep) -> (Tensor<D>, [Tensor<D>; 2]) {
    let [parameter, _, mean, square] = tensors.each_ref().map(Tensor::dtype);
    let [p, gradient, m, s] = tensors.map(crate::half::widen);
    let (p, [m, s]) = adamw(p, gradient, Some([m, s]), step);
    (p.cast(parameter), [m.cast(mean), s.cast(square)])
}

#[cfg(feature = "flex")]
fn fits<const D: usize>(parameter: &Tensor<D>, others: [&Tensor<D>; 3]) -> bool {
    let alike = |other: &&Tensor<D>| !other.device().is_autodiff();
    crate::path::is_fused_on_cpu(parameter) && !parameter.device().is_autodiff() && others.iter().all(alike)
}

#[cfg(feature = "flex")]
mod extension {
    use super::AdamWStep;
    use burn::backend::{Backend, Dispatch, backend_extension, tensor::FloatTensor};
    use burn::tensor::Tensor;

    /// The operation that Burn's dispatch sees.
    #[backend_extension(Flex)]
    pub(crate) trait AdamWExtension: Backend {
        fn adamw(
            parameter: FloatTensor<Self>,
            gradient: FloatTensor<Self>,
            mean: FloatTensor<Self>,
            square: FloatTensor<Self>,
            step: AdamWStep,
        ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
    }

    pub(super) fn adamw<const D: usize>(
        parameter: Tensor<D>,
        gradient: Tensor<D>,
        moments: [Tensor<D>; 2],
        step: AdamWStep,
    ) -> (Tensor<D>, [Tensor<D>; 2]) {
        let [mean, square] = moments.map(Tensor::into_dispatch);
        let (parameter, mean, square) =
            Dispatch::adamw(parameter.into_dispatch(), gradient.into_dispatch(), mean, square, step);
        (Tensor::from_dispatch(parameter), [mean, square].map(Tensor::from_dispatch))
    }
}
#[cfg(feature = "flex")]
use extension::AdamWExtension;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_close;
    use burn::tensor::{DType, Device, Distribution};

    fn step() -> AdamWStep {
        AdamWStep { learning_rate: 0.1, beta_1: 0.9, beta_2: 0.99, epsilon: 1e-8, weight_decay: 0.5, time: 1 }
    }

    #[test]
    fn the_first_step_by_hand() {
        // m = .1 g, v = .01 g², corrected g and g²: the step is the learning rate against the sign, after a decay of .05.
        let device = Device::default();
        let (parameter, gradient) =
            (Tensor::<1>::from_floats([2.0, -4.0], &device), Tensor::<1>::from_floats([0.3, -5.0], &device));
        let (parameter, [mean, square]) = adamw(parameter, gradient, None, &step());
        let close = |found: Tensor<1>, expected: [f32; 2]| {
            assert_close(&found, &expected, 1e-5);
        };
        close(parameter, [1.8, -3.7]);
        close(mean, [0.03, -0.5]);
        close(square, [0.0009, 0.25]);
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_equals_the_reference_and_leaves_shared_tensors_alone() {
        for dtype in [DType::F32, DType::F64] {
            // More than one block, transposed, and shared with somebody else.
            let random = || {
                let x = Tensor::<2>::random([150, 131], Distribution::Normal(0.0, 1.0), (&Device::flex(), dtype));
                x.transpose()
            };
            // Squares near 0 would make steps of any size, and rounding is relative to the step.
            let (parameter, gradient, mean, square) = (random(), random(), random(), random().square().add_scalar(0.1));
            let before = parameter.to_data();
            let options = AdamWStep { time: 7, ..step() };
            let moments = || Some([mean.clone(), square.clone()]);
            let (found, found_moments) = adamw(parameter.clone(), gradient.clone(), moments(), &options);
            let (expected, expected_moments) =
                reference::adamw(parameter.clone(), gradient, moments().expect("there are some"), &options);
            parameter.into_data().assert_eq(&before, true);
            let pairs = [found].into_iter().chain(found_moments).zip([expected].into_iter().chain(expected_moments));
            for (found, expected) in pairs {
                assert_close(&found, &expected, 1e-5);
            }
        }
    }

    #[test]
    #[should_panic(expected = "adamw: gradient [3] is not of the parameter's [2]")]
    fn a_gradient_of_another_shape_panics() {
        let device = Device::default();
        adamw(Tensor::<1>::zeros([2], &device), Tensor::<1>::zeros([3], &device), None, &step());
    }
}
