//! Softmax cross-entropy over rows of logits, with ignored rows and label smoothing.
//!
//! Source: label smoothing as Szegedy et al. 2016, §7 (<https://arxiv.org/abs/1512.00567>), in the form of PyTorch:
//! the smoothed distribution gives `1 - a` to the target and spreads `a` evenly over all classes, the target included.

#[cfg(feature = "cube")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
mod reference;

use burn::tensor::{Bool, Int, Tensor};

#[cfg(feature = "extension")]
use extension::CrossEntropyExtension;
#[cfg(feature = "extension")]
pub(crate) use extension::CrossEntropyKernel;

/// Which rows count, and how far the targets are smoothed. The default counts every row and smooths nothing.
#[derive(Debug, Clone, Default)]
pub struct CrossEntropyOptions {
    /// `[N]`, true where a row is ignored: its loss and its gradient are 0, whatever its target says.
    pub ignored: Option<Tensor<1, Bool>>,
    /// Share `a` of the probability spread over all classes; in `[0, 1)`.
    pub label_smoothing: f64,
}

impl CrossEntropyOptions {
    /// Ignores rows, `[N]`.
    pub fn with_ignored(mut self, ignored: Option<Tensor<1, Bool>>) -> Self {
        self.ignored = ignored;
        self
    }

    /// Smooths the targets.
    pub fn with_label_smoothing(mut self, label_smoothing: f64) -> Self {
        self.label_smoothing = label_smoothing;
        self
    }
}

/// The loss of every row in nats: `(1 - a) (-log p(target)) + a mean_v(-log p(v))`.
///
/// # Shapes
/// - `logits`: `[N, V]`, `targets`: `[N]`; output: `[N]`
///
/// # Panics
/// If the number of rows differs, or `label_smoothing` is outside `[0, 1)`; on a CPU also if a counted target is not a
/// class.
pub fn cross_entropy(logits: Tensor<2>, targets: Tensor<1, Int>, options: &CrossEntropyOptions) -> Tensor<1> {
    check("cross_entropy", ("logits", logits.dims()), &targets, options);
    #[cfg(feature = "flex")]
    if crate::half::is_half(&logits) {
        return crate::half::in_single(logits, |logits| cross_entropy(logits, targets, options));
    }
    #[cfg(feature = "extension")]
    if crate::path::log_path("cross_entropy", crate::path::is_fused(&logits) && takes(&targets)) {
        return extension::cross_entropy(logits, targets, options);
    }
    reference::cross_entropy(logits, targets, options)
}

/// Whether kernels read targets of this type.
#[cfg(feature = "extension")]
pub(crate) fn takes(targets: &Tensor<1, Int>) -> bool {
    matches!(targets.dtype(), burn::tensor::DType::I32 | burn::tensor::DType::I64)
}

/// `of` names what has a row for each target.
pub(crate) fn check(operation: &str, of: (&str, [usize; 2]), targets: &Tensor<1, Int>, options: &CrossEntropyOptions) {
    let ((name, shape), smoothing) = (of, options.label_smoothing);
    let rows = [("targets", targets.dims()), ("ignored", options.ignored.as_ref().map_or([shape[0]], Tensor::dims))];
    for (flags, found) in rows {
        assert!(found == [shape[0]], "{operation}: {flags} {found:?} are not as many as the rows of {name} {shape:?}");
    }
    assert!((0.0..1.0).contains(&smoothing), "{operation}: label smoothing {smoothing} is not in [0, 1)");
}

#[cfg(feature = "extension")]
mod extension {
    use super::CrossEntropyOptions;
    use crate::graph::{BackwardPass, CheckpointStrategy, Operation, record};
    use crate::optional::OptionalBool;
    use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
    use burn::backend::{Autodiff, Backend, Dispatch, backend_extension};
    use burn::tensor::{Int, Tensor};

    /// The operation that Burn's dispatch and autodiff see.
    #[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff)]
    pub(crate) trait CrossEntropyExtension: Backend {
        fn cross_entropy(
            logits: FloatTensor<Self>,
            targets: IntTensor<Self>,
            #[extension_type] ignored: OptionalBool<Self>,
            smoothing: f64,
        ) -> FloatTensor<Self>;
    }

