//! A causal depthwise convolution over a few tokens, which recurrent mixers begin with.
//!
//! Source: Dao and Gu 2024, §7.1 and figure 6 (<https://arxiv.org/abs/2405.21060>).

#[cfg(feature = "flex")]
mod flex;
mod reference;

use burn::tensor::{Bool, Tensor};

#[cfg(feature = "flex")]
use extension::{CausalConvolutionExtension, CausalConvolutionKernel};

/// Mixes every channel of a token with the same channel of the `K - 1` tokens in front of it: `y_t = sum_k weight_k x_t-(K-1-k)`,
/// where the first tokens of `x` follow those of `history`. Where `hidden` is true the token `K - 1 - k` in front of `t` has no part.
/// With `hidden` tokens the reference computes it.
///
/// # Shapes
/// - `x`: `[B, T, C]`, `history`: `[B, K - 1, C]`, `weight`: `[K, C]`, `hidden`: `[B, T, K - 1]`; output: `[B, T, C]`
///
/// # Panics
/// If the shapes do not fit together, or the types of the numbers.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_kernels::causal_convolution;
///
/// // Each number less the one in front of it.
/// let device = Device::flex();
/// let x = Tensor::<3>::from_floats([[[4.0], [6.0]]], &device);
/// let history = Tensor::<3>::from_floats([[[1.0]]], &device);
/// let y = causal_convolution(x, history, Tensor::from_floats([[-1.0], [1.0]], &device), None);
/// assert_eq!(y.into_data().iter::<f32>().collect::<Vec<_>>(), [3.0, 2.0]);
/// ```
#[doc(alias = "causal_conv1d")]
pub fn causal_convolution(
    x: Tensor<3>,
    history: Tensor<3>,
    weight: Tensor<2>,
    hidden: Option<Tensor<3, Bool>>,
) -> Tensor<3> {
    check(&x, &history, &weight, hidden.as_ref());
    #[cfg(feature = "flex")]
    if crate::half::is_half(&x) {
        use crate::half::{in_single, widen};
        return in_single(x, |x| causal_convolution(x, widen(history), widen(weight), hidden));
    }
    #[cfg(feature = "flex")]
    if crate::path::log_path("causal_convolution", hidden.is_none() && crate::path::is_fused_on_cpu(&x)) {
        return extension::causal_convolution(x, history, weight);
    }
    reference::causal_convolution(x, history, weight, hidden)
}

fn check(x: &Tensor<3>, history: &Tensor<3>, weight: &Tensor<2>, hidden: Option<&Tensor<3, Bool>>) {
    let ([batch, length, channels], [taps, width]) = (x.dims(), weight.dims());
    assert!(
        width == channels && history.dims() == [batch, taps.wrapping_sub(1), channels],
        "causal_convolution: weight {:?} and history {:?} do not fit {:?}",
        weight.dims(),
        history.dims(),
        x.dims()
    );
    let (hidden, expected) = (hidden.map(Tensor::dims), [batch, length, taps - 1]);
    assert!(
        hidden.is_none_or(|hidden| hidden == expected),
        "causal_convolution: hidden {hidden:?} is not {expected:?}"
    );
    let types = [("x", x.dtype()), ("history", history.dtype()), ("weight", weight.dtype())];
    crate::path::check_types("causal_convolution", &types.map(|(name, dtype)| (name, Some(dtype))));
}

#[cfg(feature = "flex")]
mod extension {
    use crate::graph::{BackwardPass, CheckpointStrategy, Operation, record};
    use burn::backend::{Autodiff, Backend, Dispatch, backend_extension, tensor::FloatTensor};
    use burn::tensor::Tensor;

    /// The operation that Burn's dispatch and autodiff see.
    #[backend_extension(Flex, Autodiff)]
    pub(crate) trait CausalConvolutionExtension: Backend {
        fn causal_convolution(
            x: FloatTensor<Self>,
            history: FloatTensor<Self>,
            weight: FloatTensor<Self>,
        ) -> FloatTensor<Self>;
    }

