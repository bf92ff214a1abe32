//! The affine map in `bf16` on the flex backend: the rows of a decoder read the weight as it lies, many rows go through tile
//! registers where the processor has them.

use super::flex::{matrix, repeat_row};
use super::row::{add_rows, are_long, may_be_long};
use crate::flex::halves::{Units, product};
use crate::flex::{Matrix, Number, contiguous, converted, filled, values};
use burn::backend::flex::FlexTensor;
use burn::tensor::{Shape, bf16};

/// Whether so many rows are multiplied with a weight faster than by widening both to `f32`.
pub(super) fn serves(rows: usize, weight: [usize; 2]) -> bool {
    Units::chosen().is_some() || may_be_long(rows, weight)
}

/// `x weight + bias`, rounded once.
pub(super) fn forward(x: FlexTensor, weight: FlexTensor, bias: Option<FlexTensor>) -> FlexTensor {
    let (x, bias) = (contiguous(x), bias.map(contiguous));
    let (weight, bias) = (matrix::<bf16>(&weight), bias.as_ref().map(values::<bf16>));
    let (mut shape, [d_in, d_out]) = (x.layout().shape().clone(), weight.shape());
    let last = shape.num_dims() - 1;
    shape[last] = d_out;
    let rows = Matrix::rows(values(&x), d_in);
    let out = match are_long(rows.shape()[0], &weight) {
        true => multiply_long(values(&x), weight, bias),
        false => multiply(rows, weight, bias),
    };
    bf16::tensor(out, shape)
}

/// `grad weightᵀ`, of the shape of `x`.
pub(super) fn input_gradient(weight: FlexTensor, grad: FlexTensor, x: &[usize]) -> FlexTensor {
    let grad = contiguous(grad);
    let weight = matrix::<bf16>(&weight).transposed();
    let out = multiply(Matrix::rows(values(&grad), weight.shape()[0]), weight, None);
    bf16::tensor(out, Shape::from(x.to_vec()))
}

/// `xᵀ grad`.
pub(super) fn weight_gradient(x: FlexTensor, grad: FlexTensor) -> FlexTensor {
    let (x, grad) = (contiguous(x), contiguous(grad));
    let [d_in, d_out] = [&x, &grad].map(|tensor| tensor.layout().shape()[tensor.layout().num_dims() - 1]);
    let x = Matrix::rows(values(&x), d_in).transposed();
    bf16::tensor(multiply(x, Matrix::rows(values(&grad), d_out), None), Shape::from(vec![d_in, d_out]))
}

fn multiply(left: Matrix<'_, bf16>, right: Matrix<'_, bf16>, bias: Option<&[bf16]>) -> Vec<bf16> {
    let units = Units::chosen().unwrap_or(Units::Plain);
    filled(left.shape()[0] * right.shape()[1], |out| product(out, left, right, bias, units))
}

/// The rows of a decoder.
fn multiply_long(x: &[bf16], weight: Matrix<'_, bf16>, bias: Option<&[bf16]>) -> Vec<bf16> {
    let [d_in, d_out] = weight.shape();
    let x: Vec<f32> = converted(x);
    let mut sums = vec![0.0; x.len() / d_in * d_out];
    if let Some(bias) = bias {
        repeat_row(&mut sums, &converted::<_, f32>(bias));
    }
    add_rows(&mut sums, Matrix::rows(&x, d_in), weight);
    converted(&sums)
}
