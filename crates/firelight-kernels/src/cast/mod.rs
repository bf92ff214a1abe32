//! Conversion between number types.

#[cfg(feature = "flex")]
mod flex;

use burn::tensor::{FloatDType, Tensor};

#[cfg(feature = "flex")]
use extension::CastExtension;
#[cfg(feature = "flex")]
pub(crate) use extension::CastKernel;

/// `x` in another type, each number rounded to the nearest one; its gradient is cast back. As [`Tensor::cast`], but on the CPU in
/// parallel, in vector instructions, and with the strides of a permuted tensor kept.
///
/// # Shapes
/// - any; the output has the shape of `x`
///
/// ```
/// use burn::tensor::{DType, Device, FloatDType, Tensor};
/// use firelight_kernels::cast;
///
/// let x = Tensor::<1>::from_floats([1.0, 0.1], &Device::flex());
/// let half = cast(x, FloatDType::BF16);
/// assert_eq!(half.dtype(), DType::BF16);
/// assert_eq!(half.into_data().iter::<f32>().collect::<Vec<_>>(), [1.0, 0.100_097_656]);
/// ```
pub fn cast<const D: usize>(x: Tensor<D>, dtype: FloatDType) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if crate::path::is_fused_on_cpu_in_any_type(&x) && extension::serves(x.dtype(), dtype.into()) {
        return extension::cast(x, dtype);
    }
    x.cast(dtype)
}

#[cfg(feature = "flex")]
mod extension {
    use crate::graph::{BackwardPass, CheckpointStrategy, Operation, record_cheap};
    use burn::backend::{Autodiff, Backend, Dispatch, TensorMetadata, backend_extension, tensor::FloatTensor};
    use burn::tensor::{DType, FloatDType, Tensor};

    /// The operation that Burn's dispatch and autodiff see.
    #[backend_extension(Flex, Autodiff)]
    pub(crate) trait CastExtension: Backend {
        fn cast_to(x: FloatTensor<Self>, dtype: FloatDType) -> FloatTensor<Self>;
    }

    /// What a backend brings.
    pub(crate) trait CastKernel: Backend {
        fn converted(x: FloatTensor<Self>, dtype: FloatDType) -> FloatTensor<Self>;
    }

    /// From or to half precision, by way of single precision.
    pub(super) fn serves(from: DType, to: DType) -> bool {
        let is_half = |dtype| matches!(dtype, DType::F16 | DType::BF16);
        (is_half(from) && to == DType::F32) || (from == DType::F32 && is_half(to))
    }

    pub(super) fn cast<const D: usize>(x: Tensor<D>, dtype: FloatDType) -> Tensor<D> {
        Tensor::from_dispatch(Dispatch::cast_to(x.into_dispatch(), dtype))
    }

    /// The gradient of a cast: that of the output in the type of the input.
    impl<B: CastKernel, C: CheckpointStrategy> CastExtension for Autodiff<B, C> {
        fn cast_to(x: FloatTensor<Self>, dtype: FloatDType) -> FloatTensor<Self> {
            let forward = |Cast { to, .. }: &Cast, [x]: [FloatTensor<B>; 1]| B::converted(x, *to);
            record_cheap::<B, C, _, 1>([x.clone()], [false], Cast { from: x.dtype().into(), to: dtype }, forward)
        }
    }

    #[derive(Debug, Clone)]
    struct Cast {
        from: FloatDType,
        to: FloatDType,
    }

    impl<B: CastKernel> Operation<B, 1> for Cast {
        fn backward(self, pass: BackwardPass<B, 1>) -> [Option<FloatTensor<B>>; 1] {
            [Some(B::converted(pass.gradient, self.from))]
        }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use crate::testing::{Case, random};
    use burn::tensor::{DType, Device};

    #[test]
    fn every_layout_is_cast_as_burn_casts_it_and_so_is_its_gradient() {
        let x = random(&Case::plain(), [2, 3, 70, 5], 0);
        let layouts =
            [x.clone(), x.clone().swap_dims(1, 2), x.clone().slice([0..2, 1..2]), x.slice([0..1, 0..1, 2..3])];
        for x in layouts {
            for half in [FloatDType::BF16, FloatDType::F16] {
                for (from, to) in [(FloatDType::F32, half), (half, FloatDType::F32)] {
                    let x = x.clone().cast(from).detach().require_grad();
                    let (ours, burns) = (cast(x.clone(), to), x.clone().cast(to));
                    assert_eq!(ours.dtype(), DType::from(to));
                    ours.to_data().assert_eq(&burns.to_data(), true);
                    let gradient = |y: Tensor<4>| x.grad(&(y.clone() * y).sum().backward()).map(Tensor::into_data);
                    let [ours, burns] = [ours, burns].map(|y| gradient(y).expect("x requires a gradient"));
                    ours.assert_eq(&burns, true);
                }
            }
        }
    }

    #[test]
    fn what_has_the_type_and_what_is_double_stay_burns() {
        for (from, to) in [(FloatDType::F32, FloatDType::F32), (FloatDType::F64, FloatDType::BF16)] {
            let x = Tensor::<1>::ones([3], (&Device::flex(), DType::from(from)));
            assert_eq!(cast(x, to).dtype(), DType::from(to));
        }
    }
}
