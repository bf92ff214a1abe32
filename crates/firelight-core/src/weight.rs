//! The matrix of a layer: floats, or numbers of few bits in blocks, which are multiplied as they lie.
//!
//! A layer is built with floats. [`quantize`] turns the matrices of a model that is loaded into blocks, [`with_blocks`] those of a model
//! that is to be loaded from a file of blocks. Blocks have no gradient and are never trained. The input of a layer has its gradient, so that
//! adapters in front of it and beside it learn: QLoRA (Dettmers et al. 2023, <https://arxiv.org/abs/2305.14314>). [`importance_of`] measures
//! what weights are multiplied by, and [`quantize_by`] rounds by it.
//!
//! The path of the parameter is that of the layer's field, whether it holds floats or blocks. A visitor or mapper meets blocks as integers of
//! the type `u8` in the variant of an enum that is named after the format, and what leaves out the names of variants, as the weight file
//! does, sees the same path.

mod convert;
mod importance;
mod load;
mod module;

#[cfg(test)]
mod tests;

pub use convert::{WeightEntry, dequantize, quantize, quantize_by, weights_of, with_blocks};
pub use importance::{Importance, importance_of};
pub use load::{build_in_blocks, onto_device};
pub(crate) use module::format_in;

use std::ops::Range;

use burn::module::{Param, ParamId};
use burn::tensor::{Device, FloatDType, Int, Shape, Tensor};
use firelight_kernels::{
    BlockFormat, LogitMap, cast, dequantized, embedding, linear, quantized_embedding, quantized_linear,
};

/// The matrix of a layer.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::{LinearConfig, quantize};
/// use firelight_kernels::BlockFormat;
///
/// let layer = LinearConfig::new(64, 3).init(&Device::flex());
/// let small = quantize(layer, |_| Some(BlockFormat::Q8_0));
/// assert_eq!((small.weight.format(), small.weight.dims()), (Some(BlockFormat::Q8_0), [64, 3]));
/// assert_eq!(small.forward(Tensor::<2>::ones([1, 64], &Device::flex())).dims(), [1, 3]);
/// ```
#[derive(Debug, Clone)]
pub struct Weight {
    numbers: Numbers,
    layout: WeightLayout,
}

#[derive(Debug, Clone)]
enum Numbers {
    Floats(Param<Tensor<2>>),
    Blocks(Blocks),
}

/// Bytes, `[rows, row_bytes(width)]`.
#[derive(Debug, Clone)]
struct Blocks {
    bytes: Param<Tensor<2, Int>>,
    format: BlockFormat,
}

/// What is a row of blocks. The numbers of a row are those of one sum.
///
/// ```
/// use burn::tensor::Device;
/// use firelight_core::{LinearConfig, TokenEmbeddingConfig, WeightLayout, weights_of};
///
/// let (map, table) = (LinearConfig::new(64, 3).init(&Device::flex()), TokenEmbeddingConfig::new(3, 64).init(&Device::flex()));
/// assert_eq!(weights_of(&map)[0].layout, WeightLayout::Columns); // Parameters are `[64, 3]`
/// assert_eq!(weights_of(&table)[0].layout, WeightLayout::Rows); // and `[3, 64]`; both have 3 rows of 64 numbers.
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightLayout {
    /// A column of a linear map, `[I, O]`, which makes one output.
    Columns,
    /// A row of a table, `[V, D]`, which is one token.
    Rows,
}

impl WeightLayout {
    /// Rows of blocks and their width, of a matrix of this shape; and the other way round.
    fn swap(self, [first, second]: [usize; 2]) -> [usize; 2] {
        match self {
            Self::Columns => [second, first],
            Self::Rows => [first, second],
        }
    }

    fn transposed(self, matrix: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Columns => matrix.transpose(),
            Self::Rows => matrix,
        }
    }
}

impl Blocks {
    /// Rows and width in numbers.
    fn dims(&self) -> [usize; 2] {
        let [rows, bytes]: [usize; 2] = self.bytes.lazy_shape().dims();
        [rows, bytes / self.format.bytes() * self.format.numbers()]
    }

    fn dequantized(&self) -> Tensor<2> {
        dequantized(self.bytes.val(), self.format)
    }

    /// The matrix, laid out row by row.
    fn into_floats(self, layout: WeightLayout) -> Param<Tensor<2>> {
        let matrix = layout.transposed(self.dequantized());
        let data = matrix.into_data();
        Param::initialized(self.bytes.id, Tensor::from_data(data, &self.bytes.lazy_device()))
    }
}

/// The floats of a linear map, `[I, O]`.
impl From<Param<Tensor<2>>> for Weight {
    fn from(param: Param<Tensor<2>>) -> Self {
        Self::of_map(param)
    }
}

impl Weight {
    /// The floats of a linear map, `[I, O]`; blocks would lie along `I`.
    pub fn of_map(param: Param<Tensor<2>>) -> Self {
        Self { numbers: Numbers::Floats(param), layout: WeightLayout::Columns }
    }

    /// The floats of a table that is looked up, `[V, D]`; blocks would lie along `D`.
    pub fn of_table(param: Param<Tensor<2>>) -> Self {
        Self { numbers: Numbers::Floats(param), layout: WeightLayout::Rows }
    }

