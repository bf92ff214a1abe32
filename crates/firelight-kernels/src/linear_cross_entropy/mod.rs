//! The loss of a language model's head, from the vectors before it: where there are many classes, the logits of all rows
//! would be the largest tensor of a training by far, and they are formed some rows at a time.
//!
//! Source: Wijmans et al. 2024, Cut Your Losses in Large-Vocabulary Language Models, §4
//! (<https://arxiv.org/abs/2411.09009>). Differs in that a block holds all classes of its rows.

#[cfg(feature = "extension")]
mod autodiff;
#[cfg(feature = "extension")]
mod blocks;

use crate::{CrossEntropyOptions, cross_entropy, linear};
use burn::tensor::{Int, Tensor};

/// Logits that are held at once: 64 MiB in single precision.
const LOGITS: usize = 1 << 24;

/// [`cross_entropy`] of [`linear`]`(x, weight)`, without ever holding the logits of all rows on the fused path. The backward
/// pass forms them again.
///
/// # Shapes
/// - `x`: `[N, D]`, `weight`: `[D, V]`, `targets`: `[N]`; output: `[N]`
///
/// # Panics
/// As [`linear`] and [`cross_entropy`].
pub fn linear_cross_entropy(
    x: Tensor<2>,
    weight: Tensor<2>,
    targets: Tensor<1, Int>,
    options: &CrossEntropyOptions,
) -> Tensor<1> {
    let rows = (LOGITS / weight.dims()[1].max(1)).max(1);
    in_blocks(x, weight, targets, options, rows)
}

/// With the logits of so many rows at once.
fn in_blocks(
    x: Tensor<2>,
    weight: Tensor<2>,
    targets: Tensor<1, Int>,
    options: &CrossEntropyOptions,
    rows: usize,
) -> Tensor<1> {
    crate::linear::check("linear_cross_entropy", &x, &weight, None);
    crate::cross_entropy::check("linear_cross_entropy", ("x", x.dims()), &targets, options);
    #[cfg(feature = "flex")]
    if crate::half::is_half(&x) {
        return crate::half::in_single(x, |x| in_blocks(x, crate::half::widen(weight), targets, options, rows));
    }
    #[cfg(feature = "extension")]
    if x.dims()[0] > rows && crate::path::log_path("linear_cross_entropy", extension::serves(&x, &targets)) {
        return extension::linear_cross_entropy(x, weight, targets, options, rows);
    }
    let _ = rows;
    cross_entropy(linear(x, weight, None), targets, options)
}

#[cfg(feature = "extension")]
mod extension {
    use crate::CrossEntropyOptions;
    use crate::optional::OptionalBool;
    use burn::backend::tensor::{FloatTensor, IntTensor};
    use burn::backend::{Backend, Dispatch, backend_extension};
    use burn::tensor::{Int, Tensor};

    /// The operation that Burn's dispatch and autodiff see.
    #[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff)]
    pub(crate) trait LinearCrossEntropyExtension: Backend {
        fn linear_cross_entropy(
            x: FloatTensor<Self>,
            weight: FloatTensor<Self>,
            targets: IntTensor<Self>,
            #[extension_type] ignored: OptionalBool<Self>,
            smoothing: f64,
            rows: usize,
        ) -> FloatTensor<Self>;
    }

    /// Whether the fused path takes the tensors.
    pub(super) fn serves(x: &Tensor<2>, targets: &Tensor<1, Int>) -> bool {
        crate::path::is_fused(x) && crate::cross_entropy::takes(targets)
    }

