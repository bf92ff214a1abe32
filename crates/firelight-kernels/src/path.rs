//! Which way an operation is computed. The one place that decides.

#[cfg(feature = "extension")]
use burn::backend::DispatchDevice;
#[cfg(feature = "extension")]
use burn::tensor::Tensor;
use burn::tensor::{DType, Device};
#[cfg(feature = "extension")]
use std::collections::BTreeSet;
use std::fmt;
use std::sync::OnceLock;
#[cfg(feature = "extension")]
use std::sync::{Mutex, PoisonError};

/// The environment variable that turns kernels off.
const SWITCH: &str = "FIRELIGHT_KERNELS";

/// How operations are computed on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KernelPath {
    /// Operations have kernels and backward passes of our own: on the CPU all of this crate except `attention_with_weights` and
    /// `attention_from_scores`; on a GPU attention, the norms and cross-entropy. The others take the reference.
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

/// The path of operations on tensors of `dtype` on `device`: fused on Burn's flex backend in `f32`, `f64` and, computed in
/// `f32`, in `f16` and `bf16`, and on its CubeCL backends (wgpu, vulkan, metal, cuda, rocm) in `f32`, `f16` and `bf16`, if this
/// crate was built with the feature of the backend; the reference everywhere else.
///
/// With the environment variable `FIRELIGHT_KERNELS=reference`, read once, it is the reference everywhere; a value other than
/// this and `fused` is warned of. A fused operation may still take the reference for an option that it does not support;
/// its documentation says so, and each operation that has kernels logs the path that it took, once, at the level of
/// debugging. The loops of the CPU's kernels are compiled for several vector units; `FIRELIGHT_SIMD=scalar`, `avx2`, `avx512`
/// or `amx`, read once, forces one that the CPU has, which changes no bit of a result in `f32` and `f64`. Matrix products in these
/// types choose their own inside the `gemm` crate, which cannot be forced.
pub fn kernel_path(device: &Device, dtype: DType) -> KernelPath {
    let is_half = matches!(dtype, DType::F16 | DType::BF16);
    match kernels(device, if is_half && backend(device) == Some(Kernels::Cpu) { DType::F32 } else { dtype }) {
        Some(_) => KernelPath::Fused,
        None => KernelPath::Reference,
    }
}

/// The backends that have kernels of our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code)] // A build may lack the one or the other.
enum Kernels {
    Cpu,
    Gpu,
}

impl Kernels {
    fn take(self, dtype: DType) -> bool {
        match self {
            Self::Cpu => matches!(dtype, DType::F32 | DType::F64),
            Self::Gpu => matches!(dtype, DType::F32 | DType::F16 | DType::BF16),
        }
    }
}

/// Whether an operation that has kernels for every backend of [`kernel_path`] runs fused on `tensor`. Empty tensors do
/// not: there is nothing to do.
#[cfg(feature = "extension")]
pub(crate) fn is_fused<const D: usize>(tensor: &Tensor<D>) -> bool {
    kernels_of(tensor).is_some()
}

/// Whether an operation that has kernels for the CPU alone runs fused on `tensor`.
#[cfg(feature = "extension")]
pub(crate) fn is_fused_on_cpu<const D: usize>(tensor: &Tensor<D>) -> bool {
    kernels_of(tensor) == Some(Kernels::Cpu)
}

/// As [`is_fused`], for an operation whose kernels for the CPU read and write half precision, too, and compute in `f32`.
#[cfg(feature = "extension")]
pub(crate) fn is_fused_in_any_type<const D: usize>(tensor: &Tensor<D>) -> bool {
    is_fused(tensor) || is_fused_on_cpu_in_any_type(tensor)
}

/// The same where there are kernels for the CPU alone.
#[cfg(feature = "extension")]
pub(crate) fn is_fused_on_cpu_in_any_type<const D: usize>(tensor: &Tensor<D>) -> bool {
    let is_half = matches!(tensor.dtype(), DType::F16 | DType::BF16);
    let dtype = if is_half { DType::F32 } else { tensor.dtype() };
    kernels(&tensor.device(), dtype) == Some(Kernels::Cpu) && tensor.shape().num_elements() > 0
}

/// Whether there are kernels for the CPU that `tensor` lies on, whatever its type, and something to do.
#[cfg(feature = "flex")]
pub(crate) fn has_kernels_of_the_cpu<const D: usize>(tensor: &Tensor<D>) -> bool {
    is_flex(&tensor.device()) && !is_switched_off() && tensor.shape().num_elements() > 0
}

#[cfg(feature = "extension")]
fn kernels_of<const D: usize>(tensor: &Tensor<D>) -> Option<Kernels> {
    let kernels = kernels(&tensor.device(), tensor.dtype());
    kernels.filter(|_| tensor.shape().num_elements() > 0)
}

/// Logs the path that an operation takes, once for each path, at the debug level. Returns `is_fused`.
#[cfg(feature = "extension")]
pub(crate) fn log_path(operation: &'static str, is_fused: bool) -> bool {
    static LOGGED: Mutex<BTreeSet<(&str, bool)>> = Mutex::new(BTreeSet::new());
    let is_new = || LOGGED.lock().unwrap_or_else(PoisonError::into_inner).insert((operation, is_fused));
    if log::log_enabled!(log::Level::Debug) && is_new() {
        log::debug!("{operation}: {}", if is_fused { KernelPath::Fused } else { KernelPath::Reference });
    }
    is_fused
}

