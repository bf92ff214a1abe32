//! Cross-entropy on a GPU, a cube of units for every row: two reads of the logits forward, one read and one write backward.

use super::{CrossEntropyExtension, CrossEntropyKernel};
use crate::cube::{Rows, buffer, empty, maximum, sum};
use crate::optional::OptionalBool;
use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::fusion::custom::TensorSpec;
use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn::backend::{Backend, Cube, backend_extension};
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::{self, ir::ElemType, prelude::*};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

impl CrossEntropyExtension for Cube {
    fn cross_entropy(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        ignored: OptionalBool<Self>,
        smoothing: f64,
    ) -> FloatTensor<Self> {
        let (losses, _) = Self::losses(logits, targets, ignored, smoothing);
        losses
    }
}

/// The classes, which rows are ignored, and the share that is spread over all classes.
#[derive(Debug, Clone)]
pub(crate) struct Targets {
    classes: IntTensor<Cube>,
    ignored: Option<BoolTensor<Cube>>,
    smoothing: f64,
}

impl CrossEntropyKernel for Cube {
    type Targets = Targets;

    fn targets(classes: IntTensor<Self>, ignored: Option<BoolTensor<Self>>, smoothing: f64) -> Targets {
        Targets { classes, ignored, smoothing }
    }

    fn forward(logits: FloatTensor<Self>, targets: &Targets) -> [FloatTensor<Self>; 2] {
        let Targets { classes, ignored, smoothing } = targets.clone();
        Self::losses(logits, classes, OptionalBool::of(ignored), smoothing).into()
    }

    fn backward(
        logits: FloatTensor<Self>,
        sums: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        targets: &Targets,
    ) -> FloatTensor<Self> {
        let Targets { classes, ignored, smoothing } = targets.clone();
        Self::losses_backward(logits, sums, grad, classes, OptionalBool::of(ignored), smoothing)
    }
}

/// Both passes, which Burn's fusion carries through as they are.
#[backend_extension(Cube, Fusion)]
pub(crate) trait LossOperations: Backend {
    /// The losses, `[N]`, and of every row the largest logit and the logarithm of the sum of exponentials relative to it,
    /// `[N, 2]`.
    #[fusion(meta = |logits, _targets, _ignored, _smoothing| outputs(logits))]
    fn losses(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        #[extension_type] ignored: OptionalBool<Self>,
        smoothing: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// The gradient of the logits, written over them where nobody else reads them.
    #[fusion(dtype = logits, shape = logits)]
    fn losses_backward(
        logits: FloatTensor<Self>,
        sums: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        targets: IntTensor<Self>,
        #[extension_type] ignored: OptionalBool<Self>,
        smoothing: f64,
    ) -> FloatTensor<Self>;
}

/// Shapes and types of losses and sums.
fn outputs(logits: &TensorSpec) -> (TensorSpec, TensorSpec) {
    let rows = logits.shape[0];
    (TensorSpec::new(Shape::from([rows]), logits.dtype), TensorSpec::new(Shape::from([rows, 2]), DType::F32))
}

impl LossOperations for CubeBackend {
    fn losses(
        logits: CubeTensor,
        targets: CubeTensor,
        ignored: OptionalBool<Self>,
        smoothing: f64,
    ) -> (CubeTensor, CubeTensor) {
        let (logits, ignored) = (into_contiguous(logits), ignored.into_option());
        let rows = Rows::new(&logits, logits.meta.shape()[1]);
        let losses = empty(&logits, [rows.count], logits.dtype);
        let sums = empty(&logits, [rows.count, 2], DType::F32);
        let (has_ignored, ignored) = (ignored.is_some(), ignored.unwrap_or_else(|| targets.clone()));
        forward_kernel::launch(
            &losses.client,
            rows.cubes.clone(),
            rows.dim(),
            logits.required_address_type(),
            buffer(logits.clone()),
            buffer(targets.clone()),
            buffer(ignored.clone()),
            losses.clone().into_buffer_arg(),
            sums.clone().into_buffer_arg(),
            rows.count,
            rows.width,
            smoothing as f32,
            has_ignored,
            rows.units,
            [logits.dtype, targets.dtype, ignored.dtype].map(dtype_to_storage_type),
        );
        (losses, sums)
    }