    /// What a backend brings: the losses, and the gradient of the logits.
    pub(crate) trait CrossEntropyKernel: Backend {
        /// What the backward pass knows of the targets.
        type Targets: Clone + Send + std::fmt::Debug + 'static;
        /// Class and kind of every row.
        fn targets(targets: IntTensor<Self>, ignored: Option<BoolTensor<Self>>, smoothing: f64) -> Self::Targets;
        /// The losses, `[N]`, and of every row the largest logit and the logarithm of the sum of exponentials relative
        /// to it, `[N, 2]`.
        fn forward(logits: FloatTensor<Self>, targets: &Self::Targets) -> [FloatTensor<Self>; 2];
        /// The gradient of the logits, written over them where nobody else reads them.
        fn backward(
            logits: FloatTensor<Self>,
            sums: FloatTensor<Self>,
            grad: FloatTensor<Self>,
            targets: &Self::Targets,
        ) -> FloatTensor<Self>;
    }

    pub(super) fn cross_entropy(
        logits: Tensor<2>,
        targets: Tensor<1, Int>,
        options: &CrossEntropyOptions,
    ) -> Tensor<1> {
        let ignored = OptionalBool::new(options.ignored.clone());
        let (logits, targets) = (logits.into_dispatch(), targets.into_dispatch());
        Tensor::from_dispatch(Dispatch::cross_entropy(logits, targets, ignored, options.label_smoothing))
    }

    /// The gradient of the logits, from the logits themselves and one number a row.
    impl<B: CrossEntropyKernel, C: CheckpointStrategy> CrossEntropyExtension for Autodiff<B, C> {
        fn cross_entropy(
            logits: FloatTensor<Self>,
            targets: IntTensor<Self>,
            ignored: OptionalBool<Self>,
            smoothing: f64,
        ) -> FloatTensor<Self> {
            let targets = B::targets(targets, ignored.into_option(), smoothing);
            record::<B, C, _, 1>([logits], [true], |[logits]| {
                let [losses, sums] = B::forward(logits, &targets);
                (losses, CrossEntropy::<B> { sums, targets })
            })
        }
    }

    #[derive(Debug, Clone)]
    struct CrossEntropy<B: CrossEntropyKernel> {
        sums: FloatTensor<B>,
        targets: B::Targets,
    }

