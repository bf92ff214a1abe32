//! Products with, and rows of, a matrix whose numbers lie in blocks of few bits.

#[cfg(feature = "flex")]
mod activations;
#[cfg(feature = "flex")]
mod dot_kernel;
#[cfg(feature = "flex")]
mod few;
#[cfg(feature = "flex")]
mod flex;
#[cfg(feature = "flex")]
mod matrix;
#[cfg(feature = "flex")]
mod panels;
mod reference;
#[cfg(all(feature = "flex", target_arch = "x86_64"))]
mod x86;

use crate::BlockFormat;
use crate::path::check_types;
use burn::tensor::{DType, Device, Int, Tensor};

#[cfg(feature = "flex")]
use extension::{QuantizedLinearExtension, QuantizedLinearKernel};

/// Whether a device multiplies quantized matrices without dequantizing them, with gradients or without: flex alone. Every other device
/// dequantizes the whole matrix for each product, so models are loaded as floats there.
///
/// ```
/// use burn::tensor::Device;
/// use firelight_kernels::supports_quantized_matmul;
///
/// assert!(supports_quantized_matmul(&Device::flex()));
/// ```
pub fn supports_quantized_matmul(device: &Device) -> bool {
    // By its name: a build without flex has no such device to compare with.
    format!("{:?}", device.clone().inner()).contains("Flex")
}

/// `x Wᵀ + bias` for a quantized matrix `W`, in blocks of few bits.
///
/// On the CPU `x` is rounded to eight bits with a scale for every 32 numbers; this adds an error of about half a percent of the size of the
/// output. Up to 32 rows of `x`, as a decoder has them, are multiplied as integers, so that the blocks are read from memory once: the result of
/// such a row depends neither on the rows beside it nor on the processor. With more rows some rows of `W` at a time become numbers of the type
/// of `x`, and sums are rounded in another order. So they do in the gradient of `x`, whose derivative does not see the rounding to eight bits. In
/// half precision the output is rounded once.
///
/// Everywhere else all of `W` becomes numbers for each product, which is as slow as it sounds.
///
/// # Shapes
/// - `x`: `[..., I]`, `blocks`: `[O, R]` in `U8`, where `R` is [`row_bytes`](BlockFormat::row_bytes) of `I`; `bias`: `[O]`; output: `[..., O]`
///   of the type of `x`
///
/// # Panics
/// - if `I` is no whole number of blocks, or the rows of `blocks` are not as long as it says
/// - if `blocks` are of another type than `U8`, or `bias` of another than `x`, or not as long as `O`
///
/// ```
/// use burn::tensor::{DType, Device, Int, Tensor, TensorData};
/// use firelight_kernels::{BlockFormat, quantized_linear};
///
/// let device = Device::flex();
/// let mut blocks = vec![0; 2 * 34]; // Two rows of 32 numbers.
/// BlockFormat::Q8_0.quantize(&[0.5; 64], None, &mut blocks);
/// let blocks = Tensor::<2, Int>::from_data(TensorData::new(blocks, [2, 34]), (&device, DType::U8));
/// let y = quantized_linear(Tensor::<2>::ones([1, 32], &device), blocks, BlockFormat::Q8_0, None);
/// assert!(y.into_data().iter::<f32>().all(|y| (y - 16.0).abs() < 0.02));
/// ```
pub fn quantized_linear<const D: usize>(
    x: Tensor<D>,
    blocks: Tensor<2, Int>,
    format: BlockFormat,
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    check_linear(&x, &blocks, format, bias.as_ref());
    #[cfg(feature = "flex")]
    if x.dtype() == DType::F16 && crate::half::is_half(&x) {
        use crate::half::{in_single, widen};
        return in_single(x, |x| quantized_linear(x, blocks, format, bias.map(widen)));
    }
    #[cfg(feature = "flex")]
    if crate::path::log_path("quantized_linear", extension::serves(&x, &blocks)) {
        return extension::quantized_linear(x, blocks, format, bias);
    }
    reference::quantized_linear(x, blocks, format, bias)
}