    fn losses_backward(
        logits: CubeTensor,
        sums: CubeTensor,
        grad: CubeTensor,
        targets: CubeTensor,
        ignored: OptionalBool<Self>,
        smoothing: f64,
    ) -> CubeTensor {
        let (logits, ignored) = (into_contiguous(logits), ignored.into_option());
        let rows = Rows::new(&logits, logits.meta.shape()[1]);
        let free = logits.can_mut();
        let d_logits = if free { logits.clone() } else { empty(&logits, logits.meta.shape().clone(), logits.dtype) };
        let written =
            if free { logits.as_tensor_alias(0).into_buffer_arg() } else { d_logits.clone().into_buffer_arg() };
        let (has_ignored, ignored) = (ignored.is_some(), ignored.unwrap_or_else(|| targets.clone()));
        backward_kernel::launch(
            &d_logits.client,
            rows.cubes.clone(),
            rows.dim(),
            logits.required_address_type(),
            buffer(logits.clone()),
            buffer(sums),
            buffer(grad),
            buffer(targets.clone()),
            buffer(ignored.clone()),
            written,
            rows.count,
            rows.width,
            smoothing as f32,
            has_ignored,
            rows.units,
            [logits.dtype, targets.dtype, ignored.dtype].map(dtype_to_storage_type),
        );
        d_logits
    }
}

/// `loss = log Σ exp(x) - (1 - a) x(target) - a mean(x)`, all relative to the largest logit of the row.
#[cube(launch, address_type = "dynamic")]
fn forward_kernel<F: Float, I: Int, M: Int>(
    logits: &[F],
    targets: &[I],
    ignored: &[M],
    losses: &mut [F],
    sums: &mut [f32],
    rows: usize,
    width: usize,
    smoothing: f32,
    #[comptime] has_ignored: bool,
    #[comptime] units: usize,
    #[define(F, I, M)] _dtypes: [ElemType; 3],
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let first = row * width;
    let mut highest = f32::cast_from(logits[first]);
    let mut i = UNIT_POS as usize;
    while i < width {
        let x = f32::cast_from(logits[first + i]);
        if x > highest {
            highest = x;
        }
        i += units;
    }
    let largest = maximum(highest, units);
    let mut exponentials = 0.0f32;
    let mut shifted = 0.0f32;
    let mut i = UNIT_POS as usize;
    while i < width {
        let x = f32::cast_from(logits[first + i]) - largest;
        exponentials += x.exp();
        shifted += x;
        i += units;
    }
    let log_sum = sum(exponentials, units).ln();
    let mean = sum(shifted, units) / f32::cast_from(width);
    if UNIT_POS == 0 {
        let mut loss = 0.0f32;
        if counts::<M>(ignored, row, has_ignored) {
            let target = f32::cast_from(logits[first + class::<I>(targets, row)]) - largest;
            loss = log_sum - (1.0f32 - smoothing) * target;
            // Zero times the minus infinity of a forbidden class would be no number.
            if smoothing > 0.0f32 {
                loss -= smoothing * mean;
            }
        }
        losses[row] = F::cast_from(loss);
        sums[2 * row] = largest;
        sums[2 * row + 1] = log_sum;
    }
}

/// `(softmax(x) - (1 - a) [target] - a / V) grad`.
#[cube(launch, address_type = "dynamic")]
fn backward_kernel<F: Float, I: Int, M: Int>(
    logits: &[F],
    sums: &[f32],
    grad: &[F],
    targets: &[I],
    ignored: &[M],
    d_logits: &mut [F],
    rows: usize,
    width: usize,
    smoothing: f32,
    #[comptime] has_ignored: bool,
    #[comptime] units: usize,
    #[define(F, I, M)] _dtypes: [ElemType; 3],
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let first = row * width;
    let largest = sums[2 * row];
    let log_sum = sums[2 * row + 1];
    let slope = f32::cast_from(grad[row]);
    let share = smoothing / f32::cast_from(width);
    let counts = counts::<M>(ignored, row, has_ignored);
    let mut target = width;
    if counts {
        target = class::<I>(targets, row);
    }
    let mut i = UNIT_POS as usize;
    while i < width {
        let mut d_x = 0.0f32;
        if counts {
            d_x = (f32::cast_from(logits[first + i]) - largest - log_sum).exp() - share;
            if i == target {
                d_x -= 1.0f32 - smoothing;
            }
        }
        d_logits[first + i] = F::cast_from(d_x * slope);
        i += units;
    }
}

#[cube]
fn counts<M: Int>(ignored: &[M], row: usize, #[comptime] has_ignored: bool) -> bool {
    let mut counts = true;
    if has_ignored {
        counts = u32::cast_from(ignored[row]) == 0u32;
    }
    counts
}

#[cube]
fn class<I: Int>(targets: &[I], row: usize) -> usize {
    u32::cast_from(targets[row]) as usize
}
