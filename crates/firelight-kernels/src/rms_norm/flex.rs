//! Root mean square normalisation on the flex backend: a row is read once from memory for all of its passes.

use super::{RmsNormExtension, RmsNormKernel};
use crate::flex::{
    Number, Real, contiguous, filled, for_each_block, sum, sum_of_blocks, values, vectorised, with_number,
};
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Shape;

impl RmsNormExtension for Flex {
    fn rms_norm(x: FlexTensor, gamma: FlexTensor, epsilon: f64) -> FlexTensor {
        Self::forward(x, gamma, epsilon)
    }
}

impl RmsNormKernel for Flex {
    fn forward(x: FlexTensor, gamma: FlexTensor, epsilon: f64) -> FlexTensor {
        with_number!(x, forward(x, gamma, epsilon))
    }

    fn backward(x: FlexTensor, gamma: FlexTensor, grad: FlexTensor, epsilon: f64) -> [FlexTensor; 2] {
        with_number!(x, backward(x, gamma, grad, epsilon))
    }
}

/// One over the root of the mean square plus epsilon.
#[inline(always)]
fn scale<T: Number>(row: &[T], epsilon: T::Sum) -> T::Sum {
    T::Sum::ONE / (sum([row], |[x]| x * x) / T::Sum::of(row.len() as f64) + epsilon).sqrt()
}

fn forward<T: Number>(x: FlexTensor, gamma: FlexTensor, epsilon: f64) -> FlexTensor {
    let (x, gamma) = (contiguous(x), contiguous(gamma));
    let (numbers, gamma) = (values::<T>(&x), values::<T>(&gamma));
    let width = gamma.len();
    let out = filled(numbers.len(), |out| {
        for_each_block(out, width, |first, out| {
            let rows = numbers[first * width..].chunks_exact(width);
            vectorised(
                #[inline(always)]
                || {
                    for (out, x) in out.chunks_exact_mut(width).zip(rows.clone()) {
                        normalise(out, x, gamma, Real::of(epsilon));
                    }
                },
            );
        });
    });
    T::tensor(out, x.layout().shape().clone())
}

/// Normalises a row.
#[inline(always)]
pub(crate) fn normalise<T: Number>(out: &mut [T], x: &[T], gamma: &[T], epsilon: T::Sum) {
    let scale = scale(x, epsilon);
    for ((out, x), gamma) in out.iter_mut().zip(x).zip(gamma) {
        *out = T::round(x.widen() * scale * gamma.widen());
    }
}

/// The gradients of `x` and `gamma`.
///
/// With `n` the normalised row and `g = grad gamma`: `dx = (g - n mean(g n)) scale`.
fn backward<T: Number>(x: FlexTensor, gamma: FlexTensor, grad: FlexTensor, epsilon: f64) -> [FlexTensor; 2] {
    let [x, gamma, grad] = [x, gamma, grad].map(contiguous);
    let [numbers, gamma, grads] = [&x, &gamma, &grad].map(values::<T>);
    let width = gamma.len();
    let d_x = filled(numbers.len(), |out| {
        for_each_block(out, width, |first, out| {
            let rows = numbers[first * width..].chunks_exact(width).zip(grads[first * width..].chunks_exact(width));
            vectorised(
                #[inline(always)]
                || {
                    for (out, (x, grad)) in out.chunks_exact_mut(width).zip(rows.clone()) {
                        input_row(out, x, gamma, grad, Real::of(epsilon));
                    }
                },
            );
        });
    });
    let d_gamma = sum_of_blocks::<T::Sum>(numbers.len() / width, width, width, |start, end, d_gamma| {
        let (numbers, grads) = (&numbers[start * width..end * width], &grads[start * width..end * width]);
        vectorised(
            #[inline(always)]
            || {
                for (x, grad) in numbers.chunks_exact(width).zip(grads.chunks_exact(width)) {
                    let scale = scale(x, Real::of(epsilon));
                    for ((d_gamma, x), grad) in d_gamma.iter_mut().zip(x).zip(grad) {
                        *d_gamma += grad.widen() * (x.widen() * scale);
                    }
                }
            },
        );
    });
    [
        T::tensor(d_x, x.layout().shape().clone()),
        T::tensor(d_gamma.into_iter().map(T::round).collect(), Shape::from(vec![width])),
    ]
}

#[inline(always)]
fn input_row<T: Number>(out: &mut [T], x: &[T], gamma: &[T], grad: &[T], epsilon: T::Sum) {
    let width = x.len().min(gamma.len()).min(grad.len()).min(out.len());
    let scale = scale(x, epsilon);
    let mean_product =
        sum([grad, gamma, x], |[grad, gamma, x]| grad * gamma * x) * scale * scale / T::Sum::of(width as f64);
    for i in 0..width {
        out[i] = T::round((grad[i].widen() * gamma[i].widen() - x[i].widen() * mean_product) * scale);
    }
}
