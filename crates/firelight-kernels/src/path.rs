//! Which way an operation is computed. The one place that decides.

#[cfg(feature = "flex")]
use burn::tensor::Tensor;
use burn::tensor::{DType, Device};
use std::fmt;
use std::sync::OnceLock;

/// How operations are computed on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KernelPath {
    /// Each operation is one pass of our own with a backward pass of its own.
    Fused,
    /// Each operation is composed of Burn's, which differentiate by themselves.
    Reference,
}

impl fmt::Display for KernelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fused => "fused kernels",
            Self::Reference => "reference kernels",
        })
    }
}

/// The path of operations on tensors of `dtype` on `device`: fused on Burn's flex backend in `f32` and `f64`, if this
/// crate was built with its feature `flex`; the reference everywhere else.
///
/// With the environment variable `FIRELIGHT_KERNELS=reference`, read once, it is the reference everywhere. A fused
/// operation may still take the reference for an option that it does not support; its documentation says so.
pub fn kernel_path(device: &Device, dtype: DType) -> KernelPath {
    let fused = !is_switched_off() && is_flex(device) && matches!(dtype, DType::F32 | DType::F64);
    if fused { KernelPath::Fused } else { KernelPath::Reference }
}

/// Whether an operation on `tensor` runs fused. Empty tensors do not: there is nothing to do.
#[cfg(feature = "flex")]
pub(crate) fn is_fused<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.shape().num_elements() > 0 && kernel_path(&tensor.device(), tensor.dtype()) == KernelPath::Fused
}

fn is_switched_off() -> bool {
    static OFF: OnceLock<bool> = OnceLock::new();
    *OFF.get_or_init(|| std::env::var("FIRELIGHT_KERNELS").is_ok_and(|value| value == "reference"))
}

#[cfg(feature = "flex")]
pub(crate) fn is_flex(device: &Device) -> bool {
    matches!(device.clone().inner().as_dispatch(), burn::backend::DispatchDevice::Flex(_))
}

#[cfg(not(feature = "flex"))]
fn is_flex(_: &Device) -> bool {
    false
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;

    #[test]
    fn flex_is_fused_in_full_and_double_precision() {
        for device in [Device::flex(), Device::flex().autodiff()] {
            assert_eq!(kernel_path(&device, DType::F32), KernelPath::Fused);
            assert_eq!(kernel_path(&device, DType::F64), KernelPath::Fused);
            assert_eq!(kernel_path(&device, DType::BF16), KernelPath::Reference);
        }
        assert!(!is_fused(&Tensor::<2>::zeros([0, 3], &Device::flex())));
    }

    #[cfg(feature = "ndarray")]
    #[test]
    #[allow(deprecated)]
    fn an_unlisted_backend_takes_the_reference() {
        let device = Device::ndarray().autodiff();
        assert_eq!(kernel_path(&device, DType::F32), KernelPath::Reference);
        let x = Tensor::<1>::from_floats([1.0], &device).require_grad();
        let y = crate::gelu(x.clone(), crate::GeluForm::Tanh);
        let slope = x.grad(&y.backward()).expect("x requires a gradient").into_scalar::<f32>();
        assert!((slope - 1.082_964).abs() < 1e-5);
    }
}
