//! Layer normalisation on the flex backend: a row is read once from memory for all of its passes.

use super::{LayerNormExtension, LayerNormKernel};
use crate::flex::{
    Number, Real, contiguous, filled, for_each_block, sum, sum_of_blocks, values, vectorised, with_number,
};
use crate::optional::OptionalFloat;
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Shape;

impl LayerNormExtension for Flex {
    fn layer_norm(x: FlexTensor, gamma: FlexTensor, beta: OptionalFloat<Self>, epsilon: f64) -> FlexTensor {
        Self::forward(x, gamma, beta.into_option(), epsilon)
    }
}

impl LayerNormKernel for Flex {
    fn forward(x: FlexTensor, gamma: FlexTensor, beta: Option<FlexTensor>, epsilon: f64) -> FlexTensor {
        with_number!(x, forward(x, gamma, beta, epsilon))
    }

    fn backward(x: FlexTensor, gamma: FlexTensor, grad: FlexTensor, epsilon: f64) -> [FlexTensor; 3] {
        with_number!(x, backward(x, gamma, grad, epsilon))
    }
}

/// The mean of a row, and one over the root of its variance plus epsilon.
#[inline(always)]
fn statistics<T: Number>(row: &[T], epsilon: T::Sum) -> (T::Sum, T::Sum) {
    let count = T::Sum::of(row.len() as f64);
    let mean = sum([row], |[x]| x) / count;
    let variance = sum([row], |[x]| (x - mean) * (x - mean)) / count;
    (mean, T::Sum::ONE / (variance + epsilon).sqrt())
}

fn forward<T: Number>(x: FlexTensor, gamma: FlexTensor, beta: Option<FlexTensor>, epsilon: f64) -> FlexTensor {
    let (x, gamma, beta) = (contiguous(x), contiguous(gamma), beta.map(contiguous));
    let (numbers, gamma) = (values::<T>(&x), values::<T>(&gamma));
    let zeros = vec![T::round(T::Sum::ZERO); gamma.len()];
    let beta = beta.as_ref().map_or(zeros.as_slice(), values);
    let width = gamma.len();
    let out = filled(numbers.len(), |out| {
        for_each_block(out, width, |first, out| {
            let rows = numbers[first * width..].chunks_exact(width);
            vectorised(
                #[inline(always)]
                || {
                    for (out, x) in out.chunks_exact_mut(width).zip(rows.clone()) {
                        normalise(out, x, gamma, beta, Real::of(epsilon));
                    }
                },
            );
        });
    });
    T::tensor(out, x.layout().shape().clone())
}

/// Normalises a row.
#[inline(always)]
pub(crate) fn normalise<T: Number>(out: &mut [T], x: &[T], gamma: &[T], beta: &[T], epsilon: T::Sum) {
    let (mean, scale) = statistics(x, epsilon);
    for (((out, x), gamma), beta) in out.iter_mut().zip(x).zip(gamma).zip(beta) {
        *out = T::round((x.widen() - mean) * scale * gamma.widen() + beta.widen());
    }
}

/// The gradients of `x`, `gamma` and `beta`.
///
/// With `n` the normalised row and `g = grad gamma`: `dx = (g - mean(g) - n mean(g n)) scale`.
fn backward<T: Number>(x: FlexTensor, gamma: FlexTensor, grad: FlexTensor, epsilon: f64) -> [FlexTensor; 3] {
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
    let sums = sum_of_blocks::<T::Sum>(numbers.len() / width, width, 2 * width, |start, end, sums| {
        let (numbers, grads) = (&numbers[start * width..end * width], &grads[start * width..end * width]);
        let (d_gamma, d_beta) = sums.split_at_mut(width);
        vectorised(
            #[inline(always)]
            || {
                for (x, grad) in numbers.chunks_exact(width).zip(grads.chunks_exact(width)) {
                    parameter_row(d_gamma, d_beta, x, grad, Real::of(epsilon));
                }
            },
        );
    });
    let rounded = |sums: &[T::Sum]| sums.iter().map(|&sum| T::round(sum)).collect();
    let parameter = |sums| T::tensor(rounded(sums), Shape::from(vec![width]));
    [T::tensor(d_x, x.layout().shape().clone()), parameter(&sums[..width]), parameter(&sums[width..])]
}

#[inline(always)]
fn input_row<T: Number>(out: &mut [T], x: &[T], gamma: &[T], grad: &[T], epsilon: T::Sum) {
    let width = x.len().min(gamma.len()).min(grad.len()).min(out.len());
    let (mean, scale) = statistics(x, epsilon);
    let count = T::Sum::of(width as f64);
    let mean_grad = sum([grad, gamma], |[grad, gamma]| grad * gamma) / count;
    let mean_product = sum([grad, gamma, x], |[grad, gamma, x]| grad * gamma * (x - mean)) * scale * scale / count;
    for i in 0..width {
        let (x, grad) = (x[i].widen(), grad[i].widen());
        out[i] = T::round((grad * gamma[i].widen() - mean_grad - (x - mean) * mean_product) * scale);
    }
}

#[inline(always)]
fn parameter_row<T: Number>(d_gamma: &mut [T::Sum], d_beta: &mut [T::Sum], x: &[T], grad: &[T], epsilon: T::Sum) {
    let (mean, scale) = statistics(x, epsilon);
    for (((d_gamma, d_beta), x), grad) in d_gamma.iter_mut().zip(d_beta).zip(x).zip(grad) {
        *d_gamma += grad.widen() * ((x.widen() - mean) * scale);
        *d_beta += grad.widen();
    }
}
