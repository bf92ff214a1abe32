//! Rows of numbers in eight bits, as tensors that every backend can hold: a quarter of the memory of `f32`.
//!
//! Source: the format `Q8_0` of GGUF, 32 codes from -127 to 127 and one scale (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>).
//! Differs from it: the scale is an `f32` in a tensor of its own, four codes lie in an integer of 32 bits, since GPUs have no tensors of
//! bytes, and codes are rounded half up, so that every backend rounds alike. A row that is no whole number of blocks has one scale.

#[cfg(feature = "flex")]
mod flex;
mod reference;

use burn::tensor::{DType, FloatDType, Int, Tensor};

#[cfg(feature = "flex")]
use extension::EightBitsExtension;

/// Numbers of a block, where the width of a row is a multiple of it.
const BLOCK: usize = 32;

/// The smallest scale that numbers are divided by. Blocks of smaller ones become zeros.
const SMALLEST: f32 = 1e-30;

/// Codes in an integer.
const CODES: usize = 4;

/// How a row is cut. Of `n` integers of a block, integer `i` holds the codes of the numbers `i`, `i + n`, `i + 2 n` and `i + 3 n`, from the
/// lowest byte on.
#[derive(Debug, Clone, Copy)]
struct Blocks {
    /// Blocks of a row.
    count: usize,
    /// Numbers of a block.
    numbers: usize,
    /// Integers of a block.
    words: usize,
}

impl Blocks {
    fn of(width: usize) -> Self {
        let numbers = if width.is_multiple_of(BLOCK) { BLOCK } else { width };
        Self { count: width / numbers, numbers, words: numbers.div_ceil(CODES) }
    }
}

/// Rounds rows of numbers to eight bits: the codes, and a scale `d` for every 32 numbers of a row, or for the row where its width is no
/// multiple of 32. A number `x` becomes `d q`, with `d` a 127th of the largest magnitude of its block and the nearest integer `q`, so that
/// it moves by half of `d` at most. Each row is rounded by itself. No gradient flows back.
///
/// Blocks with a scale below 1e-30 become zeros. A block with a number that is not finite is NaN as a whole.
///
/// # Shapes
/// - `x`: `[B, G, T, E]`, not empty; codes: `[B, G, T, W]` in `I32`, four in an integer; scales: `[B, G, T, S]` in `F32`. `W` is `E / 4`, and
///   `S` is `E / 32`; or `E / 4` rounded up, and 1.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_kernels::{dequantize_rows, quantize_rows};
///
/// let x = Tensor::<1>::from_floats([127.0, -63.4, 0.6], &Device::flex()).reshape([1, 1, 1, 3]);
/// let (codes, scales) = quantize_rows(x);
/// assert_eq!((codes.dims(), scales.dims()), ([1, 1, 1, 1], [1, 1, 1, 1]));
/// let read = dequantize_rows(codes, scales, 3);
/// assert_eq!(read.try_to_vec_as::<f32>().expect("a host copy"), [127.0, -63.0, 1.0]);
/// ```
pub fn quantize_rows(x: Tensor<4>) -> (Tensor<4, Int>, Tensor<4>) {
    let x = match x.dtype() {
        DType::F32 => x,
        _ => crate::cast(x, FloatDType::F32),
    };
    #[cfg(feature = "flex")]
    if crate::path::log_path("quantize_rows", extension::serves(&x)) {
        return extension::quantize_rows(x);
    }
    reference::quantize(x)
}

/// The numbers of rows in eight bits, as [`quantize_rows`] makes them.
///
/// # Shapes
/// - `codes`: `[B, G, T, W]`, `scales`: `[B, G, T, S]`, of rows of `width` numbers; output: `[B, G, T, width]` in `F32`
///
/// # Panics
/// If codes and scales are not those of rows of this width.
pub fn dequantize_rows(codes: Tensor<4, Int>, scales: Tensor<4>, width: usize) -> Tensor<4> {
    check(&codes, &scales, width);
    #[cfg(feature = "flex")]
    if crate::path::log_path("dequantize_rows", extension::serves(&scales)) {
        return extension::dequantize_rows(codes, scales, width);
    }
    reference::dequantize(codes, scales, width)
}

fn check(codes: &Tensor<4, Int>, scales: &Tensor<4>, width: usize) {
    let ([batch, heads, rows, words], blocks) = (codes.dims(), Blocks::of(width));
    assert!(
        scales.dims() == [batch, heads, rows, blocks.count] && words == blocks.count * blocks.words,
        "dequantize_rows: codes {:?} and scales {:?} are not those of rows of {width} numbers",
        codes.dims(),
        scales.dims()
    );
}

#[cfg(feature = "flex")]
mod extension {
    use burn::backend::tensor::{FloatTensor, IntTensor};
    use burn::backend::{Backend, Dispatch, backend_extension};
    use burn::tensor::{Int, Tensor};

    /// The operations that Burn's dispatch sees.
    #[backend_extension(Flex)]
    pub(crate) trait EightBitsExtension: Backend {
        fn quantize_rows(x: FloatTensor<Self>) -> (IntTensor<Self>, FloatTensor<Self>);
        fn dequantize_rows(codes: IntTensor<Self>, scales: FloatTensor<Self>, width: usize) -> FloatTensor<Self>;
    }

    /// Without autodiff, if there is something to do.
    pub(super) fn serves(x: &Tensor<4>) -> bool {
        crate::path::is_fused_on_cpu(x) && !x.device().is_autodiff()
    }

    pub(super) fn quantize_rows(x: Tensor<4>) -> (Tensor<4, Int>, Tensor<4>) {
        let (codes, scales) = Dispatch::quantize_rows(x.into_dispatch());
        (Tensor::from_dispatch(codes), Tensor::from_dispatch(scales))
    }

    pub(super) fn dequantize_rows(codes: Tensor<4, Int>, scales: Tensor<4>, width: usize) -> Tensor<4> {
        Tensor::from_dispatch(Dispatch::dequantize_rows(codes.into_dispatch(), scales.into_dispatch(), width))
    }
}

#[cfg(test)]
mod tests;
