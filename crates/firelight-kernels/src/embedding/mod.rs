//! Rows of a matrix by their number: what turns tokens into vectors.

#[cfg(feature = "flex")]
mod flex;
mod reference;

use burn::tensor::{Int, Tensor};

#[cfg(feature = "flex")]
use extension::{EmbeddingExtension, EmbeddingKernel};

/// The row of `weight` that each token names. The gradient of a row is the sum of the gradients of its tokens, in the order
/// of the tokens: two runs, on one thread or many, give the same bits. On the fused path it is formed in single precision
/// where the weight is of half precision, and rounded once.
///
/// # Shapes
/// - `weight`: `[V, D]`, `tokens`: `[B, T]`, each below `V`; output: `[B, T, D]`
///
/// # Panics
/// On a CPU if a token is not below `V`.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_kernels::embedding;
///
/// let device = Device::flex();
/// let weight = Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
/// let rows = embedding(weight, Tensor::from_ints([[1, 0, 1]], &device));
/// assert_eq!(rows.into_data().iter::<f32>().collect::<Vec<_>>(), [3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
/// ```
pub fn embedding(weight: Tensor<2>, tokens: Tensor<2, Int>) -> Tensor<3> {
    #[cfg(feature = "flex")]
    let is_fused = crate::half::is_half(&weight) || crate::path::is_fused_on_cpu(&weight);
    #[cfg(feature = "flex")]
    if crate::path::log_path("embedding", is_fused && extension::takes(&tokens)) {
        return extension::embedding(weight, tokens);
    }
    reference::embedding(weight, tokens)
}

#[cfg(feature = "flex")]
mod extension {
    use crate::graph::{BackwardPass, CheckpointStrategy, Operation, record};
    use burn::backend::tensor::{FloatTensor, IntTensor};
    use burn::backend::{Autodiff, Backend, Dispatch, TensorMetadata, backend_extension};
    use burn::tensor::{DType, Int, Tensor};

    /// The operation that Burn's dispatch and autodiff see.
    #[backend_extension(Flex, Autodiff)]
    pub(crate) trait EmbeddingExtension: Backend {
        fn rows_of(weight: FloatTensor<Self>, tokens: IntTensor<Self>) -> FloatTensor<Self>;
    }

    /// What a backend brings: rows gathered, and gradients of rows scattered into that of a weight of `vocab_size` rows.
    pub(crate) trait EmbeddingKernel: Backend {
        fn gather(weight: FloatTensor<Self>, tokens: IntTensor<Self>) -> FloatTensor<Self>;
        fn scatter(grad: FloatTensor<Self>, tokens: IntTensor<Self>, vocab_size: usize) -> FloatTensor<Self>;
    }

    /// Whether kernels read tokens of this type, if there are any.
    pub(super) fn takes(tokens: &Tensor<2, Int>) -> bool {
        matches!(tokens.dtype(), DType::I32 | DType::I64) && tokens.shape().num_elements() > 0
    }

    pub(super) fn embedding(weight: Tensor<2>, tokens: Tensor<2, Int>) -> Tensor<3> {
        Tensor::from_dispatch(Dispatch::rows_of(weight.into_dispatch(), tokens.into_dispatch()))
    }

    /// The gradient of the weight, from the tokens alone.
    impl<B: EmbeddingKernel, C: CheckpointStrategy> EmbeddingExtension for Autodiff<B, C> {
        fn rows_of(weight: FloatTensor<Self>, tokens: IntTensor<Self>) -> FloatTensor<Self> {
            record::<B, C, _, 1>([weight], [false], |[weight]| {
                let vocab_size = weight.shape()[0];
                (B::gather(weight, tokens.clone()), Rows::<B> { tokens, vocab_size })
            })
        }
    }

    #[derive(Debug, Clone)]
    struct Rows<B: EmbeddingKernel> {
        tokens: IntTensor<B>,
        vocab_size: usize,
    }

    impl<B: EmbeddingKernel> Operation<B, 1> for Rows<B> {
        fn backward(self, pass: BackwardPass<B, 1>) -> [Option<FloatTensor<B>>; 1] {
            [Some(B::scatter(pass.gradient, self.tokens, self.vocab_size))]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_close;
    use burn::tensor::{Device, TensorData};

    #[test]
    fn rows_and_sums_of_gradients_by_hand() {
        let device = Device::default().autodiff();
        let weight = Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], &device).require_grad();
        let rows = embedding(weight.clone(), Tensor::from_ints([[2, 0], [2, 2]], &device));
        let expected = TensorData::from([[[5f32, 6.0], [1.0, 2.0]], [[5.0, 6.0], [5.0, 6.0]]]);
        rows.clone().into_data().assert_eq(&expected, true);
        let cotangent = Tensor::<3>::from_floats([[[1.0, 10.0], [2.0, 20.0]], [[3.0, 30.0], [4.0, 40.0]]], &device);
        let gradient = weight.grad(&(rows * cotangent).sum().backward()).expect("the weight requires a gradient");
        gradient.into_data().assert_eq(&TensorData::from([[2f32, 20.0], [0.0, 0.0], [8.0, 80.0]]), true);
    }

