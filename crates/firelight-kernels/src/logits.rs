//! How vectors become logits: one matrix product, and what published heads put around it.

use burn::tensor::{FloatDType, Int, Tensor};

use crate::{BlockFormat, dequantized, linear, quantized_linear};

/// The map of a language model's head: `cap(scale (x weight + bias))`, with `cap(z) = c tanh(z / c)` where there is a soft cap `c`.
///
/// The scale is Cohere's `logit_scale` and one over Granite's `logits_scaling`; the bias that of GPT-J and Phi; the soft cap that
/// of Gemma 2 (Gemma Team 2024, §2, <https://arxiv.org/abs/2408.00118>).
#[doc(alias = "lm_head")]
#[derive(Debug, Clone)]
pub struct LogitMap {
    /// What vectors are multiplied by.
    pub weight: LogitMatrix,
    /// `[V]`.
    pub bias: Option<Tensor<1>>,
    /// Multiplies the logits, the bias included.
    pub scale: f64,
    /// Bounds the logits; above 0.
    pub soft_cap: Option<f64>,
}

/// The matrix of a head, in floats or quantized in blocks of few bits.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LogitMatrix {
    /// `[D, V]`.
    Floats(Tensor<2>),
    /// The transposed matrix in blocks along `D`: bytes of shape `[V, row_bytes(D)]`. It has no gradient.
    Blocks {
        /// An integer tensor of the type `u8`.
        blocks: Tensor<2, Int>,
        /// What the bytes mean.
        format: BlockFormat,
    },
}

impl LogitMatrix {
    /// The matrix as floats, `[D, V]`; blocks are taken apart.
    pub fn dense(&self) -> Tensor<2> {
        match self {
            Self::Floats(weight) => weight.clone(),
            Self::Blocks { blocks, format } => dequantized(blocks.clone(), *format).transpose(),
        }
    }

    /// Number of classes `V`.
    pub fn classes(&self) -> usize {
        match self {
            Self::Floats(weight) => weight.dims()[1],
            Self::Blocks { blocks, .. } => blocks.dims()[0],
        }
    }

    fn product<const D: usize>(&self, x: Tensor<D>, bias: Option<Tensor<1>>) -> Tensor<D> {
        match self {
            Self::Floats(weight) => linear(x, weight.clone(), bias),
            Self::Blocks { blocks, format } => quantized_linear(x, blocks.clone(), *format, bias),
        }
    }
}

impl LogitMap {
    /// The plain product with a matrix, `[D, V]`.
    pub fn new(weight: Tensor<2>) -> Self {
        Self { weight: LogitMatrix::Floats(weight), bias: None, scale: 1.0, soft_cap: None }
    }

    /// The plain product with a matrix whose transposed is in blocks, `[V, row_bytes(D)]`.
    pub fn of_blocks(blocks: Tensor<2, Int>, format: BlockFormat) -> Self {
        Self { weight: LogitMatrix::Blocks { blocks, format }, bias: None, scale: 1.0, soft_cap: None }
    }

    /// Adds a bias, `[V]`.
    pub fn with_bias(mut self, bias: Option<Tensor<1>>) -> Self {
        self.bias = bias;
        self
    }

    /// Multiplies the logits.
    pub fn with_scale(mut self, scale: f64) -> Self {
        self.scale = scale;
        self
    }

    /// Bounds the logits.
    pub fn with_soft_cap(mut self, soft_cap: Option<f64>) -> Self {
        self.soft_cap = soft_cap;
        self
    }

    /// The logits of vectors.
    ///
    /// # Shapes
    /// - `x`: `[..., D]`; output: `[..., V]`
    ///
    /// # Panics
    /// As [`linear`] or [`quantized_linear`], and if the soft cap is not above 0.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        self.check("logits", &x);
        #[cfg(feature = "flex")]
        if crate::half::is_half(&x) && (self.scale != 1.0 || self.soft_cap.is_some()) {
            return crate::half::in_single(x, |x| self.widened().forward(x));
        }
        let logits = self.weight.product(self.scaled(x), self.scaled_bias());
        match self.soft_cap {
            // Burn rounds the factor of a quotient's gradient to single precision, but not that of a product.
            Some(cap) => (logits * (1.0 / cap)).tanh() * cap,
            None => logits,
        }
    }

    pub(crate) fn check<const D: usize>(&self, operation: &str, x: &Tensor<D>) {
        if let LogitMatrix::Floats(weight) = &self.weight {
            crate::linear::check(operation, x, weight, self.bias.as_ref());
        }
        check_soft_cap(operation, self.soft_cap);
    }

    /// The same in single precision, where its numbers are of half precision.
    #[cfg(feature = "flex")]
    pub(crate) fn widened(&self) -> Self {
        use crate::half::widen;
        let weight = match &self.weight {
            LogitMatrix::Floats(weight) => LogitMatrix::Floats(widen(weight.clone())),
            blocks @ LogitMatrix::Blocks { .. } => blocks.clone(),
        };
        Self { weight, bias: self.bias.clone().map(widen), ..self.clone() }
    }

    /// The same with its matrix as floats of the type of `x`.
    pub(crate) fn dense_for<const D: usize>(&self, x: &Tensor<D>) -> Self {
        match &self.weight {
            LogitMatrix::Floats(_) => self.clone(),
            blocks @ LogitMatrix::Blocks { .. } => {
                let weight = crate::cast(blocks.dense(), FloatDType::from(x.dtype()));
                Self { weight: LogitMatrix::Floats(weight), ..self.clone() }
            }
        }
    }

    /// The scaled vectors, whose product with the matrix is the scaled logits: `D` is smaller than `V`.
    pub(crate) fn scaled<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        if self.scale == 1.0 { x } else { x * self.scale }
    }

    /// The bias of scaled logits, `[V]`.
    pub(crate) fn scaled_bias(&self) -> Option<Tensor<1>> {
        self.bias.clone().map(|bias| self.scaled(bias))
    }
}

