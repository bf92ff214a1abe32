//! The loss of a language model's head, from the vectors before it: where there are many classes, the logits of all rows
//! would be the largest tensor of a training by far, and they are formed some rows at a time.
//!
//! Source: Wijmans et al. 2024, Cut Your Losses in Large-Vocabulary Language Models, §4
//! (<https://arxiv.org/abs/2411.09009>). Differs in that a block holds all classes of its rows.

#[cfg(feature = "extension")]
mod blocks;

use crate::{CrossEntropyOptions, LogitMap, cross_entropy};
use burn::tensor::{Int, Tensor};

/// Logits that are held at once: 64 MiB in single precision.
const LOGITS: usize = 1 << 24;

/// [`cross_entropy`] of [`LogitMap::forward`]`(x)`, without ever materialising the logits of all rows on the fused path; the backward pass
/// recomputes them. A quantized matrix is dequantized first: the loss is for training, which has floats.
///
/// # Shapes
/// - `x`: `[N, D]`, `map.weight`: `[D, V]`, `targets`: `[N]`; output: `[N]`
///
/// # Panics
/// As [`LogitMap::forward`] and [`cross_entropy`].
#[doc(alias = "fused linear cross-entropy")]
pub fn linear_cross_entropy(
    x: Tensor<2>,
    map: &LogitMap,
    targets: Tensor<1, Int>,
    options: &CrossEntropyOptions,
) -> Tensor<1> {
    let rows = (LOGITS / map.weight.classes().max(1)).max(1);
    let dense = map.dense_for(&x);
    in_blocks(x, &dense, targets, options, rows)
}

/// With the logits of so many rows at once.
fn in_blocks(
    x: Tensor<2>,
    map: &LogitMap,
    targets: Tensor<1, Int>,
    options: &CrossEntropyOptions,
    rows: usize,
) -> Tensor<1> {
    map.check("linear_cross_entropy", &x);
    crate::cross_entropy::check("linear_cross_entropy", ("x", x.dims()), &targets, options);
    #[cfg(feature = "flex")]
    if crate::half::is_half(&x) {
        return crate::half::in_single(x, |x| in_blocks(x, &map.widened(), targets, options, rows));
    }
    #[cfg(feature = "extension")]
    if x.dims()[0] > rows && crate::path::log_path("linear_cross_entropy", extension::serves(&x, &targets)) {
        return extension::linear_cross_entropy(x, map, targets, options, rows);
    }
    let _ = rows;
    cross_entropy(map.forward(x), targets, options)
}

#[cfg(feature = "extension")]
mod extension {
    use super::blocks::{Block, Inputs, backward, forward};
    use crate::cross_entropy::CrossEntropyKernel;
    use crate::graph::{BackwardPass, CheckpointStrategy, Operation, record};
    use crate::optional::{OptionalBool, OptionalFloat};
    use crate::{CrossEntropyOptions, LogitMap};
    use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
    use burn::backend::{Autodiff, Backend, Dispatch, backend_extension};
    use burn::tensor::{Int, Tensor};