/// Panics where the tensors of an operation hold numbers of several types: backends would read one as the other, or round it.
pub(crate) fn check_types(operation: &str, parts: &[(&str, Option<DType>)]) {
    let mut given = parts.iter().filter_map(|(name, dtype)| Some((name, (*dtype)?)));
    let Some((first, expected)) = given.next() else { return };
    if let Some((name, found)) = given.find(|(_, dtype)| *dtype != expected) {
        panic!("{operation}: {first} holds {expected:?} and {name} {found:?}: cast one of them, `Tensor::cast`");
    }
}

fn kernels(device: &Device, dtype: DType) -> Option<Kernels> {
    #[cfg(all(test, feature = "flex"))]
    if BY_REFERENCE.get() {
        return None;
    }
    backend(device).filter(|kernels| !is_switched_off() && kernels.take(dtype))
}

#[cfg(all(test, feature = "flex"))]
thread_local! {
    static BY_REFERENCE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Runs `work` with the reference of every operation that this thread asks for.
#[cfg(all(test, feature = "flex"))]
pub(crate) fn by_reference<R>(work: impl FnOnce() -> R) -> R {
    struct Until;
    impl Drop for Until {
        fn drop(&mut self) {
            BY_REFERENCE.set(false);
        }
    }
    BY_REFERENCE.set(true);
    let _until = Until; // Also where the work panics: the thread's next test asks for kernels.
    work()
}

fn is_switched_off() -> bool {
    static OFF: OnceLock<bool> = OnceLock::new();
    *OFF.get_or_init(|| {
        let value = std::env::var_os(SWITCH).unwrap_or_default();
        if !["", "fused", "reference"].iter().any(|known| value == *known) {
            log::warn!(
                "{SWITCH}={} is unknown and taken for `fused`: expected `fused` or `reference`",
                value.display()
            );
        }
        value == "reference"
    })
}

/// Only backends whose feature this crate was built with: another crate may have built in more of them.
#[cfg(feature = "extension")]
fn backend(device: &Device) -> Option<Kernels> {
    match device.clone().inner().as_dispatch() {
        #[cfg(feature = "flex")]
        DispatchDevice::Flex(_) => Some(Kernels::Cpu),
        #[cfg(feature = "cube")]
        DispatchDevice::Cube(_) => Some(Kernels::Gpu),
        #[allow(unreachable_patterns)]
        _ => None,
    }
}

/// Whether operations of our own join Burn's graph on this device, with kernels or without.
#[cfg(feature = "extension")]
pub(crate) fn is_extended(device: &Device) -> bool {
    match device.clone().inner().as_dispatch() {
        #[cfg(feature = "ndarray")]
        #[allow(deprecated)]
        DispatchDevice::NdArray(_) => true,
        _ => backend(device).is_some(),
    }
}

#[cfg(not(feature = "extension"))]
pub(crate) fn is_extended(_: &Device) -> bool {
    false
}

/// Whether the device is the CPU of Burn's flex backend, with kernels of our own built in.
#[cfg(feature = "flex")]
pub(crate) fn is_flex(device: &Device) -> bool {
    backend(device) == Some(Kernels::Cpu)
}

/// Whether the device is a GPU of one of Burn's CubeCL backends, whose feature this crate was built with. Its memory is not the host's, so what
/// the host reads costs a copy.
///
/// ```
/// assert!(!firelight_kernels::is_gpu(&burn::tensor::Device::flex()));
/// ```
pub fn is_gpu(device: &Device) -> bool {
    backend(device) == Some(Kernels::Gpu)
}

#[cfg(not(feature = "extension"))]
fn backend(_: &Device) -> Option<Kernels> {
    None
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;

    #[test]
    fn flex_is_fused_in_every_precision() {
        for device in [Device::flex(), Device::flex().autodiff()] {
            for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
                assert_eq!(kernel_path(&device, dtype), KernelPath::Fused);
            }
        }
        assert!(!is_fused(&Tensor::<2>::zeros([0, 3], &Device::flex())));
    }

    #[test]
    #[should_panic(expected = "linear: x holds BF16 and weight F32: cast one of them")]
    fn numbers_of_two_types_are_refused() {
        let device = Device::flex();
        let (x, weight) = (Tensor::<2>::ones([2, 3], (&device, DType::BF16)), Tensor::ones([3, 4], &device));
        crate::linear(x, weight, None);
    }

    #[test]
    fn a_gpu_takes_single_and_half_precision_and_a_cpu_single_and_double() {
        let taken = |kernels: Kernels| {
            let types = [DType::F32, DType::F64, DType::F16, DType::BF16];
            types.map(|dtype| kernels.take(dtype))
        };
        assert_eq!(taken(Kernels::Gpu), [true, false, true, true]);
        assert_eq!(taken(Kernels::Cpu), [true, true, false, false]); // Half precision is widened before.
    }

    #[test]
    #[cfg_attr(not(feature = "cube"), ignore = "needs a GPU: cargo xtask test --device wgpu")]
    fn a_gpu_is_fused_in_single_and_half_precision() {
        let device = crate::testing::Case::gpu(&[1, 1]).device();
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            assert_eq!(kernel_path(&device, dtype), KernelPath::Fused);
        }
        assert_eq!(kernel_path(&device, DType::F64), KernelPath::Reference);
        assert!(!is_fused_on_cpu(&Tensor::<1>::ones([1], &device)));
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