    /// The matrix as floats. Blocks are taken apart, to single precision.
    pub fn val(&self) -> Tensor<2> {
        match &self.numbers {
            Numbers::Floats(param) => param.val(),
            Numbers::Blocks(blocks) => self.layout.transposed(blocks.dequantized()),
        }
    }

    /// The parameter, where it holds floats.
    pub fn floats(&self) -> Option<&Param<Tensor<2>>> {
        match &self.numbers {
            Numbers::Floats(param) => Some(param),
            Numbers::Blocks(_) => None,
        }
    }

    /// What its blocks hold; none of floats.
    pub fn format(&self) -> Option<BlockFormat> {
        match &self.numbers {
            Numbers::Floats(_) => None,
            Numbers::Blocks(blocks) => Some(blocks.format),
        }
    }

    /// The shape of the matrix, which is not drawn for it.
    pub fn dims(&self) -> [usize; 2] {
        match &self.numbers {
            Numbers::Floats(param) => param.lazy_shape().dims(),
            Numbers::Blocks(blocks) => self.layout.swap(blocks.dims()),
        }
    }

    /// The same as Burn has it.
    pub fn shape(&self) -> Shape {
        Shape::from(self.dims())
    }

    /// The device of the parameter.
    pub fn device(&self) -> Device {
        match &self.numbers {
            Numbers::Floats(param) => param.lazy_device(),
            Numbers::Blocks(blocks) => blocks.bytes.lazy_device(),
        }
    }

    /// The identity of the parameter.
    pub fn id(&self) -> ParamId {
        match &self.numbers {
            Numbers::Floats(param) => param.id,
            Numbers::Blocks(blocks) => blocks.bytes.id,
        }
    }

    /// The same parameter with other numbers, as [`Param::map`]; blocks become floats.
    pub fn map(self, change: impl FnOnce(Tensor<2>) -> Tensor<2>) -> Self {
        let param = match self.numbers {
            Numbers::Floats(param) => param.map(change),
            Numbers::Blocks(blocks) => {
                let matrix = change(self.layout.transposed(blocks.dequantized()));
                Param::initialized(blocks.bytes.id, matrix)
            }
        };
        Self { numbers: Numbers::Floats(param), layout: self.layout }
    }

    /// Tells whoever measures it what the matrix is multiplied by, `[..., I]`.
    pub(crate) fn note_input<const D: usize>(&self, x: &Tensor<D>) {
        importance::note(self.id(), x);
    }

    /// `x matrix + bias`, `[..., I] -> [..., O]`.
    pub(crate) fn product<const D: usize>(&self, x: Tensor<D>, bias: Option<Tensor<1>>) -> Tensor<D> {
        self.note_input(&x);
        match (&self.numbers, self.layout) {
            (Numbers::Blocks(blocks), WeightLayout::Columns) => {
                quantized_linear(x, blocks.bytes.val(), blocks.format, bias)
            }
            _ => {
                let matrix = self.val_for(&x);
                linear(x, matrix, bias)
            }
        }
    }

    /// The outputs `columns` of [`product`](Self::product) alone; `bias` is that of these.
    pub(crate) fn product_of_columns<const D: usize>(
        &self,
        x: Tensor<D>,
        columns: Range<usize>,
        bias: Option<Tensor<1>>,
    ) -> Tensor<D> {
        self.note_input(&x);
        match (&self.numbers, self.layout) {
            (Numbers::Blocks(blocks), WeightLayout::Columns) => {
                let bytes = blocks.bytes.val().narrow(0, columns.start, columns.len());
                quantized_linear(x, bytes, blocks.format, bias)
            }
            _ => {
                let matrix = self.val_for(&x).narrow(1, columns.start, columns.len());
                linear(x, matrix, bias)
            }
        }
    }

    /// The rows of a table, `[B, T] -> [B, T, D]`.
    pub(crate) fn look_up(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        match (&self.numbers, self.layout) {
            (Numbers::Blocks(blocks), WeightLayout::Rows) => {
                quantized_embedding(blocks.bytes.val(), blocks.format, tokens)
            }
            _ => embedding(self.val(), tokens),
        }
    }

    /// The map from vectors to logits of a matrix that is a linear map, `[D, V]`, or a table, `[V, D]`.
    pub(crate) fn logit_map(&self, role: WeightLayout) -> LogitMap {
        match (&self.numbers, role) {
            (Numbers::Blocks(blocks), _) if self.layout == role => {
                LogitMap::of_blocks(blocks.bytes.val(), blocks.format)
            }
            (_, WeightLayout::Columns) => LogitMap::new(self.val()),
            (_, WeightLayout::Rows) => LogitMap::new(self.val().transpose()),
        }
    }

    /// The matrix beside `x`: what was taken apart is in the type of `x`.
    pub(crate) fn val_for<const D: usize>(&self, x: &Tensor<D>) -> Tensor<2> {
        match &self.numbers {
            Numbers::Floats(param) => param.val(),
            Numbers::Blocks(_) => cast(self.val(), FloatDType::from(x.dtype())),
        }
    }
}