/// Embedding lookup in a quantized table. No gradient flows to the table.
///
/// # Shapes
/// - `blocks`: `[V, R]` in `U8`, where `R` is [`row_bytes`](BlockFormat::row_bytes) of `D`; `tokens`: `[B, T]`, each below `V`; output:
///   `[B, T, D]` in `F32`
///
/// # Panics
/// - if a token is not below `V`
/// - if `blocks` are of another type than `U8`, or their rows no whole number of blocks
///
/// ```
/// use burn::tensor::{DType, Device, Int, Tensor, TensorData};
/// use firelight_kernels::{BlockFormat, quantized_embedding};
///
/// let device = Device::flex();
/// let numbers: Vec<f32> = (0..64).map(|i| if i < 32 { 1.0 } else { -127.0 }).collect();
/// let mut blocks = vec![0; 2 * 34];
/// BlockFormat::Q8_0.quantize(&numbers, None, &mut blocks);
/// let blocks = Tensor::<2, Int>::from_data(TensorData::new(blocks, [2, 34]), (&device, DType::U8));
/// let rows = quantized_embedding(blocks, BlockFormat::Q8_0, Tensor::from_ints([[1]], &device));
/// assert!(rows.into_data().iter::<f32>().all(|x| x == -127.0));
/// ```
pub fn quantized_embedding(blocks: Tensor<2, Int>, format: BlockFormat, tokens: Tensor<2, Int>) -> Tensor<3> {
    check_blocks("quantized_embedding", &blocks, format);
    reference::quantized_embedding(blocks, format, tokens)
}

/// Dequantizes a matrix.
///
/// # Shapes
/// - `blocks`: `[O, R]` in `U8`, where `R` is [`row_bytes`](BlockFormat::row_bytes) of `I`; output: `[O, I]` in `F32`
///
/// # Panics
/// If `blocks` are of another type than `U8`, or their rows no whole number of blocks.
///
/// ```
/// use burn::tensor::{DType, Device, Int, Tensor};
/// use firelight_kernels::{BlockFormat, dequantized};
///
/// let blocks = Tensor::<2, Int>::zeros([3, 210], (&Device::flex(), DType::U8));
/// assert_eq!(dequantized(blocks, BlockFormat::Q6K).dims(), [3, 256]);
/// ```
pub fn dequantized(blocks: Tensor<2, Int>, format: BlockFormat) -> Tensor<2> {
    check_blocks("dequantized", &blocks, format);
    reference::dequantized(blocks, format)
}

fn check_linear<const D: usize>(x: &Tensor<D>, blocks: &Tensor<2, Int>, format: BlockFormat, bias: Option<&Tensor<1>>) {
    check_blocks("quantized_linear", blocks, format);
    let (x_shape, [d_out, bytes]) = (x.dims(), blocks.dims());
    let d_in = width(format, bytes);
    assert!(
        x_shape[D - 1] == d_in,
        "quantized_linear: x {x_shape:?} does not end in {d_in}, the numbers of {bytes} bytes of {format}"
    );
    let bias_shape = bias.map_or([d_out], Tensor::dims);
    assert!(
        bias_shape == [d_out],
        "quantized_linear: bias {bias_shape:?} is not as long as the {d_out} rows of blocks"
    );
    check_types("quantized_linear", &[("x", Some(x.dtype())), ("bias", bias.map(Tensor::dtype))]);
}

fn check_blocks(operation: &str, blocks: &Tensor<2, Int>, format: BlockFormat) {
    let (dtype, [_, bytes]) = (blocks.dtype(), blocks.dims());
    assert!(
        dtype == DType::U8,
        "{operation}: blocks hold {dtype:?}: expected U8, `Tensor::from_data(data, (&device, DType::U8))`"
    );
    let size = format.bytes();
    assert!(
        bytes.is_multiple_of(size),
        "{operation}: rows of {bytes} bytes are no whole number of blocks of {format}, {size} bytes each"
    );
}

/// Numbers of a row of so many bytes.
fn width(format: BlockFormat, bytes: usize) -> usize {
    bytes / format.bytes() * format.numbers()
}

