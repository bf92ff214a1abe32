//! The affine map on the flex backend: one product per direction, on views in place of transposed copies.

use super::{LinearExtension, LinearKernel};
use crate::flex::{
    Matrix, MatrixMut, OptionalFloat, Real, add_to, block_rows, contiguous, filled, for_each_block, product, sum,
    sum_of_blocks, values, vectorised, with_real,
};
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Shape;
use rayon::prelude::*;

impl LinearExtension for Flex {
    fn linear(x: FlexTensor, weight: FlexTensor, bias: OptionalFloat<Self>) -> FlexTensor {
        Self::forward(x, weight, bias.into_option())
    }
}

impl LinearKernel for Flex {
    fn forward(x: FlexTensor, weight: FlexTensor, bias: Option<FlexTensor>) -> FlexTensor {
        with_real!(x, forward(x, weight, bias))
    }

    fn input_gradient(weight: FlexTensor, grad: FlexTensor, x: &[usize]) -> FlexTensor {
        with_real!(weight, input_gradient(weight, grad, x))
    }

    fn weight_gradient(x: FlexTensor, grad: FlexTensor) -> FlexTensor {
        with_real!(x, weight_gradient(x, grad))
    }

    fn bias_gradient(grad: FlexTensor) -> FlexTensor {
        with_real!(grad, bias_gradient(grad))
    }
}

/// A weight as it lies: transposed weights of tied heads are read in place.
fn matrix<T: Real>(weight: &FlexTensor) -> Matrix<'_, T> {
    let layout = weight.layout();
    let (shape, strides) = (layout.shape(), layout.strides());
    Matrix::new(T::storage(weight), layout.start_offset(), [shape[0], shape[1]], [strides[0], strides[1]])
}

/// `x weight + bias`: the product is added to rows that hold the bias.
fn forward<T: Real>(x: FlexTensor, weight: FlexTensor, bias: Option<FlexTensor>) -> FlexTensor {
    let x = contiguous(x);
    let (d_in, d_out) = (weight.layout().shape()[0], weight.layout().shape()[1]);
    let mut shape = x.layout().shape().clone();
    let last = shape.num_dims() - 1;
    shape[last] = d_out;
    let out = filled(shape.num_elements(), |out| {
        match &bias {
            Some(bias) => repeat_row(out, values::<T>(&contiguous(bias.clone()))),
            None if out.len() == d_out => out.fill(T::ZERO),
            None => {}
        }
        if out.len() == d_out && add_row(out, values::<T>(&x), &weight) {
            return;
        }
        let rows = Matrix::rows(values::<T>(&x), d_in);
        product(MatrixMut::rows(out, d_out), bias.is_some(), rows, matrix(&weight), T::ONE, true);
    });
    T::tensor(out, shape)
}

fn repeat_row<T: Real>(out: &mut [T], row: &[T]) {
    for_each_block(out, row.len(), |_, out| out.chunks_exact_mut(row.len()).for_each(|out| out.copy_from_slice(row)));
}

/// Adds `x weight` to a single row, as the step of a decoder needs it: every number of the weight is read once, in the order
/// in which it lies, by all threads. False if it lies in neither order.
fn add_row<T: Real>(out: &mut [T], x: &[T], weight: &FlexTensor) -> bool {
    let layout = weight.layout();
    let numbers = &T::storage(weight)[layout.start_offset()..];
    let (d_in, d_out) = (x.len() as isize, out.len() as isize);
    match *layout.strides() {
        [row, 1] if row == d_out => add_scaled_rows(out, x, numbers),
        [1, column] if column == d_in => add_products(out, x, numbers),
        _ => return false,
    }
    true
}

/// `out += Σ x[i] rows[i]`.
fn add_scaled_rows<T: Real>(out: &mut [T], x: &[T], rows: &[T]) {
    let width = out.len();
    let sums = sum_of_blocks(x.len(), width, width, |start, end, sums| {
        vectorised(
            #[inline(always)]
            || {
                for (&x, row) in x[start..end].iter().zip(rows[start * width..].chunks_exact(width)) {
                    sums.iter_mut().zip(row).for_each(|(sum, &weight)| *sum += x * weight);
                }
            },
        );
    });
    add_to(out, &sums);
}

/// `out[j] += x · columns[j]`.
fn add_products<T: Real>(out: &mut [T], x: &[T], columns: &[T]) {
    let block = block_rows(x.len());
    out.par_chunks_mut(block).zip(columns.par_chunks(block * x.len())).for_each(|(out, columns)| {
        vectorised(
            #[inline(always)]
            || {
                for (out, column) in out.iter_mut().zip(columns.chunks_exact(x.len())) {
                    *out += sum(x.len(), |i| x[i] * column[i]);
                }
            },
        );
    });
}

/// `grad weightᵀ`, of the shape of `x`.
fn input_gradient<T: Real>(weight: FlexTensor, grad: FlexTensor, x: &[usize]) -> FlexTensor {
    let grad = contiguous(grad);
    let (d_in, d_out) = (weight.layout().shape()[0], weight.layout().shape()[1]);
    let out = filled(x.iter().product(), |out| {
        let rows = Matrix::rows(values::<T>(&grad), d_out);
        product(MatrixMut::rows(out, d_in), false, rows, matrix(&weight).transposed(), T::ONE, true);
    });
    T::tensor(out, Shape::from(x.to_vec()))
}

/// `xᵀ grad`.
fn weight_gradient<T: Real>(x: FlexTensor, grad: FlexTensor) -> FlexTensor {
    let (x, grad) = (contiguous(x), contiguous(grad));
    let [d_in, d_out] = [&x, &grad].map(|tensor| tensor.layout().shape()[tensor.layout().num_dims() - 1]);
    let out = filled(d_in * d_out, |out| {
        let (x, grad) = (Matrix::rows(values::<T>(&x), d_in), Matrix::rows(values::<T>(&grad), d_out));
        product(MatrixMut::rows(out, d_out), false, x.transposed(), grad, T::ONE, true);
    });
    T::tensor(out, Shape::from(vec![d_in, d_out]))
}

/// The sums of the columns.
fn bias_gradient<T: Real>(grad: FlexTensor) -> FlexTensor {
    let grad = contiguous(grad);
    let d_out = grad.layout().shape()[grad.layout().num_dims() - 1];
    let numbers = values::<T>(&grad);
    let sums = sum_of_blocks(numbers.len() / d_out, d_out, d_out, |start, end, sums| {
        vectorised(
            #[inline(always)]
            || {
                for row in numbers[start * d_out..end * d_out].chunks_exact(d_out) {
                    add_to(sums, row);
                }
            },
        );
    });
    T::tensor(sums, Shape::from(vec![d_out]))
}
