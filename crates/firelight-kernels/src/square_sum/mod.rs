//! The sum of squares, of which the norm of all gradients is made.

#[cfg(feature = "flex")]
mod flex;
mod reference;

use burn::tensor::Tensor;

/// `Σ x²`, `[1]`, in an order that depends on the shape alone: two runs, on one thread or many, give the same bits.
/// Nothing is recorded for a backward pass on the fused path.
///
/// # Shapes
/// - any; output: `[1]`, in single precision where the CPU is given half precision, whose largest number is soon reached
pub fn square_sum<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    #[cfg(feature = "flex")]
    if crate::half::is_half(&x) {
        return square_sum(crate::half::widen(x));
    }
    #[cfg(feature = "flex")]
    if crate::path::log_path("square_sum", crate::path::is_fused_on_cpu(&x) && !x.device().is_autodiff()) {
        return extension::square_sum(x);
    }
    reference::square_sum(x)
}

#[cfg(feature = "flex")]
mod extension {
    use burn::backend::{Backend, Dispatch, backend_extension, tensor::FloatTensor};
    use burn::tensor::Tensor;

    /// The operation that Burn's dispatch sees.
    #[backend_extension(Flex)]
    pub(crate) trait SquareSumExtension: Backend {
        fn square_sum(x: FloatTensor<Self>) -> FloatTensor<Self>;
    }

    pub(super) fn square_sum<const D: usize>(x: Tensor<D>) -> Tensor<1> {
        Tensor::from_dispatch(Dispatch::square_sum(x.into_dispatch()))
    }
}
#[cfg(feature = "flex")]
use extension::SquareSumExtension;

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Distribution};

    #[test]
    fn three_and_four_make_twenty_five() {
        let x = Tensor::<2>::from_floats([[3.0], [-4.0]], &Device::default());
        assert_eq!(square_sum(x).into_scalar::<f32>(), 25.0);
    }

    #[test]
    fn long_sums_are_near_the_reference_and_the_same_at_every_call() {
        let x = Tensor::<2>::random([1100, 2003], Distribution::Normal(0.0, 1.0), &Device::default());
        let [found, again] = [0, 1].map(|_| square_sum(x.clone()).into_scalar::<f32>());
        assert_eq!(found, again);
        let expected = x.clone().into_data().iter::<f64>().map(|x| x * x).sum::<f64>() as f32;
        assert!((found / expected - 1.0).abs() < 1e-5, "{found} for {expected}");
        let transposed = square_sum(x.transpose()).into_scalar::<f32>();
        assert!((transposed / expected - 1.0).abs() < 1e-5, "{transposed} for {expected}");
    }
}