#[cfg(feature = "flex")]
mod extension {
    use crate::BlockFormat;
    use crate::graph::{BackwardPass, CheckpointStrategy, Operation, record};
    use crate::linear::LinearKernel;
    use crate::optional::OptionalFloat;
    use burn::backend::tensor::{FloatTensor, IntTensor};
    use burn::backend::{Autodiff, Backend, Dispatch, TensorMetadata, backend_extension};
    use burn::tensor::{DType, Int, Shape, Tensor};

    /// The operation that Burn's dispatch and autodiff see.
    #[backend_extension(Flex, Autodiff)]
    pub(crate) trait QuantizedLinearExtension: Backend {
        fn quantized_linear(
            x: FloatTensor<Self>,
            blocks: IntTensor<Self>,
            #[extension_type] bias: OptionalFloat<Self>,
            format: BlockFormat,
        ) -> FloatTensor<Self>;
    }

    /// What a backend brings: the product, and the gradient of `x` from that of the output, `[..., O]`. The gradient of the bias is that of
    /// any affine map.
    pub(crate) trait QuantizedLinearKernel: LinearKernel {
        fn quantized_forward(
            x: FloatTensor<Self>,
            blocks: IntTensor<Self>,
            bias: Option<FloatTensor<Self>>,
            format: BlockFormat,
        ) -> FloatTensor<Self>;
        fn quantized_input_gradient(
            blocks: IntTensor<Self>,
            grad: FloatTensor<Self>,
            x: &[usize],
            format: BlockFormat,
        ) -> FloatTensor<Self>;
    }

    /// In single precision and in `bf16`, if there is something to do.
    pub(super) fn serves<const D: usize>(x: &Tensor<D>, blocks: &Tensor<2, Int>) -> bool {
        let is_served = matches!(x.dtype(), DType::F32 | DType::BF16);
        is_served && crate::path::is_fused_on_cpu_in_any_type(x) && blocks.dims()[0] > 0
    }

    pub(super) fn quantized_linear<const D: usize>(
        x: Tensor<D>,
        blocks: Tensor<2, Int>,
        format: BlockFormat,
        bias: Option<Tensor<1>>,
    ) -> Tensor<D> {
        let (x, blocks) = (x.into_dispatch(), blocks.into_dispatch());
        Tensor::from_dispatch(Dispatch::quantized_linear(x, blocks, OptionalFloat::new(bias), format))
    }

    /// The gradients of the product: that of `x` from the blocks, which are kept anyway, that of the bias from nothing.
    impl<B: QuantizedLinearKernel, C: CheckpointStrategy> QuantizedLinearExtension for Autodiff<B, C> {
        fn quantized_linear(
            x: FloatTensor<Self>,
            blocks: IntTensor<Self>,
            bias: OptionalFloat<Self>,
            format: BlockFormat,
        ) -> FloatTensor<Self> {
            let operation = QuantizedLinear::<B> { blocks: blocks.clone(), format, shape: x.shape() };
            match bias.into_option() {
                Some(bias) => record::<B, C, _, 2>([x, bias], [false; 2], |[x, bias]| {
                    (B::quantized_forward(x, blocks, Some(bias), format), operation)
                }),
                None => {
                    record::<B, C, _, 1>([x], [false], |[x]| (B::quantized_forward(x, blocks, None, format), operation))
                }
            }
        }
    }

    #[derive(Debug, Clone)]
    struct QuantizedLinear<B: QuantizedLinearKernel> {
        blocks: IntTensor<B>,
        format: BlockFormat,
        /// That of `x`.
        shape: Shape,
    }

    impl<B: QuantizedLinearKernel, const N: usize> Operation<B, N> for QuantizedLinear<B> {
        fn backward(self, pass: BackwardPass<B, N>) -> [Option<FloatTensor<B>>; N] {
            let gradient = |index| match index {
                0 => B::quantized_input_gradient(self.blocks.clone(), pass.gradient.clone(), &self.shape, self.format),
                _ => B::bias_gradient(pass.gradient.clone()),
            };
            std::array::from_fn(|index| pass.is_wanted[index].then(|| gradient(index)))
        }
    }
}

#[cfg(test)]
mod tests;
