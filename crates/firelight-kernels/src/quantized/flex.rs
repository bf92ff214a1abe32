//! Products with blocks on the flex backend: see [`few`](super::few) and [`panels`](super::panels).

use super::activations::rounded as in_eight_bits;
use super::few::{ROWS, multiply_few};
use super::matrix::BlockMatrix;
use super::{QuantizedLinearExtension, QuantizedLinearKernel, panels};
use crate::BlockFormat;
use crate::flex::halves::Units;
use crate::flex::{Matrix, Number, contiguous, converted, rounded, values, widened, with_last};
use crate::optional::OptionalFloat;
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, Shape, bf16};

impl QuantizedLinearExtension for Flex {
    fn quantized_linear(
        x: FlexTensor,
        blocks: FlexTensor,
        bias: OptionalFloat<Self>,
        format: BlockFormat,
    ) -> FlexTensor {
        Self::quantized_forward(x, blocks, bias.into_option(), format)
    }
}

impl QuantizedLinearKernel for Flex {
    fn quantized_forward(
        x: FlexTensor,
        blocks: FlexTensor,
        bias: Option<FlexTensor>,
        format: BlockFormat,
    ) -> FlexTensor {
        let blocks = contiguous(blocks);
        let weight = BlockMatrix::of(&blocks, format);
        if x.dtype() != DType::BF16 {
            return forward(x, weight, bias);
        }
        match Units::chosen().filter(|_| rows(&x) > ROWS) {
            Some(units) => forward_in_halves(x, weight, bias, units),
            None => rounded(forward(widened(x), weight, bias.map(widened))),
        }
    }

    fn quantized_input_gradient(blocks: FlexTensor, grad: FlexTensor, x: &[usize], format: BlockFormat) -> FlexTensor {
        let blocks = contiguous(blocks);
        let weight = BlockMatrix::of(&blocks, format);
        if grad.dtype() != DType::BF16 {
            return input_gradient(weight, grad, x);
        }
        match Units::chosen() {
            Some(units) => {
                let grad = contiguous(grad);
                let out = panels::input_gradient_in_halves(rows_of(&grad), weight, units);
                bf16::tensor(out, Shape::from(x.to_vec()))
            }
            None => rounded(input_gradient(weight, widened(grad), x)),
        }
    }
}

/// In single precision.
fn forward(x: FlexTensor, weight: BlockMatrix<'_>, bias: Option<FlexTensor>) -> FlexTensor {
    let (x, bias) = (contiguous(x), bias.map(contiguous));
    let bias = bias.as_ref().map(values::<f32>);
    let out = match rows(&x) {
        1..=ROWS => multiply_few(values(&x), weight, bias),
        _ => panels::multiply(Matrix::rows(&in_eight_bits(values(&x)), weight.shape()[1]), weight, bias),
    };
    f32::tensor(out, with_last(&x, weight.shape()[0]))
}

fn forward_in_halves(x: FlexTensor, weight: BlockMatrix<'_>, bias: Option<FlexTensor>, units: Units) -> FlexTensor {
    let (x, bias) = (contiguous(x), bias.map(contiguous));
    let rows: Vec<bf16> = converted(&in_eight_bits(&converted::<_, f32>(values::<bf16>(&x))));
    let rows = Matrix::rows(&rows, weight.shape()[1]);
    let out = panels::multiply_in_halves(rows, weight, bias.as_ref().map(values::<bf16>), units);
    bf16::tensor(out, with_last(&x, weight.shape()[0]))
}

/// In single precision.
fn input_gradient(weight: BlockMatrix<'_>, grad: FlexTensor, x: &[usize]) -> FlexTensor {
    let grad = contiguous(grad);
    f32::tensor(panels::input_gradient(rows_of(&grad), weight), Shape::from(x.to_vec()))
}

/// How many rows a tensor has, all leading dimensions flattened.
fn rows(x: &FlexTensor) -> usize {
    x.layout().shape().iter().rev().skip(1).product()
}

/// A contiguous tensor as a matrix.
fn rows_of<N: Number>(x: &FlexTensor) -> Matrix<'_, N> {
    let shape = x.layout().shape();
    Matrix::rows(values(x), shape[shape.num_dims() - 1])
}