    #[test]
    fn a_tied_head_adds_its_gradient() {
        // Both uses of w = [1, 2] in w[0] * w[1] ... as row times matrix: y = e wᵀ with e = row 1, so y = [2, 4] and the
        // slopes of its sum are e + [0, Σ w] = [2, 2 + 3].
        let device = Device::default().autodiff();
        let weight = Tensor::<2>::from_floats([[1.0], [2.0]], &device).require_grad();
        let row = embedding(weight.clone(), Tensor::from_ints([[1]], &device));
        let logits = crate::linear(row, weight.clone().transpose(), None);
        let gradient = weight.grad(&logits.sum().backward()).expect("the weight requires a gradient");
        assert_close(&gradient, &TensorData::from([[2f32], [5.0]]), 1e-6);
    }

    #[test]
    fn an_empty_batch_has_no_rows() {
        let device = Device::default();
        let rows = embedding(Tensor::zeros([3, 2], &device), Tensor::zeros([0, 4], &device));
        assert_eq!(rows.dims(), [0, 4, 2]);
    }

    #[cfg(feature = "flex")]
    mod fused {
        use super::*;
        use crate::testing::{Case, compare, random};
        use burn::tensor::DType;

        /// Some tokens, many of them the same, in an order that lies transposed in memory.
        fn tokens(device: &Device, [batch, length]: [usize; 2], vocab_size: usize) -> Tensor<2, Int> {
            let token = |i: usize| (i * i * 7 + i / 3) % vocab_size.div_ceil(2) * 2 % vocab_size;
            let tokens: Vec<i64> = (0..batch * length).map(|i| token(i) as i64).collect();
            Tensor::from_data(TensorData::new(tokens, [length, batch]), device).transpose()
        }

        #[test]
        fn it_equals_the_reference() {
            for ([batch, length], [vocab_size, width]) in
                [([2, 5], [7, 3]), ([1, 1], [1, 1]), ([3, 900], [65, 33]), ([4, 7], [3000, 16])]
            {
                for case in Case::all(&[1, 1]).into_iter().step_by(2) {
                    let tokens = || tokens(&case.device(), [batch, length], vocab_size);
                    let inputs = [random(&case, [vocab_size, width], 0)];
                    compare(&case, inputs, |[w]| embedding(w, tokens()), |[w]| reference::embedding(w, tokens()));
                }
            }
        }

        /// The gradient of a weight of 65 rows, in the order of 3,000 tokens.
        fn gradient(dtype: DType, threads: usize) -> TensorData {
            let case = Case { dtype, ..Case::plain() };
            let weight = random(&case, [65, 40], 0).require_grad();
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
            pool.install(|| {
                let rows = embedding(weight.clone(), tokens(&case.device(), [3, 1000], 65));
                let cotangent = random(&case, rows.dims(), 1);
                weight.grad(&(rows * cotangent).sum().backward()).expect("the weight requires a gradient").into_data()
            })
        }

        #[test]
        fn runs_are_equal_to_the_bit_on_any_number_of_threads() {
            assert_eq!(gradient(DType::F32, 4), gradient(DType::F32, 4));
            assert_eq!(gradient(DType::F32, 4), gradient(DType::F32, 1));
        }

        #[test]
        fn sums_of_half_precision_are_formed_in_single_precision() {
            // 1,000 ones: adding them up in bf16 ends at 256.
            for dtype in [DType::F16, DType::BF16] {
                let device = Device::flex().autodiff();
                let weight = Tensor::<2>::ones([2, 3], (&device, dtype)).require_grad();
                let rows = embedding(weight.clone(), Tensor::zeros([1, 1000], &device));
                assert_eq!(rows.dtype(), dtype);
                let gradient = weight.grad(&rows.sum().backward()).expect("the weight requires a gradient");
                assert_eq!(gradient.dtype(), dtype);
                assert_eq!(gradient.into_data().iter::<f32>().collect::<Vec<_>>(), [1000., 1000., 1000., 0., 0., 0.]);
            }
        }

        #[test]
        #[should_panic(expected = "embedding: token 3 at 1 is not one of 3 rows")]
        fn a_token_that_is_no_row_panics() {
            let device = Device::flex();
            embedding(Tensor::zeros([3, 2], &device), Tensor::from_ints([[0, 3]], &device));
        }

        #[test]
        #[should_panic(expected = "embedding: token -1 at 0 is not one of 3 rows")]
        fn a_negative_token_panics() {
            let device = Device::flex();
            embedding(Tensor::zeros([3, 2], &device), Tensor::from_ints([[-1]], &device));
        }
    }
}
