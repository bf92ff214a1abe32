//! The affine map in `bf16` on the flex backend: the rows of a decoder read the weight as it lies, many rows go through tile
//! registers where the processor has them. Elsewhere both are widened.

use super::flex::{matrix, repeat_row};
use super::row::{add_rows, are_long};
use crate::flex::halves::{Units, product};
use crate::flex::{Matrix, Number, contiguous, converted, filled, rounded, values, widened, with_last};
use burn::backend::flex::FlexTensor;
use burn::tensor::{Shape, bf16};

/// `x weight + bias`, rounded once.
pub(super) fn forward(x: FlexTensor, weight: FlexTensor, bias: Option<FlexTensor>) -> FlexTensor {
    let rows: usize = x.layout().shape().iter().rev().skip(1).product();
    let is_long = are_long(rows, &matrix::<bf16>(&weight));
    let Some(units) = Units::chosen().filter(|_| !is_long) else {
        return match is_long {
            true => forward_long(x, &weight, bias),
            false => rounded(super::flex::forward::<f32>(widened(x), widened(weight), bias.map(widened))),
        };
    };
    let (x, bias) = (contiguous(x), bias.map(contiguous));
    let weight = matrix(&weight);
    let left = Matrix::rows(values(&x), weight.shape()[0]);
    let out = multiply(left, weight, bias.as_ref().map(values::<bf16>), units);
    bf16::tensor(out, with_last(&x, weight.shape()[1]))
}

/// `grad weightᵀ`, of the shape of `x`.
pub(super) fn input_gradient(weight: FlexTensor, grad: FlexTensor, x: &[usize]) -> FlexTensor {
    let Some(units) = Units::chosen() else {
        return rounded(super::flex::input_gradient::<f32>(widened(weight), widened(grad), x));
    };
    let grad = contiguous(grad);
    let weight = matrix::<bf16>(&weight).transposed();
    let out = multiply(Matrix::rows(values(&grad), weight.shape()[0]), weight, None, units);
    bf16::tensor(out, Shape::from(x.to_vec()))
}

/// `xᵀ grad`.
pub(super) fn weight_gradient(x: FlexTensor, grad: FlexTensor) -> FlexTensor {
    let Some(units) = Units::chosen() else {
        return rounded(super::flex::weight_gradient::<f32>(widened(x), widened(grad)));
    };
    let (x, grad) = (contiguous(x), contiguous(grad));
    let [d_in, d_out] = [&x, &grad].map(|tensor| tensor.layout().shape()[tensor.layout().num_dims() - 1]);
    let x = Matrix::rows(values(&x), d_in).transposed();
    bf16::tensor(multiply(x, Matrix::rows(values(&grad), d_out), None, units), Shape::from(vec![d_in, d_out]))
}

fn multiply(left: Matrix<'_, bf16>, right: Matrix<'_, bf16>, bias: Option<&[bf16]>, units: Units) -> Vec<bf16> {
    filled(left.shape()[0] * right.shape()[1], |out| product(out, left, right, bias, units))
}

/// The rows of a decoder.
fn forward_long(x: FlexTensor, weight: &FlexTensor, bias: Option<FlexTensor>) -> FlexTensor {
    let (x, weight) = (contiguous(x), matrix::<bf16>(weight));
    let [d_in, d_out] = weight.shape();
    let rows: Vec<f32> = converted(values::<bf16>(&x));
    let mut sums = vec![0.0; rows.len() / d_in * d_out];
    if let Some(bias) = bias.map(contiguous) {
        repeat_row(&mut sums, &converted::<_, f32>(values::<bf16>(&bias)));
    }
    add_rows(&mut sums, Matrix::rows(&rows, d_in), weight);
    bf16::tensor(converted(&sums), with_last(&x, d_out))
}
