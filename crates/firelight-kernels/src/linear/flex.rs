//! The affine map on the flex backend: one product per direction, on views in place of transposed copies.

use super::few::{are_few, multiply_few};
use super::row::{add_rows, are_long};
use super::{LinearExtension, LinearKernel, bf16, three_bf16};
use crate::MatmulPrecision;
use crate::flex::{
    Matrix, MatrixMut, Number, Real, contiguous, filled, for_each_block, product, product_of_long_sums, sum_of_blocks,
    values, vectorised, with_last, with_number, with_real,
};
use crate::optional::OptionalFloat;
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, Shape};

impl LinearExtension for Flex {
    fn linear(x: FlexTensor, weight: FlexTensor, bias: OptionalFloat<Self>, precision: MatmulPrecision) -> FlexTensor {
        Self::forward(x, weight, bias.into_option(), precision)
    }
}

impl LinearKernel for Flex {
    fn forward(x: FlexTensor, weight: FlexTensor, bias: Option<FlexTensor>, precision: MatmulPrecision) -> FlexTensor {
        if let Some(units) = three_bf16::units(&x, precision) {
            return three_bf16::forward(x, weight, bias, units);
        }
        match x.dtype() {
            DType::BF16 => bf16::forward(x, weight, bias),
            _ => with_real!(x, forward(x, weight, bias)),
        }
    }

    fn input_gradient(weight: FlexTensor, grad: FlexTensor, x: &[usize], precision: MatmulPrecision) -> FlexTensor {
        if let Some(units) = three_bf16::units(&grad, precision) {
            return three_bf16::input_gradient(weight, grad, x, units);
        }
        match grad.dtype() {
            DType::BF16 => bf16::input_gradient(weight, grad, x),
            _ => with_real!(weight, input_gradient(weight, grad, x)),
        }
    }

    fn weight_gradient(x: FlexTensor, grad: FlexTensor, precision: MatmulPrecision) -> FlexTensor {
        if let Some(units) = three_bf16::units(&grad, precision) {
            return three_bf16::weight_gradient(x, grad, units);
        }
        match grad.dtype() {
            DType::BF16 => bf16::weight_gradient(x, grad),
            _ => with_real!(x, weight_gradient(x, grad)),
        }
    }

    fn bias_gradient(grad: FlexTensor) -> FlexTensor {
        with_number!(grad, bias_gradient(grad))
    }
}

/// A weight as it lies: transposed weights of tied heads are read in place.
pub(super) fn matrix<T: Number>(weight: &FlexTensor) -> Matrix<'_, T> {
    let layout = weight.layout();
    let (shape, strides) = (layout.shape(), layout.strides());
    Matrix::new(T::storage(weight), layout.start_offset(), [shape[0], shape[1]], [strides[0], strides[1]])
}

/// `x weight + bias`: the product is added to rows that hold the bias.
pub(super) fn forward<T: Real>(x: FlexTensor, weight: FlexTensor, bias: Option<FlexTensor>) -> FlexTensor {
    let x = contiguous(x);
    let (d_in, d_out) = (weight.layout().shape()[0], weight.layout().shape()[1]);
    let shape = with_last(&x, d_out);
    let out = filled(shape.num_elements(), |out| {
        let (rows, weight) = (Matrix::rows(values::<T>(&x), d_in), matrix(&weight));
        let are_long = are_long(rows.shape()[0], &weight);
        match &bias {
            Some(bias) => repeat_row(out, values::<T>(&contiguous(bias.clone()))),
            None if are_long => out.fill(T::ZERO),
            None if are_few(&rows, &weight) => return multiply_few(out, rows, weight),
            None => {}
        }
        if are_long {
            return add_rows(out, rows, weight);
        }
        product(MatrixMut::rows(out, d_out), bias.is_some(), rows, weight, T::ONE, true);
    });
    T::tensor(out, shape)
}

pub(super) fn repeat_row<T: Number>(out: &mut [T], row: &[T]) {
    for_each_block(out, row.len(), |_, out| out.chunks_exact_mut(row.len()).for_each(|out| out.copy_from_slice(row)));
}

/// `grad weightᵀ`, of the shape of `x`.
pub(super) fn input_gradient<T: Real>(weight: FlexTensor, grad: FlexTensor, x: &[usize]) -> FlexTensor {
    let grad = contiguous(grad);
    let (d_in, d_out) = (weight.layout().shape()[0], weight.layout().shape()[1]);
    let out = filled(x.iter().product(), |out| {
        let rows = Matrix::rows(values::<T>(&grad), d_out);
        product(MatrixMut::rows(out, d_in), false, rows, matrix(&weight).transposed(), T::ONE, true);
    });
    T::tensor(out, Shape::from(x.to_vec()))
}

/// `xᵀ grad`.
pub(super) fn weight_gradient<T: Real>(x: FlexTensor, grad: FlexTensor) -> FlexTensor {
    let (x, grad) = (contiguous(x), contiguous(grad));
    let [d_in, d_out] = [&x, &grad].map(|tensor| tensor.layout().shape()[tensor.layout().num_dims() - 1]);
    let out = filled(d_in * d_out, |out| {
        let (x, grad) = (Matrix::rows(values::<T>(&x), d_in), Matrix::rows(values::<T>(&grad), d_out));
        product_of_long_sums(MatrixMut::rows(out, d_out), x.transposed(), grad);
    });
    T::tensor(out, Shape::from(vec![d_in, d_out]))
}

/// The sums of the columns.
fn bias_gradient<T: Number>(grad: FlexTensor) -> FlexTensor {
    let grad = contiguous(grad);
    let d_out = grad.layout().shape()[grad.layout().num_dims() - 1];
    let numbers = values::<T>(&grad);
    let sums = sum_of_blocks::<T::Sum>(numbers.len() / d_out, d_out, d_out, |start, end, sums| {
        vectorised(
            #[inline(always)]
            || {
                for row in numbers[start * d_out..end * d_out].chunks_exact(d_out) {
                    sums.iter_mut().zip(row).for_each(|(sum, number)| *sum += number.widen());
                }
            },
        );
    });
    T::tensor(sums.into_iter().map(T::round).collect(), Shape::from(vec![d_out]))
}