    /// The options that are no tensors.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Settings {
        pub(super) smoothing: f64,
        pub(super) soft_cap: Option<f64>,
        /// How many rows have their logits at once.
        pub(super) rows: usize,
    }

    /// The operation that Burn's dispatch and autodiff see.
    #[backend_extension(Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"), Autodiff)]
    pub(crate) trait LinearCrossEntropyExtension: Backend {
        fn linear_cross_entropy(
            x: FloatTensor<Self>,
            weight: FloatTensor<Self>,
            #[extension_type] bias: OptionalFloat<Self>,
            targets: IntTensor<Self>,
            #[extension_type] ignored: OptionalBool<Self>,
            settings: Settings,
        ) -> FloatTensor<Self>;
    }

    /// Whether the fused path takes the tensors.
    pub(super) fn serves(x: &Tensor<2>, targets: &Tensor<1, Int>) -> bool {
        crate::path::is_fused(x) && crate::cross_entropy::takes(targets)
    }

    pub(super) fn linear_cross_entropy(
        x: Tensor<2>,
        map: &LogitMap,
        targets: Tensor<1, Int>,
        options: &CrossEntropyOptions,
        rows: usize,
    ) -> Tensor<1> {
        let (ignored, bias) = (OptionalBool::new(options.ignored.clone()), OptionalFloat::new(map.scaled_bias()));
        let (x, weight) = (map.scaled(x).into_dispatch(), map.weight.dense().into_dispatch());
        let settings = Settings { smoothing: options.label_smoothing, soft_cap: map.soft_cap, rows };
        let targets = targets.into_dispatch();
        Tensor::from_dispatch(Dispatch::linear_cross_entropy(x, weight, bias, targets, ignored, settings))
    }

    /// The gradients of the head, from its inputs and two numbers a row.
    impl<B: CrossEntropyKernel, C: CheckpointStrategy> LinearCrossEntropyExtension for Autodiff<B, C> {
        fn linear_cross_entropy(
            x: FloatTensor<Self>,
            weight: FloatTensor<Self>,
            bias: OptionalFloat<Self>,
            targets: IntTensor<Self>,
            ignored: OptionalBool<Self>,
            settings: Settings,
        ) -> FloatTensor<Self> {
            let targets = (targets, ignored.into_option());
            match bias.into_option() {
                Some(bias) => {
                    record::<B, C, _, 3>([x, weight, bias], [true; 3], |given| losses(given, targets, settings))
                }
                None => record::<B, C, _, 2>([x, weight], [true; 2], |given| losses(given, targets, settings)),
            }
        }
    }

    fn losses<B: CrossEntropyKernel, const N: usize>(
        inputs: [FloatTensor<B>; N],
        targets: (IntTensor<B>, Option<BoolTensor<B>>),
        settings: Settings,
    ) -> (FloatTensor<B>, Head<B>) {
        let (losses, blocks) = forward::<B>(&join(inputs, settings), targets);
        (losses, Head { blocks, settings })
    }

    /// Vectors, a matrix, and perhaps a bias.
    fn join<B: CrossEntropyKernel>(tensors: impl IntoIterator<Item = FloatTensor<B>>, settings: Settings) -> Inputs<B> {
        let mut tensors = tensors.into_iter();
        let mut next = || tensors.next().expect("a head has two tensors at least");
        Inputs { x: next(), weight: next(), bias: tensors.next(), settings }
    }

    #[derive(Debug, Clone)]
    struct Head<B: CrossEntropyKernel> {
        blocks: Vec<Block<B>>,
        settings: Settings,
    }

    impl<B: CrossEntropyKernel, const N: usize> Operation<B, N> for Head<B> {
        fn backward(self, pass: BackwardPass<B, N>) -> [Option<FloatTensor<B>>; N] {
            let inputs = join(pass.inputs.into_iter().flatten(), self.settings);
            let found = backward::<B>(&inputs, &pass.gradient, self.blocks);
            let mut gradients = [Some(found.x), Some(found.weight), found.bias].into_iter();
            std::array::from_fn(|_| gradients.next().flatten())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{assert_close, linear};
    use burn::tensor::{Bool, Device, Distribution, TensorData};

    /// What heads put around the product with a matrix: scale and soft cap.
    const SHAPES: [(f64, Option<f64>); 3] = [(1.0, None), (0.7, None), (0.7, Some(1.5))];

    fn map(weight: Tensor<2>, bias: Option<Tensor<1>>, (scale, soft_cap): (f64, Option<f64>)) -> LogitMap {
        LogitMap::new(weight).with_bias(bias).with_scale(scale).with_soft_cap(soft_cap)
    }

    /// Loss and gradients of `x`, of a weight that lies transposed, as a tied head's, and of a bias.
    fn pass(
        rows: usize,
        options: &CrossEntropyOptions,
        shape: (f64, Option<f64>),
        inputs: &[Tensor<2>; 3],
    ) -> [TensorData; 4] {
        let device = inputs[0].device();
        let [x, weight, bias] = inputs.clone().map(|tensor| tensor.detach().require_grad());
        let targets = Tensor::<1, Int>::from_ints([3, 0, 8, 5, 2, 2, 7], &device);
        let map = map(weight.clone().transpose(), Some(bias.clone().flatten(0, 1)), shape);
        let losses = in_blocks(x.clone(), &map, targets, options, rows);
        let cotangent = Tensor::<1>::from_floats([1.0, 0.5, -2.0, 1.0, 3.0, 0.1, 0.7], &device);
        let grads = (losses.clone() * cotangent).sum().backward();
        let gradient = |leaf: Tensor<2>| leaf.grad(&grads).expect("all require a gradient").into_data();
        [losses.into_data(), gradient(x), gradient(weight), gradient(bias)]
    }

    #[test]
    fn blocks_of_any_size_equal_the_whole() {
        let device = Device::default().autodiff();
        let random = |shape: [usize; 2]| Tensor::<2>::random(shape, Distribution::Normal(0.0, 1.0), &device);
        let inputs = [random([7, 5]), random([9, 5]), random([9, 1])];
        let ignored = Tensor::<1, Bool>::from_bool([false, true, false, false, false, true, false], &device);
        let smoothed = CrossEntropyOptions::default().with_ignored(Some(ignored)).with_label_smoothing(0.2);
        for options in [CrossEntropyOptions::default(), smoothed] {
            for shape in SHAPES {
                let whole = pass(usize::MAX, &options, shape, &inputs);
                for rows in [1, 2, 3, 6] {
                    for (found, expected) in pass(rows, &options, shape, &inputs).iter().zip(&whole) {
                        assert_close(&found, expected, 1e-5);
                    }
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
            let reference = |logits: Tensor<2>| by_reference(|| cross_entropy(logits, targets(), &options));
            for shape in SHAPES {
                let fused = |x, w, b| in_blocks(x, &map(w, b, shape), targets(), &options, 2);
                // The formula: scaled logits, then the cap.
                let shaped = |logits: Tensor<2>| match (logits * shape.0, shape.1) {
                    (logits, Some(cap)) => (logits * (1.0 / cap)).tanh() * cap,
                    (logits, None) => logits,
                };
                let inputs = || [normal(&case, 0), random(&case, [5, 9], 1), random(&case, [1, 9], 2)];
                let [x, w, _] = inputs();
                compare(&case, [x, w], |[x, w]| fused(x, w, None), |[x, w]| reference(shaped(x.matmul(w))));
                let row = |b: Tensor<2>| Some(b.reshape([9]));
                compare(
                    &case,
                    inputs(),
                    |[x, w, b]| fused(x, w, row(b)),
                    |[x, w, b]| reference(shaped(x.matmul(w) + b.reshape([1, 9]))),
                );
            }
        }
    }

    #[test]
    fn large_heads_take_blocks() {
        let device = Device::default();
        let x = Tensor::<2>::random([33, 2], Distribution::Default, &device);
        let weight = Tensor::<2>::random([2, 1 << 19], Distribution::Default, &device);
        let targets = || Tensor::<1, Int>::arange(0..33, &device);
        let options = CrossEntropyOptions::default();
        let found = linear_cross_entropy(x.clone(), &LogitMap::new(weight.clone()), targets(), &options).into_data();
        let whole = cross_entropy(linear(x, weight, None), targets(), &options).into_data();
        assert_close(&found, &whole, 1e-4);
    }

    #[test]
    #[should_panic(expected = "linear_cross_entropy: x [4, 2] does not end in the inputs of weight [3, 5]")]
    fn a_wrong_width_panics() {
        let device = Device::default();
        let (x, map) = (Tensor::<2>::zeros([4, 2], &device), LogitMap::new(Tensor::zeros([3, 5], &device)));
        in_blocks(x, &map, Tensor::zeros([4], &device), &CrossEntropyOptions::default(), 1);
    }
}
