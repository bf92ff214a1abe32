//! The same from Burn primitives: blocks become numbers on the host.

use super::width;
use crate::BlockFormat;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};

pub(super) fn quantized_linear<const D: usize>(
    x: Tensor<D>,
    blocks: Tensor<2, Int>,
    format: BlockFormat,
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    let weight = numbers(blocks, format, &x.device()).cast(x.dtype());
    crate::linear(x, weight.transpose(), bias)
}

/// The blocks of the rows alone leave the device.
pub(super) fn quantized_embedding(blocks: Tensor<2, Int>, format: BlockFormat, tokens: Tensor<2, Int>) -> Tensor<3> {
    let ([vocab_size, bytes], [batch, length]) = (blocks.dims(), tokens.dims());
    let device = blocks.device();
    if batch * length == 0 {
        return Tensor::zeros([batch, length, width(format, bytes)], (&device, DType::F32));
    }
    check_tokens(&tokens, vocab_size);
    let rows = blocks.select(0, tokens.reshape([batch * length]));
    numbers(rows, format, &device).reshape([batch, length, width(format, bytes)])
}

pub(super) fn dequantized(blocks: Tensor<2, Int>, format: BlockFormat) -> Tensor<2> {
    let device = blocks.device();
    numbers(blocks, format, &device)
}

fn numbers(blocks: Tensor<2, Int>, format: BlockFormat, device: &Device) -> Tensor<2> {
    let [rows, bytes] = blocks.dims();
    let width = width(format, bytes);
    let mut numbers = vec![0.0; rows * width];
    format.dequantize(blocks.into_data().as_bytes(), &mut numbers);
    Tensor::from_data(TensorData::new(numbers, [rows, width]), (device, DType::F32))
}

fn check_tokens(tokens: &Tensor<2, Int>, vocab_size: usize) {
    for (place, token) in tokens.to_data().iter::<i64>().enumerate() {
        let is_row = usize::try_from(token).is_ok_and(|row| row < vocab_size);
        assert!(is_row, "quantized_embedding: token {token} at {place} is not one of {vocab_size} rows");
    }
}
