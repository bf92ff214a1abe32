//! Rows in eight bits from Burn primitives.

use super::{Blocks, CODES, SMALLEST};
use burn::tensor::{DType, FloatDType, Int, IntDType, Tensor};

pub(super) fn quantize(x: Tensor<4>) -> (Tensor<4, Int>, Tensor<4>) {
    let [batch, heads, rows, width] = x.dims();
    let blocks = Blocks::of(width);
    let x = x.detach().reshape([batch * heads * rows * blocks.count, blocks.numbers]);
    let scales = scales(x.clone()); // [N, 1]
    let codes = (x / steps(scales.clone()) + 0.5).floor();
    let unknown = codes.clone().is_nan(); // Not every backend makes an integer of NaN.
    let codes = codes.mask_fill(unknown, 0.0).cast(IntDType::I32);
    let codes = packed(codes, blocks.words).reshape([batch, heads, rows, blocks.count * blocks.words]);
    (codes, scales.reshape([batch, heads, rows, blocks.count]))
}

pub(super) fn dequantize(codes: Tensor<4, Int>, scales: Tensor<4>, width: usize) -> Tensor<4> {
    let [batch, heads, rows, _] = codes.dims();
    let blocks = Blocks::of(width);
    let count = batch * heads * rows * blocks.count;
    let codes = unpacked(codes.reshape([count, blocks.words])).narrow(1, 0, blocks.numbers);
    let numbers = codes.cast(FloatDType::F32) * scales.reshape([count, 1]);
    numbers.reshape([batch, heads, rows, width])
}

/// A 127th of the largest magnitude of each row, `[N, E] -> [N, 1]`; NaN where a number is not finite.
fn scales(x: Tensor<2>) -> Tensor<2> {
    let zeros = x.clone().mul_scalar(0.0).sum_dim(1);
    x.abs().max_dim(1) / 127.0 + zeros
}

/// What numbers are divided by: the scale, and where it is too small 1, so that nothing is left of them.
fn steps(scales: Tensor<2>) -> Tensor<2> {
    let small = scales.clone().lower_elem(SMALLEST);
    scales.mask_fill(small, 1.0)
}

/// Four codes in an integer: `[N, E] -> [N, W]`.
fn packed(codes: Tensor<2, Int>, words: usize) -> Tensor<2, Int> {
    let ([count, numbers], device) = (codes.dims(), codes.device());
    let missing = words * CODES - numbers;
    let codes = match missing {
        0 => codes,
        _ => Tensor::cat(vec![codes, Tensor::zeros([count, missing], (&device, DType::I32))], 1),
    };
    let part = |index: usize| codes.clone().narrow(1, index * words, words);
    let byte = |index: usize| part(index).bitwise_and_scalar(255) * (1i32 << (8 * index));
    byte(0) + byte(1) + byte(2) + part(3) * (1i32 << 24) // The highest with its sign, so that no sum is too large.
}

/// The codes of integers: `[N, W] -> [N, 4 W]`.
fn unpacked(words: Tensor<2, Int>) -> Tensor<2, Int> {
    let byte = |index: usize| words.clone().bitwise_right_shift_scalar(8 * index as i32).bitwise_and_scalar(255);
    let signed = |index: usize| byte(index).bitwise_xor_scalar(128) - 128;
    Tensor::cat((0..CODES).map(signed).collect(), 1)
}
