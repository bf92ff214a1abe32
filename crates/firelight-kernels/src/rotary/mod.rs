//! Rotary positions: pairs of channels of a query or key turned by the angles of its position.
//!
//! Source: Su et al. 2021, §3.4.2, eq. 34 (<https://arxiv.org/abs/2104.09864>).

#[cfg(feature = "flex")]
mod flex;
mod reference;

use burn::tensor::Tensor;

/// Which channels form a pair. `RotaryLayout` of `firelight-core` is the same choice as files of models name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotaryPairs {
    /// Channel `i` with `i + W/2`, as LLaMA.
    Halves,
    /// Channel `2i` with `2i + 1`, as the paper.
    Interleaved,
}

/// Turns every pair `(a, b)` of the first `W` channels of `x` into `(a cos - b sin, a sin + b cos)`; the others stay.
/// Cosines and sines are constants: no gradient reaches them. On the CPU those of an `x` of half precision may be in `f32`.
///
/// # Shapes
/// - `x`: `[B, H, T, E]`, `cos`, `sin`: `[1 | B, 1, T, W / 2]` with `W <= E`; output: as `x`
///
/// # Panics
/// If the shapes do not fit together, or the types of the numbers.
pub fn rotary(x: Tensor<4>, cos: Tensor<4>, sin: Tensor<4>, pairs: RotaryPairs) -> Tensor<4> {
    check(x.dims(), cos.dims(), sin.dims());
    if x.shape().num_elements() == 0 {
        return x; // Burn joins two empty halves to something that has no gradient.
    }
    #[cfg(feature = "flex")]
    if crate::half::is_half(&x) {
        use crate::half::{in_single, widen};
        return in_single(x, |x| rotary(x, widen(cos), widen(sin), pairs));
    }
    let types = [("x", Some(x.dtype())), ("cos", Some(cos.dtype())), ("sin", Some(sin.dtype()))];
    crate::path::check_types("rotary", &types);
    #[cfg(feature = "flex")]
    if crate::path::log_path("rotary", crate::path::is_fused_on_cpu(&x)) {
        return extension::rotary(x, cos, sin, pairs);
    }
    reference::rotary(x, cos.detach(), sin.detach(), pairs)
}

fn check(x: [usize; 4], cos: [usize; 4], sin: [usize; 4]) {
    let ([batch, _, tokens, d_head], [rows, one, length, half]) = (x, cos);
    let fits = (rows == 1 || rows == batch) && one == 1 && length == tokens && 2 * half <= d_head && sin == cos;
    assert!(
        fits,
        "rotary: x {x:?}, cos {cos:?} and sin {sin:?} do not fit: [B, H, T, E] and twice [1 | B, 1, T, W / 2]"
    );
}

#[cfg(feature = "flex")]
use extension::{RotaryExtension, RotaryKernel};

#[cfg(feature = "flex")]
mod extension {
    use super::RotaryPairs;
    use crate::graph::{BackwardPass, CheckpointStrategy, Operation, record};
    use burn::backend::{Autodiff, Backend, Dispatch, backend_extension, tensor::FloatTensor};
    use burn::tensor::Tensor;

    /// The operation that Burn's dispatch and autodiff see.
    #[backend_extension(Flex, Autodiff)]
    pub(crate) trait RotaryExtension: Backend {
        fn rotary(
            x: FloatTensor<Self>,
            cos: FloatTensor<Self>,
            sin: FloatTensor<Self>,
            pairs: RotaryPairs,
        ) -> FloatTensor<Self>;
    }

    /// What a backend brings: the turn, and the turn back, which is its gradient.
    pub(crate) trait RotaryKernel: Backend {
        fn turn(
            x: FloatTensor<Self>,
            angles: [FloatTensor<Self>; 2],
            pairs: RotaryPairs,
            back: bool,
        ) -> FloatTensor<Self>;
    }

