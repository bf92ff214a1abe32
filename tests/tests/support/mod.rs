//! What several tests need: the device, golden tensors, and scratch runs.

pub(crate) mod golden;

use burn::tensor::Device;

/// The device under test.
pub(crate) fn device() -> Device {
    firelight::device::select(None).expect("a device")
}

/// The device under test is a GPU, or a program that behaves like one: its sums are taken in another order.
pub(crate) fn is_gpu() -> bool {
    let name = std::env::var("BURN_DEVICE").unwrap_or_else(|_| "flex".into());
    !matches!(name.as_str(), "" | "flex" | "ndarray")
}

/// Largest difference over largest magnitude that is allowed between two ways to compute one tensor in single precision:
/// about a hundred roundings on a CPU; GPUs sum in other orders and approximate functions.
pub(crate) fn tolerance() -> f64 {
    if is_gpu() { 1e-4 } else { 1e-5 }
}