pub(crate) fn check_soft_cap(operation: &str, soft_cap: Option<f64>) {
    if let Some(cap) = soft_cap {
        assert!(cap > 0.0, "{operation}: soft_cap = {cap:?} is not above 0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_close;
    use burn::tensor::{Device, TensorData};

    #[test]
    fn logits_by_hand() {
        let device = Device::default();
        let x = Tensor::<2>::from_floats([[1.0, 2.0]], &device);
        let map = LogitMap::new(Tensor::from_floats([[1.0, 0.0, 2.0], [0.0, 1.0, -1.0]], &device));
        let map = map.with_bias(Some(Tensor::from_floats([0.5, 0.0, 3.0], &device))).with_scale(0.5);
        map.forward(x.clone()).into_data().assert_eq(&TensorData::from([[0.75f32, 1.0, 1.5]]), false);
        // 2 tanh(.375), 2 tanh(.5) and 2 tanh(.75).
        let capped = map.with_soft_cap(Some(2.0)).forward(x);
        assert_close(&capped, &TensorData::from([[0.716_714_7f32, 0.924_234_3, 1.270_297_9]]), 1e-6);
    }

    #[test]
    fn a_matrix_in_blocks_is_multiplied_as_its_numbers_are() {
        // A row of 32 numbers 1 and one of 32 numbers -2, each a block of 8 bits: the blocks hold them but for half an ulp of f16.
        let device = Device::default();
        let (format, width) = (BlockFormat::Q8_0, 32);
        let numbers: Vec<f32> = [1.0; 32].into_iter().chain([-2.0; 32]).collect();
        let mut bytes = vec![0; 2 * format.row_bytes(width).unwrap()];
        format.quantize(&numbers, None, &mut bytes);
        let blocks = TensorData::new(bytes, [2, format.row_bytes(width).unwrap()]);
        let blocks = Tensor::<2, Int>::from_data(blocks, (&device, burn::tensor::DType::U8));
        let bias = Tensor::from_floats([0.0, 4.0], &device);
        let map = LogitMap::of_blocks(blocks, format).with_bias(Some(bias)).with_scale(0.5);
        assert_eq!((map.weight.classes(), map.weight.dense().dims()), (2, [32, 2]));
        let x = Tensor::<2>::ones([3, width], &device) * 0.25;
        // 0.5 (8) and 0.5 (-16 + 4).
        let expected = TensorData::from([[4.0f32, -6.0]; 3]);
        assert_close(&map.forward(x.clone()), &expected, 0.1);
        let targets = Tensor::<1, Int>::from_ints([0, 1, 0], &device);
        let options = crate::CrossEntropyOptions::default();
        let losses = crate::linear_cross_entropy(x, &map, targets, &options);
        // ln(1 + e^-10), and 10 more where the target is the other class.
        assert_close(&losses, &TensorData::from([4.54e-5f32, 10.000_045, 4.54e-5]), 1e-3);
    }

    #[test]
    #[should_panic(expected = "logits: soft_cap = 0.0 is not above 0")]
    fn a_cap_of_zero_panics() {
        let device = Device::default();
        LogitMap::new(Tensor::ones([2, 3], &device))
            .with_soft_cap(Some(0.0))
            .forward(Tensor::<2>::ones([1, 2], &device));
    }

    #[test]
    #[should_panic(expected = "logits: bias [4] is not as long as the outputs of weight [2, 3]")]
    fn a_bias_of_another_length_panics() {
        let device = Device::default();
        let map = LogitMap::new(Tensor::ones([2, 3], &device)).with_bias(Some(Tensor::ones([4], &device)));
        map.forward(Tensor::<2>::ones([1, 2], &device));
    }
}