    pub(super) fn rotary(x: Tensor<4>, cos: Tensor<4>, sin: Tensor<4>, pairs: RotaryPairs) -> Tensor<4> {
        let (x, cos, sin) = (x.into_dispatch(), cos.into_dispatch(), sin.into_dispatch());
        Tensor::from_dispatch(Dispatch::rotary(x, cos, sin, pairs))
    }

    /// The gradient of a rotation is the gradient turned back: the matrix of a rotation is orthogonal.
    impl<B: RotaryKernel, C: CheckpointStrategy> RotaryExtension for Autodiff<B, C> {
        fn rotary(
            x: FloatTensor<Self>,
            cos: FloatTensor<Self>,
            sin: FloatTensor<Self>,
            pairs: RotaryPairs,
        ) -> FloatTensor<Self> {
            let angles = [cos, sin].map(|angle| angle.into_primitive());
            record::<B, C, _, 1>([x], [false], |[x]| {
                (B::turn(x, angles.clone(), pairs, false), Turn::<B> { angles, pairs })
            })
        }
    }

    #[derive(Debug, Clone)]
    struct Turn<B: RotaryKernel> {
        angles: [FloatTensor<B>; 2],
        pairs: RotaryPairs,
    }

    impl<B: RotaryKernel> Operation<B, 1> for Turn<B> {
        fn backward(self, pass: BackwardPass<B, 1>) -> [Option<FloatTensor<B>>; 1] {
            [Some(B::turn(pass.gradient, self.angles, self.pairs, true))]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_close;
    use burn::tensor::{Device, TensorData};

    #[test]
    fn a_quarter_turn_by_hand() {
        // cos 0 and sin 1 turn (1, 2) into (-2, 1); a fifth channel stays.
        let device = Device::default();
        let x = || Tensor::<4>::from_floats([[[[1.0, 2.0, 3.0, 4.0, 5.0]]]], &device);
        let angle = |value| Tensor::<4>::full([1, 1, 1, 2], value, &device);
        for (pairs, expected) in [
            (RotaryPairs::Interleaved, [[[[-2.0f32, 1.0, -4.0, 3.0, 5.0]]]]),
            (RotaryPairs::Halves, [[[[-3.0, -4.0, 1.0, 2.0, 5.0]]]]),
        ] {
            let output = rotary(x(), angle(0.0), angle(1.0), pairs).into_data();
            assert_close(&output, &TensorData::from(expected), 1e-6);
        }
    }

    #[test]
    #[should_panic(expected = "rotary: x [1, 2, 3, 4]")]
    fn angles_of_other_tokens_panic() {
        let device = Device::default();
        let angles = || Tensor::<4>::zeros([1, 1, 2, 2], &device);
        rotary(Tensor::zeros([1, 2, 3, 4], &device), angles(), angles(), RotaryPairs::Halves);
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_equals_the_reference() {
        use crate::testing::{Case, compare, random};
        let shapes = [([2, 3, 5, 8], 8), ([2, 1, 1, 6], 4), ([3, 4, 70, 16], 10), ([1, 2, 900, 64], 64)];
        for (shape, width) in shapes {
            for (case, rows) in Case::all(&[1, 1]).into_iter().zip([1, shape[0]].into_iter().cycle()) {
                let angles = || [3, 4].map(|seed| random(&case, [rows, 1, shape[2], width / 2], seed) / case.size);
                // Heads of a token side by side, as a projection leaves them.
                let by_token = [shape[0], shape[2], shape[1], shape[3]];
                for pairs in [RotaryPairs::Halves, RotaryPairs::Interleaved] {
                    let turn = |of: fn(Tensor<4>, Tensor<4>, Tensor<4>, RotaryPairs) -> Tensor<4>, x: Tensor<4>| {
                        let [cos, sin] = angles();
                        of(x, cos, sin, pairs)
                    };
                    let inputs = || [random(&case, by_token, 0)];
                    let heads = |x: Tensor<4>| x.swap_dims(1, 2);
                    compare(&case, inputs(), |[x]| turn(rotary, heads(x)), |[x]| turn(reference::rotary, heads(x)));
                }
            }
        }
    }
}
