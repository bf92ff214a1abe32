//! Half precision on the CPU: operations compute in `f32` and round their output once. Gradients are rounded once, too, where they
//! leave the operation. Those whose kernels do not read half precision widen their inputs by the functions here.

use burn::tensor::{DType, FloatDType, Tensor};

/// Whether a tensor holds `f16` or `bf16` on a backend whose kernels compute in `f32` and `f64` alone.
pub(crate) fn is_half<const D: usize>(x: &Tensor<D>) -> bool {
    matches!(x.dtype(), DType::F16 | DType::BF16) && crate::path::has_kernels_of_the_cpu(x)
}

/// The same numbers in single precision if they are of half precision.
pub(crate) fn widen<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    if matches!(x.dtype(), DType::F16 | DType::BF16) { crate::cast(x, FloatDType::F32) } else { x }
}

/// An operation on a tensor of half precision, computed in single precision; the output is rounded to the type of `x`.
pub(crate) fn in_single<const D: usize, const R: usize>(
    x: Tensor<D>,
    operation: impl FnOnce(Tensor<D>) -> Tensor<R>,
) -> Tensor<R> {
    let dtype = FloatDType::from(x.dtype());
    crate::cast(operation(widen(x)), dtype)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, random};
    use crate::*;
    use burn::tensor::{DType, Device, Int, Tensor, TensorData};

    /// Output and gradients of a function of tensors of a type, and the type of each.
    fn run<const N: usize, const D: usize, const R: usize>(
        dtype: DType,
        inputs: &[Tensor<D>; N],
        function: impl Fn([Tensor<D>; N]) -> Tensor<R>,
    ) -> Vec<TensorData> {
        let leaves = inputs.clone().map(|x| x.cast(dtype).detach().require_grad());
        let output = function(leaves.clone());
        let cotangent = random(&Case::plain(), output.dims(), 99).cast(DType::BF16).cast(output.dtype());
        let grads = (output.clone() * cotangent).sum().backward();
        let gradients = leaves.map(|leaf| leaf.grad(&grads).expect("every input requires a gradient").into_data());
        std::iter::once(output.into_data()).chain(gradients).collect()
    }

    /// Asserts that output and gradients of half precision are those of single precision, rounded once.
    fn check<const N: usize, const D: usize, const R: usize>(
        name: &str,
        shapes: [[usize; D]; N],
        function: impl Fn([Tensor<D>; N]) -> Tensor<R>,
    ) {
        check_sums(name, shapes, 1e-6, function);
    }

    /// The same where sums differ by up to `slack` before they are rounded, for they are formed in another order.
    fn check_sums<const N: usize, const D: usize, const R: usize>(
        name: &str,
        shapes: [[usize; D]; N],
        slack: f32,
        function: impl Fn([Tensor<D>; N]) -> Tensor<R>,
    ) {
        // Half a unit of the last place, and a bit for sums that come out on the other side of the middle.
        for (dtype, unit) in [(DType::F16, 2f32.powi(-11)), (DType::BF16, 2f32.powi(-8))] {
            let mut seed = 0;
            let inputs = shapes.map(|shape| {
                seed += 1;
                random(&Case::plain(), shape, seed).cast(dtype).cast(DType::F32)
            });
            let (half, single) = (run(dtype, &inputs, &function), run(DType::F32, &inputs, &function));
            assert!(!half.is_empty() && half.len() == single.len(), "{name}");
            for (place, (found, expected)) in half.iter().zip(&single).enumerate() {
                assert_eq!((found.dtype(), found.shape()), (dtype, expected.shape()), "{name}, {place}");
                for (found, expected) in found.iter::<f32>().zip(expected.iter::<f32>()) {
                    let error = (found - expected).abs();
                    assert!(
                        error <= 1.01 * unit * expected.abs() + slack,
                        "{name}, {place}, {dtype:?}: {found} {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn elementwise_operations_round_once() {
        for form in [GeluForm::Exact, GeluForm::Tanh, GeluForm::Sigmoid] {
            check("gelu", [[5, 33]], |[x]| gelu(x, form));
            check("gated", [[5, 33]; 2], |[gate, up]| gated(gate, up, Gate::Gelu(form)));
        }
        check("silu", [[5, 33]], |[x]| silu(x));
        check("rotary", [[2, 3, 5, 8]], |[x]: [Tensor<4>; 1]| {
            let angles = random(&Case::plain(), [1, 1, 5, 4], 7).cast(DType::BF16).cast(x.dtype());
            rotary(x, angles.clone(), angles, RotaryPairs::Halves)
        });
    }

    #[test]
    fn products_and_norms_round_once() {
        let row = |x: Tensor<2>| x.reshape([-1]);
        check("linear", [[7, 70], [70, 30]], |[x, w]| linear(x, w, None));
        check("linear", [[7, 70], [70, 30], [1, 30]], |[x, w, b]| linear(x, w, Some(row(b))));
        // Of a size that the rows of a decoder have a path of their own for, and rows on both sides of its limits.
        for rows in [1, 5, 6, 33] {
            check_sums("rows", [[rows, 260], [260, 300]], 2e-5, |[x, w]| linear(x, w, None));
            check_sums("rows", [[rows, 260], [300, 260], [1, 300]], 2e-5, |[x, w, b]| {
                linear(x, w.transpose(), Some(row(b)))
            });
        }
        check("logits", [[7, 70], [70, 30], [1, 30]], |[x, w, b]| {
            LogitMap::new(w).with_bias(Some(row(b))).with_scale(0.7).with_soft_cap(Some(2.0)).forward(x)
        });
        check("layer norm", [[7, 70], [1, 70], [1, 70]], |[x, g, b]| layer_norm(x, row(g), Some(row(b)), 1e-5));
        check("convolution", [[1, 5, 70], [1, 2, 70], [1, 3, 70]], |[x, before, w]| {
            causal_convolution(x, before, w.squeeze_dim(0), None)
        });
        check("rms norm", [[7, 70], [1, 70]], |[x, g]| rms_norm(x, row(g), 1e-5));
    }

    #[test]
    fn a_recurrence_rounds_once() {
        check("recurrence", [[3, 2, 4, 4], [3, 2, 4, 5], [1, 2, 4, 5]], |[transitions, inputs, before]| {
            linear_recurrence(transitions, inputs, before.squeeze_dim(0))
        });
    }

    #[test]
    fn losses_and_look_ups_round_once() {
        let targets = |device: &Device| Tensor::<1, Int>::from_ints([3, 0, 8, 5, 2, 2, 7], device);
        let options = CrossEntropyOptions::default().with_label_smoothing(0.1);
        check("cross-entropy", [[7, 70]], |[x]| cross_entropy(x.clone(), targets(&x.device()), &options));
        check("head", [[7, 5], [5, 70], [1, 70]], |[x, w, b]| {
            let map = LogitMap::new(w).with_bias(Some(b.reshape([-1])));
            linear_cross_entropy(
                x.clone(),
                &map.with_scale(0.7).with_soft_cap(Some(2.0)),
                targets(&x.device()),
                &options,
            )
        });
        check("embedding", [[5, 33]], |[w]| {
            embedding(w.clone(), Tensor::from_ints([[1, 4, 1], [1, 0, 4]], &w.device()))
        });
    }

    #[test]
    fn attention_rounds_once() {
        let options = AttentionOptions::default().with_mask(AttentionMask::causal()).with_soft_cap(Some(2.0));
        let heads = [[2, 4, 5, 3], [2, 2, 7, 3], [2, 2, 7, 6]];
        check("attention", heads, |[q, k, v]| attention(q, k, v, &options));
        let [q, k, v] = heads;
        check("weights", [q, k], |[q, k]| attention_with_weights(q, k.clone(), k, &options).1);
        check("sinks", [q, k, v, [1, 1, 1, 4]], |[q, k, v, s]| {
            attention(q, k, v, &options.clone().with_sinks(Some(s.reshape([-1]))))
        });
        check("bias", [q, k, v, [1, 4, 5, 7]], |[q, k, v, b]| attention(q, k, v, &options.clone().with_bias(Some(b))));
        let bias = |b: Tensor<4>| Some(b.reshape([4, 11]));
        check("by distance", [q, k, v, [1, 1, 4, 11]], |[q, k, v, b]| {
            attention(q, k, v, &options.clone().with_bias_by_distance(bias(b)))
        });
        check("scores", [[2, 4, 5, 7], v], |[s, v]| attention_from_scores(s, v, &options).0);
    }

    #[test]
    fn dropped_numbers_keep_their_type() {
        for dtype in [DType::F16, DType::BF16] {
            let x = Tensor::<2>::full([40, 50], 3.0, (&Case::plain().device(), dtype));
            let y = dropout(x, 0.25);
            assert_eq!(y.dtype(), dtype);
            assert!(y.into_data().iter::<f32>().all(|y| y == 0.0 || y == 4.0));
        }
    }

    #[test]
    fn an_optimiser_step_rounds_its_results_once() {
        let case = Case::plain();
        let step =
            AdamWStep { learning_rate: 0.1, beta_1: 0.9, beta_2: 0.99, epsilon: 1e-8, weight_decay: 0.1, time: 3 };
        for dtype in [DType::F16, DType::BF16] {
            let tensors = [0, 1, 2, 3].map(|seed| random(&case, [5, 33], seed).inner().abs().cast(dtype));
            let [p, g, m, v] = tensors.clone().map(|x| x.cast(DType::F32));
            let (single, [m, v]) = adamw(p, g, Some([m, v]), &step);
            let [p, g, half_m, half_v] = tensors.clone();
            let (half, [half_m, half_v]) = adamw(p, g, Some([half_m, half_v]), &step);
            for (half, single) in [(half, single), (half_m, m), (half_v, v)] {
                half.into_data().assert_eq(&single.cast(dtype).into_data(), true);
            }
            // Its square is above the numbers of f16.
            let large = Tensor::<1>::full([4], 300.0, (&case.device.clone(), dtype));
            assert_eq!(square_sum(large).into_scalar::<f32>(), 4.0 * 300.0 * 300.0);
        }
    }
}