    pub(super) fn linear_cross_entropy(
        x: Tensor<2>,
        weight: Tensor<2>,
        targets: Tensor<1, Int>,
        options: &CrossEntropyOptions,
        rows: usize,
    ) -> Tensor<1> {
        let ignored = OptionalBool::new(options.ignored.clone());
        let (x, weight, targets) = (x.into_dispatch(), weight.into_dispatch(), targets.into_dispatch());
        let smoothing = options.label_smoothing;
        Tensor::from_dispatch(Dispatch::linear_cross_entropy(x, weight, targets, ignored, smoothing, rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_close;
    use burn::tensor::{Bool, Device, Distribution};

    /// Loss and gradients of `x` and of a weight that lies transposed, as a tied head's.
    fn pass(rows: usize, options: &CrossEntropyOptions, inputs: &[Tensor<2>; 2]) -> [burn::tensor::TensorData; 3] {
        let device = inputs[0].device();
        let [x, weight] = inputs.clone().map(|tensor| tensor.detach().require_grad());
        let targets = Tensor::<1, Int>::from_ints([3, 0, 8, 5, 2, 2, 7], &device);
        let losses = in_blocks(x.clone(), weight.clone().transpose(), targets, options, rows);
        let cotangent = Tensor::<1>::from_floats([1.0, 0.5, -2.0, 1.0, 3.0, 0.1, 0.7], &device);
        let grads = (losses.clone() * cotangent).sum().backward();
        let [x, weight] = [x, weight].map(|leaf| leaf.grad(&grads).expect("both require a gradient").into_data());
        [losses.into_data(), x, weight]
    }

    #[test]
    fn blocks_of_any_size_equal_the_whole() {
        let device = Device::default().autodiff();
        let random = |shape: [usize; 2]| Tensor::<2>::random(shape, Distribution::Normal(0.0, 1.0), &device);
        let inputs = [random([7, 5]), random([9, 5])];
        let ignored = Tensor::<1, Bool>::from_bool([false, true, false, false, false, true, false], &device);
        for options in [
            CrossEntropyOptions::default(),
            CrossEntropyOptions::default().with_ignored(Some(ignored)).with_label_smoothing(0.2),
        ] {
            let whole = pass(usize::MAX, &options, &inputs);
            for rows in [1, 2, 3, 6] {
                for (found, expected) in pass(rows, &options, &inputs).iter().zip(&whole) {
                    assert_close(&found, expected, 1e-5);
                }
            }
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn blocks_equal_the_reference() {
        use crate::path::by_reference;
        use crate::testing::{Case, compare, normal, random};
        for case in [Case::all(&[7, 5]), Case::on_gpu(&[7, 5])].concat() {
            let rows = case.shape[0];
            let targets = || Tensor::<1, Int>::arange(0..rows as i64, &case.device());
            let ignored = Tensor::<1, Int>::arange(0..rows as i64, &case.device()).equal_elem(3);
            let options = CrossEntropyOptions::default().with_ignored(Some(ignored)).with_label_smoothing(0.2);
            let reference =
                |[x, w]: [Tensor<2>; 2]| by_reference(|| cross_entropy(linear(x, w, None), targets(), &options));
            let fused = |[x, w]: [Tensor<2>; 2]| in_blocks(x, w, targets(), &options, 2);
            compare(&case, [normal(&case, 0), random(&case, [5, 9], 1)], fused, reference);
        }
    }

    #[test]
    fn large_heads_take_blocks() {
        let device = Device::default();
        let x = Tensor::<2>::random([33, 2], Distribution::Default, &device);
        let weight = Tensor::<2>::random([2, 1 << 19], Distribution::Default, &device);
        let targets = || Tensor::<1, Int>::arange(0..33, &device);
        let options = CrossEntropyOptions::default();
        let found = linear_cross_entropy(x.clone(), weight.clone(), targets(), &options).into_data();
        let whole = cross_entropy(linear(x, weight, None), targets(), &options).into_data();
        assert_close(&found, &whole, 1e-4);
    }

    #[test]
    #[should_panic(expected = "linear_cross_entropy: x [4, 2] does not end in the inputs of weight [3, 5]")]
    fn a_wrong_width_panics() {
        let device = Device::default();
        let (x, weight) = (Tensor::<2>::zeros([4, 2], &device), Tensor::zeros([3, 5], &device));
        in_blocks(x, weight, Tensor::zeros([4], &device), &CrossEntropyOptions::default(), 1);
    }
}