    /// What a backend brings: the operation, and the gradients of `x`, of `history` and of `weight`.
    pub(crate) trait CausalConvolutionKernel: Backend {
        fn forward(x: FloatTensor<Self>, history: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self>;
        fn input_gradient(weight: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self>;
        fn history_gradient(weight: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self>;
        fn weight_gradient(
            x: FloatTensor<Self>,
            history: FloatTensor<Self>,
            grad: FloatTensor<Self>,
        ) -> FloatTensor<Self>;
    }

    pub(super) fn causal_convolution(x: Tensor<3>, history: Tensor<3>, weight: Tensor<2>) -> Tensor<3> {
        let (x, history) = (x.into_dispatch(), history.into_dispatch());
        Tensor::from_dispatch(Dispatch::causal_convolution(x, history, weight.into_dispatch()))
    }

    /// The gradients of a convolution. Each keeps only what it needs.
    impl<B: CausalConvolutionKernel, C: CheckpointStrategy> CausalConvolutionExtension for Autodiff<B, C> {
        fn causal_convolution(
            x: FloatTensor<Self>,
            history: FloatTensor<Self>,
            weight: FloatTensor<Self>,
        ) -> FloatTensor<Self> {
            let reads_tokens = weight.is_tracked();
            let kept = [reads_tokens, reads_tokens, x.is_tracked() || history.is_tracked()];
            record::<B, C, _, 3>([x, history, weight], kept, |[x, history, weight]| {
                (B::forward(x, history, weight), Convolution)
            })
        }
    }

    #[derive(Debug, Clone)]
    struct Convolution;

    impl<B: CausalConvolutionKernel> Operation<B, 3> for Convolution {
        fn backward(self, pass: BackwardPass<B, 3>) -> [Option<FloatTensor<B>>; 3] {
            let BackwardPass { inputs: [x, history, weight], gradient, is_wanted } = pass;
            let weight = |wanted: bool| weight.clone().filter(|_| wanted);
            [
                weight(is_wanted[0]).map(|weight| B::input_gradient(weight, gradient.clone())),
                weight(is_wanted[1]).map(|weight| B::history_gradient(weight, gradient.clone())),
                x.zip(history).filter(|_| is_wanted[2]).map(|(x, history)| B::weight_gradient(x, history, gradient)),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_close;
    use burn::tensor::{Device, Distribution, TensorData};

    #[test]
    fn two_channels_by_hand() {
        let device = Device::default();
        let x = Tensor::<3>::from_floats([[[2.0, 6.0], [3.0, 7.0]]], &device);
        let history = Tensor::<3>::from_floats([[[1.0, 5.0]]], &device);
        let weight = Tensor::<2>::from_floats([[10.0, 0.0], [1.0, 2.0]], &device);
        let y = causal_convolution(x.clone(), history.clone(), weight.clone(), None);
        y.into_data().assert_eq(&TensorData::from([[[12.0f32, 12.0], [23.0, 14.0]]]), false);
        let hidden = Tensor::<3, Bool>::from_bool([[[false], [true]]], &device);
        let y = causal_convolution(x, history, weight, Some(hidden));
        y.into_data().assert_eq(&TensorData::from([[[12.0f32, 12.0], [3.0, 14.0]]]), false);
    }

    #[test]
    fn two_parts_are_the_whole() {
        let device = Device::default();
        let x = Tensor::<3>::random([2, 9, 3], Distribution::Default, &device);
        let weight = Tensor::<2>::random([4, 3], Distribution::Default, &device);
        let of = |start: usize, length: usize| {
            let [history, x] =
                [(start, 3), (start + 3, length)].map(|(start, length)| x.clone().narrow(1, start, length));
            causal_convolution(x, history, weight.clone(), None)
        };
        // Not to the bit: a GPU's compiler fuses products into sums for one length and not for another.
        assert_close(&Tensor::cat(vec![of(0, 2), of(2, 4)], 1), &of(0, 6), 1e-6);
    }

    #[test]
    fn one_tap_is_a_product() {
        let device = Device::default();
        let x = Tensor::<3>::from_floats([[[2.0, 6.0], [3.0, 7.0]]], &device);
        let weight = Tensor::<2>::from_floats([[10.0, 2.0]], &device);
        let y = causal_convolution(x, Tensor::zeros([1, 0, 2], &device), weight, None);
        y.into_data().assert_eq(&TensorData::from([[[20.0f32, 12.0], [30.0, 14.0]]]), false);
    }

    #[test]
    #[should_panic(expected = "weight [4, 3] and history [1, 2, 3] do not fit [1, 2, 3]")]
    fn too_few_tokens_before_panic() {
        let [x, history] = [2, 2].map(|tokens| Tensor::zeros([1, tokens, 3], &Device::default()));
        causal_convolution(x, history, Tensor::zeros([4, 3], &Device::default()), None);
    }

    /// Of one token as well, whose gradient reaches far in front of it.
    #[cfg(feature = "flex")]
    #[test]
    fn fused_equals_the_reference() {
        use crate::testing::{Case, compare, random};
        for case in [[1, 5], [6, 5], [70, 300]].iter().flat_map(Case::all) {
            let [length, channels] = case.shape;
            for taps in [2, 4] {
                let inputs = [[2, length], [2, taps - 1], [1, taps]]
                    .map(|[rows, tokens]| random(&case, [rows, tokens, channels], tokens as u64));
                let [fused, slow] = [causal_convolution, reference::causal_convolution]
                    .map(|path| move |[x, history, w]: [Tensor<3>; 3]| path(x, history, w.squeeze_dim(0), None));
                compare(&case, inputs, fused, slow);
            }
        }
    }
}
