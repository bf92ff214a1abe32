//! The convolution on the flex backend: one pass over memory each for the output and the two gradients.

use super::{CausalConvolutionExtension, CausalConvolutionKernel};
use crate::flex::{Real, contiguous, filled, for_each_block, sum_of_blocks, values, vectorised, with_real};
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Shape;
use std::ops::Range;

impl CausalConvolutionExtension for Flex {
    fn causal_convolution(x: FlexTensor, history: FlexTensor, weight: FlexTensor) -> FlexTensor {
        Self::forward(x, history, weight)
    }
}

impl CausalConvolutionKernel for Flex {
    fn forward(x: FlexTensor, history: FlexTensor, weight: FlexTensor) -> FlexTensor {
        with_real!(x, forward(x, history, weight))
    }

    fn input_gradient(weight: FlexTensor, grad: FlexTensor) -> FlexTensor {
        let ([taps, _], [_, length, _]) = (dims(&weight), dims(&grad));
        with_real!(grad, gradient_of(taps - 1..taps - 1 + length, weight, grad))
    }

    fn history_gradient(weight: FlexTensor, grad: FlexTensor) -> FlexTensor {
        let [taps, _] = dims(&weight);
        with_real!(grad, gradient_of(0..taps - 1, weight, grad))
    }

    fn weight_gradient(x: FlexTensor, history: FlexTensor, grad: FlexTensor) -> FlexTensor {
        with_real!(x, weight_gradient(x, history, grad))
    }
}

/// The tokens of texts that a convolution reads, those before the first included.
struct Tokens<'a, T> {
    history: &'a [T],
    x: &'a [T],
    history_len: usize,
    length: usize,
    channels: usize,
}

impl<'a, T: Real> Tokens<'a, T> {
    fn new(x: &'a FlexTensor, history: &'a FlexTensor) -> Self {
        let ([_, length, channels], [_, history_len, _]) = (dims(x), dims(history));
        Self { history: values(history), x: values(x), history_len, length, channels }
    }

    /// What tap `tap` reads of token `row` of all texts.
    #[inline(always)]
    fn read(&self, row: usize, tap: usize) -> &'a [T] {
        let (text, place) = (row / self.length, row % self.length + tap);
        match place.checked_sub(self.history_len) {
            Some(token) => &self.x[span(text * self.length + token, self.channels)],
            None => &self.history[span(text * self.history_len + place, self.channels)],
        }
    }
}

fn forward<T: Real>(x: FlexTensor, history: FlexTensor, weight: FlexTensor) -> FlexTensor {
    let [x, history, weight] = [x, history, weight].map(contiguous);
    let (tokens, taps, weight) = (Tokens::<T>::new(&x, &history), dims::<2>(&weight)[0], values::<T>(&weight));
    let channels = tokens.channels;
    let out = filled(tokens.x.len(), |out| {
        for_each_row(out, channels, |row, out| {
            add_products(out, (0..taps).map(|tap| (tokens.read(row, tap), &weight[span(tap, channels)])));
        });
    });
    T::tensor(out, x.layout().shape().clone())
}

/// The gradients of those `places` of every text, the tokens before it counted: each reads the gradients of itself and of the tokens
/// behind it.
fn gradient_of<T: Real>(places: Range<usize>, weight: FlexTensor, grad: FlexTensor) -> FlexTensor {
    let (weight, grad) = (contiguous(weight), contiguous(grad));
    let [batch, length, _] = dims(&grad);
    let [taps, channels] = dims(&weight);
    let (weight, grads) = (values::<T>(&weight), values::<T>(&grad));
    let out = filled(batch * places.len() * channels, |out| {
        for_each_row(out, channels, |row, out| {
            let (text, place) = (row / places.len(), places.start + row % places.len());
            let taps = (place + 1).saturating_sub(length)..taps.min(place + 1);
            let read = |tap| (&grads[span(text * length + place - tap, channels)], &weight[span(tap, channels)]);
            add_products(out, taps.map(read));
        });
    });
    T::tensor(out, Shape::from(vec![batch, places.len(), channels]))
}

fn weight_gradient<T: Real>(x: FlexTensor, history: FlexTensor, grad: FlexTensor) -> FlexTensor {
    let [x, history, grad] = [x, history, grad].map(contiguous);
    let (tokens, grads) = (Tokens::<T>::new(&x, &history), values::<T>(&grad));
    let (channels, taps) = (tokens.channels, tokens.history_len + 1);
    let sums = sum_of_blocks(grads.len() / channels, channels, taps * channels, |start, end, sums| {
        vectorised(
            #[inline(always)]
            || {
                for row in start..end {
                    let grad = &grads[span(row, channels)];
                    for (tap, sums) in sums.chunks_exact_mut(channels).enumerate() {
                        add_product(sums, tokens.read(row, tap), grad);
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

/// The sum of products of rows.
#[inline(always)]
fn add_products<'a, T: Real>(out: &mut [T], mut products: impl Iterator<Item = (&'a [T], &'a [T])>) {
    let Some((a, b)) = products.next() else {
        return out.fill(T::ZERO);
    };
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
