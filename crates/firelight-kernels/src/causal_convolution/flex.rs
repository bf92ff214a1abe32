//! The convolution on the flex backend: one pass over memory each for the output and the two gradients.

use super::{CausalConvolutionExtension, CausalConvolutionKernel};
use crate::flex::{Real, contiguous, filled, for_each_block, sum_of_blocks, values, vectorised, with_real};
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Shape;
use std::ops::Range;

impl CausalConvolutionExtension for Flex {
    fn causal_convolution(x: FlexTensor, weight: FlexTensor) -> FlexTensor {
        Self::forward(x, weight)
    }
}

impl CausalConvolutionKernel for Flex {
    fn forward(x: FlexTensor, weight: FlexTensor) -> FlexTensor {
        with_real!(x, forward(x, weight))
    }

    fn input_gradient(weight: FlexTensor, grad: FlexTensor) -> FlexTensor {
        with_real!(grad, input_gradient(weight, grad))
    }

    fn weight_gradient(x: FlexTensor, grad: FlexTensor) -> FlexTensor {
        with_real!(x, weight_gradient(x, grad))
    }
}

fn forward<T: Real>(x: FlexTensor, weight: FlexTensor) -> FlexTensor {
    let (x, weight) = (contiguous(x), contiguous(weight));
    let [batch, tokens, _] = dims(&x);
    let [taps, channels] = dims(&weight);
    let (rows, weight) = (values::<T>(&x), values::<T>(&weight));
    let length = tokens + 1 - taps;
    let out = filled(batch * length * channels, |out| {
        for_each_row(out, channels, |row, out| {
            let first = row / length * tokens + row % length;
            add_products(out, (0..taps).map(|tap| (&rows[span(first + tap, channels)], &weight[span(tap, channels)])));
        });
    });
    T::tensor(out, Shape::from(vec![batch, length, channels]))
}

/// Each token reads the gradients of itself and of the tokens behind it.
fn input_gradient<T: Real>(weight: FlexTensor, grad: FlexTensor) -> FlexTensor {
    let (weight, grad) = (contiguous(weight), contiguous(grad));
    let [batch, length, _] = dims(&grad);
    let [taps, channels] = dims(&weight);
    let (weight, grads) = (values::<T>(&weight), values::<T>(&grad));
    let tokens = length + taps - 1;
    let out = filled(batch * tokens * channels, |out| {
        for_each_row(out, channels, |row, out| {
            let (batch, token) = (row / tokens, row % tokens);
            let taps = (token + 1).saturating_sub(length)..taps.min(token + 1);
            let read = |tap| (&grads[span(batch * length + token - tap, channels)], &weight[span(tap, channels)]);
            add_products(out, taps.map(read));
        });
    });
    T::tensor(out, Shape::from(vec![batch, tokens, channels]))
}

fn weight_gradient<T: Real>(x: FlexTensor, grad: FlexTensor) -> FlexTensor {
    let (x, grad) = (contiguous(x), contiguous(grad));
    let ([_, tokens, channels], [batch, length, _]) = (dims(&x), dims(&grad));
    let taps = tokens + 1 - length;
    let (rows, grads) = (values::<T>(&x), values::<T>(&grad));
    let sums = sum_of_blocks(batch * length, channels, taps * channels, |start, end, sums| {
        vectorised(
            #[inline(always)]
            || {
                for row in start..end {
                    let (first, grad) = (row / length * tokens + row % length, &grads[span(row, channels)]);
                    for (tap, sums) in sums.chunks_exact_mut(channels).enumerate() {
                        add_product(sums, &rows[span(first + tap, channels)], grad);
                    }
                }
            },
        );
    });
    T::tensor(sums, Shape::from(vec![taps, channels]))
}

/// Calls `body` with the number of every row of `out`, in parallel if there are many.
fn for_each_row<T: Real>(out: &mut [T], width: usize, body: impl Fn(usize, &mut [T]) + Sync) {
    for_each_block(out, width, |first, out| {
        vectorised(
            #[inline(always)]
            || out.chunks_exact_mut(width).enumerate().for_each(|(index, out)| body(first + index, out)),
        );
    });
}

/// The sum of products of rows, of which there is one at least.
#[inline(always)]
fn add_products<'a, T: Real>(out: &mut [T], mut products: impl Iterator<Item = (&'a [T], &'a [T])>) {
    let (a, b) = products.next().expect("a convolution has a tap or more");
    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *out = a * b;
    }
    products.for_each(
        #[inline(always)]
        |(a, b)| add_product(out, a, b),
    );
}

#[inline(always)]
fn add_product<T: Real>(out: &mut [T], a: &[T], b: &[T]) {
    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *out += a * b;
    }
}

/// The numbers of a row.
#[inline(always)]
fn span(row: usize, width: usize) -> Range<usize> {
    row * width..(row + 1) * width
}

fn dims<const D: usize>(tensor: &FlexTensor) -> [usize; D] {
    std::array::from_fn(|index| tensor.layout().shape()[index])
}
