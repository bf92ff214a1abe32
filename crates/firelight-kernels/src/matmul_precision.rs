//! The precision of matrix products in `f32` on the CPU.

use burn::tensor::{Device, Tensor};
use std::cell::Cell;
use std::fmt;
use std::sync::Once;

thread_local! {
    static CURRENT: Cell<MatmulPrecision> = const { Cell::new(MatmulPrecision::F32) };
}

/// The precision of matrix products in `f32`: how [`linear`](crate::linear) multiplies, forward and backward. PyTorch's
/// `torch.set_float32_matmul_precision` is the same choice.
///
/// With [`Bf16x3`](Self::Bf16x3) each number `x` is split in `h = bf16(x)` and `l = bf16(x - h)`, and
/// `a b = h_a h_b + h_a l_b + l_a h_b` is summed in `f32`: products of `bf16`, which tile registers form some 16 times as fast
/// as vector units form those of `f32`, with nearly the digits of `f32`.
///
/// The error of a sum of products is at most `2^-15 Σ |a b|`, beside the rounding of its additions: `bf16` has 8 bits, so
/// `|l| <= 2^-8 |x|` and `|x - h - l| <= 2^-17 |x|`; what is left out is `l_a l_b`, at most `2^-16 |a b|`, and the two
/// rests, at most `2^-17 |a b|` each. With `bf16` alone it is `2^-7 Σ |a b|`. This is so of products of `2^-109` and more, and
/// of numbers below `2^127`: tile registers flush parts and sums below `2^-126` to zero.
///
/// Source: Henry, Tang and Heinecke 2019, Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
/// Computations (<https://arxiv.org/abs/1904.06376>): numbers in two parts, without the product of the low ones. XLA counts the
/// products, `BF16_BF16_F32_X3`, as we do; oneMKL counts the parts, `float_to_bf16x2`.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_kernels::{MatmulPrecision, linear};
///
/// let device = Device::flex();
/// let x = Tensor::<2>::from_floats([[1.003_906_25, -1.0]], &device); // 1 + 2^-8, which `bf16` rounds to 1
/// let weight = Tensor::<2>::from_floats([[1.0], [1.0]], &device);
/// let sum = MatmulPrecision::Bf16x3.within(|| linear(x, weight, None));
/// assert_eq!(sum.into_scalar::<f32>(), 0.003_906_25);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MatmulPrecision {
    /// Products of `f32`.
    #[default]
    F32,
    /// Three products of `bf16` for each, on the flex backend where the processor has tile registers (AMX) and Linux permits their use.
    /// Elsewhere, and where few rows are multiplied with a large matrix, so that memory is what counts, as they are. Small
    /// products lose digits, and an infinity becomes a NaN. With the vector instructions of `bf16` (AVX-512 BF16), which
    /// multiply twice as many numbers as those of `f32`, three products would take longer than one.
    Bf16x3,
}

impl fmt::Display for MatmulPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "products of f32",
            Self::Bf16x3 => "three products of bf16 for each of f32",
        })
    }
}

impl MatmulPrecision {
    /// Runs `work` with this precision for all linear maps on this thread and within [`awake`](crate::awake). It holds for the gradients of
    /// these maps too, whenever and wherever they are computed.
    pub fn within<R>(self, work: impl FnOnce() -> R) -> R {
        let _before = Restore(CURRENT.replace(self));
        work()
    }

    /// Whether a device supports this precision; others multiply in `f32`.
    pub fn run_on(self, device: &Device) -> bool {
        match self {
            Self::F32 => true,
            Self::Bf16x3 => has_tiles(device),
        }
    }

    /// The precision that this thread asks for.
    pub fn current() -> Self {
        CURRENT.get()
    }

    /// Says once, at the level of debugging, what becomes of three products.
    pub(crate) fn tell<const D: usize>(self, x: &Tensor<D>) {
        static TOLD: Once = Once::new();
        if self == Self::Bf16x3 {
            TOLD.call_once(|| log::debug!("linear: {}", self.outcome(&x.device())));
        }
    }

    fn outcome(self, device: &Device) -> String {
        match self.run_on(device) {
            true => self.to_string(),
            false => format!(
                "{}, where {self} were asked for: they need the device flex and a processor with AMX, under Linux",
                Self::F32
            ),
        }
    }
}

/// Ends what a thread asks for, also if the work panics.
struct Restore(MatmulPrecision);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

#[cfg(feature = "flex")]
fn has_tiles(device: &Device) -> bool {
    use crate::path::{KernelPath, is_flex, kernel_path};
    let is_fused = kernel_path(device, burn::tensor::DType::F32) == KernelPath::Fused;
    is_fused && is_flex(device) && crate::flex::halves::Units::chosen().is_some()
}

#[cfg(not(feature = "flex"))]
fn has_tiles(_: &Device) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_asks_for_ends_with_its_work_also_by_a_panic() {
        let inner = MatmulPrecision::Bf16x3
            .within(|| (MatmulPrecision::current(), MatmulPrecision::F32.within(MatmulPrecision::current)));
        assert_eq!(inner, (MatmulPrecision::Bf16x3, MatmulPrecision::F32));
        assert_eq!(MatmulPrecision::current(), MatmulPrecision::F32);
        let refuse = || assert_eq!(MatmulPrecision::current(), MatmulPrecision::F32, "on purpose");
        let panicked = std::panic::catch_unwind(|| MatmulPrecision::Bf16x3.within(refuse));
        assert!(panicked.is_err() && MatmulPrecision::current() == MatmulPrecision::F32);
        let elsewhere = MatmulPrecision::Bf16x3.within(|| std::thread::spawn(MatmulPrecision::current).join());
        assert_eq!(elsewhere.expect("no panic"), MatmulPrecision::F32);
    }

    #[cfg(feature = "flex")]
    #[test]
    fn a_step_that_another_thread_takes_is_asked_the_same() {
        let device = Device::flex();
        for precision in [MatmulPrecision::Bf16x3, MatmulPrecision::F32] {
            assert_eq!(precision.within(|| crate::awake(&device, MatmulPrecision::current)), precision);
        }
    }

    #[cfg(feature = "ndarray")]
    #[test]
    #[allow(deprecated)]
    fn a_device_without_them_says_so_and_computes_in_single_precision() {
        let device = Device::ndarray();
        assert!(!MatmulPrecision::Bf16x3.run_on(&device) && MatmulPrecision::F32.run_on(&device));
        let text = MatmulPrecision::Bf16x3.outcome(&device);
        assert!(text.starts_with("products of f32, where three products of bf16") && text.contains("AMX"), "{text}");
        let product =
            || crate::linear(Tensor::<2>::full([2, 3], 1.1, &device), Tensor::full([3, 2], 0.7, &device), None);
        MatmulPrecision::Bf16x3.within(product).into_data().assert_eq(&product().into_data(), true);
    }
}
