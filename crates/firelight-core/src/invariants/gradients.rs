//! Autodiff against slopes.

use burn::tensor::Tensor;

use super::{Violation, noise, verdict};

/// The gradient by autodiff must equal the finite difference between two nearby points, in random directions.
///
/// `f` maps a tensor to one number, `[1]`. `x` is on a device without autodiff. Kinks and curvature spoil the slope over a
/// long step and rounding the one over a short step: of five steps from `1e-2` to `1e-4` of the size of `x` the best one
/// counts. A kink at `x` itself, as ReLU has them, spoils single directions: one of four may differ. A wrong gradient is
/// wrong in nearly all, so `tolerance` may be a few thousandths in single precision.
///
/// # Errors
/// The second worst direction, if it differs, relative to the size of the gradient; a direction whose slope is no number.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::invariants::gradients;
///
/// let x = Tensor::<1>::from_floats([0.5, -1.0, 2.0], &Device::flex());
/// assert!(gradients(|x| x.powi_scalar(2).sum(), x.clone(), 1e-2).is_ok());
/// assert!(gradients(|x| x.clone().detach().mul(x).sum(), x, 1e-2).is_err());
/// ```
pub fn gradients<const D: usize>(
    f: impl Fn(Tensor<D>) -> Tensor<1>,
    x: Tensor<D>,
    tolerance: f64,
) -> Result<(), Violation> {
    let tracked = Tensor::from_data(x.to_data(), &x.device().autodiff()).require_grad();
    let grads = f(tracked.clone()).backward();
    let gradient = tracked.grad(&grads).unwrap_or_else(|| x.zeros_like());
    let unit = scalar(x.clone().abs().mean()).max(1e-3);
    let size = scalar(gradient.clone().square().sum()).sqrt().max(1e-6);
    let mut differences = [0, 1, 2, 3].map(|direction| {
        let along = noise(x.dims(), direction, &x.device());
        let expected = scalar((gradient.clone() * along.clone()).sum());
        let steps = [1e-2, 3e-3, 1e-3, 3e-4, 1e-4].map(|step| {
            let [ahead, behind] = [unit * step, -unit * step].map(|by| scalar(f(x.clone() + along.clone() * by)));
            ((ahead - behind) / (2.0 * unit * step) - expected).abs() / size
        });
        (steps.into_iter().fold(f64::NAN, f64::min), direction)
    });
    differences.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs())); // NaN is the largest, whatever its sign.
    let (difference, direction) = differences[usize::from(!differences[0].0.is_nan())];
    verdict("the gradient is the slope", format!("direction {direction}"), difference, tolerance)
}

fn scalar(x: Tensor<1>) -> f64 {
    x.into_scalar::<f64>()
}