    impl<B: CrossEntropyKernel> Operation<B, 1> for CrossEntropy<B> {
        fn backward(self, pass: BackwardPass<B, 1>) -> [Option<FloatTensor<B>>; 1] {
            let BackwardPass { inputs: [logits], gradient, .. } = pass;
            [logits.map(|logits| B::backward(logits, self.sums, gradient, &self.targets))]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_close;
    use burn::tensor::{Device, Distribution, TensorData};

    #[test]
    fn losses_by_hand() {
        // Two classes with odds 3 : 1: -ln .75 = .287682 and -ln .25 = 1.386294.
        let device = Device::default();
        let logits = Tensor::<2>::from_floats([[3f32.ln(), 0.0], [3f32.ln(), 0.0]], &device);
        let targets = Tensor::<1, Int>::from_ints([0, 1], &device);
        let plain = cross_entropy(logits.clone(), targets.clone(), &CrossEntropyOptions::default()).into_data();
        assert_close(&plain, &TensorData::from([0.287682f32, 1.386294]), 1e-5);
        // Smoothed by .2: .8 of the above plus .2 of the mean .836988.
        let options = CrossEntropyOptions::default().with_label_smoothing(0.2);
        let smoothed = cross_entropy(logits, targets, &options).into_data();
        assert_close(&smoothed, &TensorData::from([0.397543f32, 1.276433]), 1e-5);
    }

    #[test]
    fn an_ignored_row_costs_nothing_whatever_its_target() {
        let device = Device::default().autodiff();
        let logits = Tensor::<2>::random([2, 3], Distribution::Default, &device).require_grad();
        let targets = Tensor::<1, Int>::from_ints([-100, 1], &device);
        let ignored = Tensor::<1, Bool>::from_bool([true, false], &device);
        let options = CrossEntropyOptions::default().with_ignored(Some(ignored)).with_label_smoothing(0.1);
        let losses = cross_entropy(logits.clone(), targets, &options);
        let gradient = logits.grad(&losses.clone().sum().backward()).expect("logits require a gradient");
        assert_eq!(losses.narrow(0, 0, 1).into_scalar::<f32>(), 0.0);
        assert_close(&gradient.clone().narrow(0, 0, 1), &[0.0; 3], 0.0);
        // The gradient of a counted row is softmax minus target and sums to 0.
        assert!(gradient.narrow(0, 1, 1).sum().into_scalar::<f32>().abs() < 1e-6);
    }

    #[test]
    fn a_forbidden_class_leaves_the_others_their_odds() {
        let device = Device::default().autodiff();
        let logits = Tensor::<2>::from_floats([[0.0, f32::NEG_INFINITY, 0.0]], &device).require_grad();
        let losses = cross_entropy(logits.clone(), Tensor::from_ints([0], &device), &CrossEntropyOptions::default());
        let gradient = logits.grad(&losses.clone().sum().backward()).expect("logits require a gradient");
        let expected = TensorData::from([std::f32::consts::LN_2]);
        assert_close(&losses, &expected, 1e-6);
        let expected = TensorData::from([[-0.5f32, 0.0, 0.5]]);
        assert_close(&gradient, &expected, 1e-6);
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let device = Device::default();
        let logits = Tensor::<2>::from_floats([[1e4, 0.0]], &device);
        let losses = cross_entropy(logits, Tensor::from_ints([1], &device), &CrossEntropyOptions::default());
        assert_eq!(losses.into_scalar::<f32>(), 1e4);
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_equals_the_reference() {
        use crate::testing::{Case, compare, normal};
        let large = Case { size: 1e4, ..Case::all(&[3, 5])[0].clone() };
        let gpu = [Case::on_gpu(&[6, 5]), Case::on_gpu(&[40, 1000])].concat();
        for case in [Case::all(&[6, 5]), Case::all(&[40, 1000]), vec![large], gpu].concat() {
            let [rows, classes] = case.shape;
            let targets: Vec<i32> = (0..rows).map(|row| (row * 7 % classes) as i32).collect();
            let targets = Tensor::<1, Int>::from_ints(targets.as_slice(), &case.device());
            for (smoothing, ignore) in [(0.0, false), (0.1, false), (0.0, true), (0.3, true)] {
                let ignored: Vec<bool> = (0..rows).map(|row| row % 3 == 1).collect();
                let ignored = ignore.then(|| Tensor::<1, Bool>::from_bool(ignored.as_slice(), &case.device()));
                let options = CrossEntropyOptions::default().with_ignored(ignored).with_label_smoothing(smoothing);
                let fused = |[x]: [Tensor<2>; 1]| cross_entropy(x, targets.clone(), &options);
                compare(&case, [normal(&case, 0)], fused, |[x]| reference::cross_entropy(x, targets.clone(), &options));
            }
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn logits_that_are_read_again_keep_their_values() {
        for device in [Device::flex().autodiff(), Device::default().autodiff()] {
            let logits = Tensor::<2>::from_floats([[0.5, -0.5]], &device).require_grad();
            let twice = logits.clone() * 2.0;
            let loss = cross_entropy(twice.clone(), Tensor::from_ints([0], &device), &CrossEntropyOptions::default());
            let squares = twice.clone().square().sum();
            let gradient = logits.grad(&(loss + squares).backward()).expect("logits require a gradient");
            // Two times (softmax - target) plus the slope 2 (2x) of the square: 2 (.880797 - 1) + 4, 2 (.119203) - 4.
            let expected = TensorData::from([[3.761_594f32, -3.761_594]]);
            assert_close(&gradient, &expected, 1e-5);
            twice.into_data().assert_eq(&TensorData::from([[1f32, -1.0]]), true);
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    #[should_panic(expected = "target 3 of row 1 is not one of 3 classes")]
    fn a_target_that_is_no_class_panics() {
        let device = Device::flex();
        let targets = Tensor::from_ints([0, 3], &device);
        cross_entropy(Tensor::<2>::zeros([2, 3], &device), targets, &CrossEntropyOptions::default());
    }

    #[cfg(feature = "flex")]
    #[test]
    #[cfg_attr(not(feature = "cube"), ignore = "needs a GPU: cargo xtask test --device wgpu")]
    fn half_precision_on_a_gpu_is_near_the_reference_of_single_precision() {
        use crate::testing::{Case, normal};
        use burn::tensor::DType;
        for case in Case::gpu_in_half_precision(&[6, 300]) {
            let x = normal(&case, 0).cast(DType::F16);
            let targets = Tensor::<1, Int>::ones([case.shape[0]], &case.device());
            let options = CrossEntropyOptions::default().with_label_smoothing(0.1);
            let found = cross_entropy(x.clone(), targets.clone(), &options).cast(DType::F32);
            let expected = reference::cross_entropy(x.cast(DType::F32), targets, &options);
            assert_close(&found, &expected, 1e-2);
        }
    }
}
