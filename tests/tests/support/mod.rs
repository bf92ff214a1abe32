//! What several tests need: the device, seeded noise, the grid of variants, golden tensors, and the bytes that a
//! thread holds.

mod covering;
pub(crate) mod golden;
pub(crate) mod grid;
#[cfg(feature = "flex")]
pub(crate) mod memory;
mod noise;
pub(crate) mod slopes;

use burn::tensor::{Device, Tensor};
use firelight::device::{NamedDevice, choose};
use firelight::kernels::Difference;

pub(crate) use firelight_tests::ParameterPath;
pub(crate) use noise::Noise;

/// The device under test.
pub(crate) fn device() -> Device {
    chosen().device
}

/// The device under test is a GPU, or a program that behaves like one: its sums are taken in another order.
pub(crate) fn is_gpu() -> bool {
    !matches!(chosen().name.as_str(), "flex" | "ndarray")
}

/// The largest difference of two tensors.
///
/// # Panics
/// If they cannot be compared, see [`Difference`]: what is no number is neither near nor far.
#[track_caller]
pub(crate) fn distance<const D: usize>(found: &Tensor<D>, expected: &Tensor<D>) -> f64 {
    let difference = Difference::between(found, expected);
    assert!(difference.absolute.is_finite(), "{difference:?}");
    difference.absolute
}

fn chosen() -> NamedDevice {
    choose(None).expect("a device")
}

/// Largest difference over largest magnitude that is allowed between two ways to compute one tensor in single precision:
/// about a hundred roundings on a CPU; GPUs sum in other orders and approximate functions.
pub(crate) fn tolerance() -> f64 {
    if is_gpu() { 1e-4 } else { 1e-5 }
}
