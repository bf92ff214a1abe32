//! Normalisation of rows on a GPU: of layers, centred by their mean, and by the root mean square, which is the same about
//! zero.

use super::{Rows, buffer, empty, sum};
use crate::optional::OptionalFloat;
use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};
use burn::tensor::{DType, Shape, Slice};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, ir::ElemType, prelude::*};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

/// Rows whose part of a parameter's gradient one unit sums up, at least.
const ROWS: usize = 64;

/// Parts of a parameter's gradient at most.
const PARTS: usize = 1024;

/// Both passes, which Burn's fusion carries through as they are.
#[backend_extension(Cube, Fusion)]
pub(crate) trait NormOperations: Backend {
    /// `(x - mean) / sqrt(mean((x - mean)²) + epsilon) * gamma + beta`, with a mean of zero unless `centred`.
    #[fusion(dtype = x, shape = x)]
    fn norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        #[extension_type] beta: OptionalFloat<Self>,
        centred: bool,
        epsilon: f64,
    ) -> FloatTensor<Self>;

    /// The gradients of `x`, `gamma` and `beta`.
    #[fusion(meta = |x, gamma, _grad, _centred, _epsilon| (x.clone(), gamma.clone(), gamma.clone()))]
    fn norm_backward(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        centred: bool,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

impl NormOperations for CubeBackend {
    fn norm(x: CubeTensor, gamma: CubeTensor, beta: OptionalFloat<Self>, centred: bool, epsilon: f64) -> CubeTensor {
        let (beta, x) = (beta.into_option(), into_contiguous(x));
        let rows = Rows::new(&x, gamma.meta.shape()[0]);
        let output = empty(&x, x.meta.shape().clone(), x.dtype);
        let (has_beta, beta) = (beta.is_some(), beta.unwrap_or_else(|| gamma.clone()));
        forward_kernel::launch(
            &output.client,
            rows.cubes.clone(),
            rows.dim(),
            x.required_address_type(),
            buffer(x.clone()),
            buffer(gamma),
            buffer(beta),
            output.clone().into_buffer_arg(),
            rows.count,
            rows.width,
            epsilon as f32,
            centred,
            has_beta,
            rows.units,
            dtype_to_storage_type(x.dtype),
        );
        output
    }

    fn norm_backward(
        x: CubeTensor,
        gamma: CubeTensor,
        grad: CubeTensor,
        centred: bool,
        epsilon: f64,
    ) -> (CubeTensor, CubeTensor, CubeTensor) {
        let (x, grad) = (into_contiguous(x), into_contiguous(grad));
        let rows = Rows::new(&x, gamma.meta.shape()[0]);
        let d_x = empty(&x, x.meta.shape().clone(), x.dtype);
        let statistics = empty(&x, [rows.count, 2], DType::F32);
        backward_kernel::launch(
            &d_x.client,
            rows.cubes.clone(),
            rows.dim(),
            x.required_address_type(),
            buffer(x.clone()),
            buffer(gamma),
            buffer(grad.clone()),
            d_x.clone().into_buffer_arg(),
            statistics.clone().into_buffer_arg(),
            rows.count,
            rows.width,
            epsilon as f32,
            centred,
            rows.units,
            dtype_to_storage_type(x.dtype),
        );
        let [d_gamma, d_beta] = parameters(x, grad, statistics, &rows);
        (d_x, d_gamma, d_beta)
    }
}

/// The gradients of `gamma` and `beta`: every unit sums up a column of some rows, and the sums are summed.
fn parameters(x: CubeTensor, grad: CubeTensor, statistics: CubeTensor, rows: &Rows) -> [CubeTensor; 2] {
    let part = rows.count.div_ceil(PARTS).max(ROWS);
    let count = rows.count.div_ceil(part);
    let parts = empty(&x, [count, 2, rows.width], DType::F32);
    parameter_kernel::launch(
        &parts.client,
        CubeCount::Static(rows.width.div_ceil(rows.units) as u32, count as u32, 1),
        rows.dim(),
        x.required_address_type(),
        buffer(x.clone()),
        buffer(grad),
        statistics.into_buffer_arg(),
        parts.clone().into_buffer_arg(),
        rows.count,
        rows.width,
        part,
        dtype_to_storage_type(x.dtype),
    );
    let sums = CubeBackend::float_sum_dim(parts, 0); // [1, 2, D]
    [0, 1].map(|at| {
        let sum = CubeBackend::float_slice(sums.clone(), &[Slice::from(0..1), Slice::from(at..at + 1)]);
        let sum = CubeBackend::float_reshape(sum, Shape::from([rows.width]));
        if x.dtype == DType::F32 { sum } else { CubeBackend::float_cast(sum, x.dtype.into()) }
    })
}

#[cube(launch, address_type = "dynamic")]
fn forward_kernel<F: Float>(
    x: &[F],
    gamma: &[F],
    beta: &[F],
    output: &mut [F],
    rows: usize,
    width: usize,
    epsilon: f32,
    #[comptime] centred: bool,
    #[comptime] has_beta: bool,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let first = row * width;
    let mean = mean::<F>(x, first, width, centred, units);
    let scale = scale::<F>(x, first, width, mean, epsilon, units);
    let mut i = UNIT_POS as usize;
    while i < width {
        let mut y = (f32::cast_from(x[first + i]) - mean) * scale * f32::cast_from(gamma[i]);
        if has_beta {
            y += f32::cast_from(beta[i]);
        }
        output[first + i] = F::cast_from(y);
        i += units;
    }
}

/// With `n` the normalised row and `g = grad gamma`: `dx = (g - mean(g) - n mean(g n)) scale`, without the mean of `g`
/// unless `centred`.
#[cube(launch, address_type = "dynamic")]
fn backward_kernel<F: Float>(
    x: &[F],
    gamma: &[F],
    grad: &[F],
    d_x: &mut [F],
    statistics: &mut [f32],
    rows: usize,
    width: usize,
    epsilon: f32,
    #[comptime] centred: bool,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let first = row * width;
    let mean = mean::<F>(x, first, width, centred, units);
    let scale = scale::<F>(x, first, width, mean, epsilon, units);
    let mut grads = 0.0f32;
    let mut products = 0.0f32;
    let mut i = UNIT_POS as usize;
    while i < width {
        let g = f32::cast_from(grad[first + i]) * f32::cast_from(gamma[i]);
        grads += g;
        products += g * (f32::cast_from(x[first + i]) - mean);
        i += units;
    }
    let mut mean_grad = 0.0f32;
    if centred {
        mean_grad = sum(grads, units) / f32::cast_from(width);
    }
    let mean_product = sum(products, units) * scale * scale / f32::cast_from(width);
    let mut i = UNIT_POS as usize;
    while i < width {
        let g = f32::cast_from(grad[first + i]) * f32::cast_from(gamma[i]);
        let slope = g - mean_grad - (f32::cast_from(x[first + i]) - mean) * mean_product;
        d_x[first + i] = F::cast_from(slope * scale);
        i += units;
    }
    if UNIT_POS == 0 {
        statistics[2 * row] = mean;
        statistics[2 * row + 1] = scale;
    }
}

/// `Σ grad n` and `Σ grad` over the rows of a part, for a column.
#[cube(launch, address_type = "dynamic")]
fn parameter_kernel<F: Float>(
    x: &[F],
    grad: &[F],
    statistics: &[f32],
    parts: &mut [f32],
    rows: usize,
    width: usize,
    part: usize,
    #[define(F)] _dtype: ElemType,
) {
    let column = ABSOLUTE_POS_X as usize;
    let index = CUBE_POS_Y as usize;
    if column >= width {
        terminate!();
    }
    let mut d_gamma = 0.0f32;
    let mut d_beta = 0.0f32;
    let mut row = index * part;
    while row < (index + 1) * part && row < rows {
        let g = f32::cast_from(grad[row * width + column]);
        d_gamma += g * (f32::cast_from(x[row * width + column]) - statistics[2 * row]) * statistics[2 * row + 1];
        d_beta += g;
        row += 1;
    }
    parts[2 * index * width + column] = d_gamma;
    parts[(2 * index + 1) * width + column] = d_beta;
}

/// The mean of a row, or zero.
#[cube]
fn mean<F: Float>(x: &[F], first: usize, width: usize, #[comptime] centred: bool, #[comptime] units: usize) -> f32 {
    let mut mean = 0.0f32;
    if centred {
        let mut part = 0.0f32;
        let mut i = UNIT_POS as usize;
        while i < width {
            part += f32::cast_from(x[first + i]);
            i += units;
        }
        mean = sum(part, units) / f32::cast_from(width);
    }
    mean
}

/// One over the root of the mean square about `mean` plus epsilon.
#[cube]
fn scale<F: Float>(x: &[F], first: usize, width: usize, mean: f32, epsilon: f32, #[comptime] units: usize) -> f32 {
    let mut part = 0.0f32;
    let mut i = UNIT_POS as usize;
    while i < width {
        let centred = f32::cast_from(x[first + i]) - mean;
        part += centred * centred;
        i += units;
    }
    (sum(part, units) / f32::cast_from(width) + epsilon).inverse_sqrt()
}
