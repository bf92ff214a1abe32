//! What the GPU kernels share: one cube of units for every row, sums and maxima over its units, and launches.
//!
//! Kernels read `f32`, `f16` or `bf16` and compute in `f32`. Sums have one order, which depends on the width alone.

#[cfg(feature = "cuda")]
mod kept;
pub(crate) mod norm;

#[cfg(feature = "cuda")]
pub use kept::cache_compiled_kernels;

use burn::tensor::{DType, Shape};
use burn_cubecl::cubecl::{self, prelude::*};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;

/// Units of a cube at most, which WebGPU grants on every device.
const UNITS: usize = 256;

/// Rows side by side in memory, and the cubes that work on them.
pub(crate) struct Rows {
    pub(crate) count: usize,
    pub(crate) width: usize,
    /// A power of two.
    pub(crate) units: usize,
    pub(crate) cubes: CubeCount,
}

impl Rows {
    pub(crate) fn new(tensor: &CubeTensor, width: usize) -> Self {
        let count = tensor.meta.shape().num_elements() / width;
        let units = width.next_power_of_two().clamp(32, UNITS);
        let cubes = cubecl::calculate_cube_count_elemwise(&tensor.client, count, CubeDim::new_1d(1));
        Self { count, width, units, cubes }
    }

    pub(crate) fn dim(&self) -> CubeDim {
        CubeDim::new_1d(self.units as u32)
    }
}

/// A tensor of some shape whose elements are yet to be written, on the device of another.
pub(crate) fn empty(like: &CubeTensor, shape: impl Into<Shape>, dtype: DType) -> CubeTensor {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape.into(), dtype)
}

/// The buffer of a tensor in row-major order.
pub(crate) fn buffer(tensor: CubeTensor) -> BufferArg {
    into_contiguous(tensor).into_buffer_arg()
}

/// The sum of one number from every unit, for every unit.
#[cube]
pub(crate) fn sum(value: f32, #[comptime] units: usize) -> f32 {
    let mut parts = Shared::<[f32]>::new_slice(units);
    let unit = UNIT_POS as usize;
    parts[unit] = value;
    sync_cube();
    let mut half = comptime!(units / 2).runtime();
    while half > 0 {
        if unit < half {
            let other = parts[unit + half];
            parts[unit] += other;
        }
        sync_cube();
        half /= 2;
    }
    let total = parts[0];
    sync_cube();
    total
}

/// The largest of one number from every unit, for every unit.
#[cube]
pub(crate) fn maximum(value: f32, #[comptime] units: usize) -> f32 {
    let mut parts = Shared::<[f32]>::new_slice(units);
    let unit = UNIT_POS as usize;
    parts[unit] = value;
    sync_cube();
    let mut half = comptime!(units / 2).runtime();
    while half > 0 {
        if unit < half {
            let other = parts[unit + half];
            if other > parts[unit] {
                parts[unit] = other;
            }
        }
        sync_cube();
        half /= 2;
    }
    let largest = parts[0];
    sync_cube();
    largest
}
