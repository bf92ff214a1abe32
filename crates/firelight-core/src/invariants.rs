//! Properties that every correct sequence model has, as checks over closures: run them on blocks of your own.
//!
//! Each check returns the first violation with its place and size; its random numbers are the same at every call.

use burn::tensor::{Device, Tensor, TensorData};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// A property that does not hold.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{property}: at {place} the results differ by {difference:e}, more than {tolerance:e}")]
pub struct Violation {
    /// The property.
    pub property: &'static str,
    /// Where it fails.
    pub place: String,
    /// The largest difference found there.
    pub difference: f64,
    /// The difference allowed.
    pub tolerance: f64,
}

/// Changing the tokens from `t` on must not change the outputs before `t`, for every `t`.
///
/// `forward` maps `[B, T, X]` to `[B, T, Y]`.
///
/// # Errors
/// The first `t` at which the future leaks into the past.
pub fn causality(forward: impl Fn(Tensor<3>) -> Tensor<3>, x: Tensor<3>, tolerance: f64) -> Result<(), Violation> {
    let [batch, length, width] = x.dims();
    let output = forward(x.clone());
    for t in 1..length {
        let other = noise([batch, length - t, width], t, &x.device()) * 3.0;
        let changed = forward(Tensor::cat(vec![x.clone().narrow(1, 0, t), other], 1));
        let (past, changed) = (output.clone().narrow(1, 0, t), changed.narrow(1, 0, t));
        compare("the future changes nothing in the past", format!("token {t}"), past, changed, tolerance)?;
    }
    Ok(())
}

/// A sequence in parts of `part` tokens must give what it gives at once.
///
/// `step` maps the next part to its outputs and remembers what came before.
///
/// # Errors
/// The first part that differs.
pub fn parts_equal_whole(
    whole: impl FnOnce(Tensor<3>) -> Tensor<3>,
    mut step: impl FnMut(Tensor<3>) -> Tensor<3>,
    x: Tensor<3>,
    part: usize,
    tolerance: f64,
) -> Result<(), Violation> {
    let length = x.dims()[1];
    let output = whole(x.clone());
    for start in (0..length).step_by(part) {
        let size = part.min(length - start);
        let found = step(x.clone().narrow(1, start, size));
        let expected = output.clone().narrow(1, start, size);
        compare("parts equal the whole", format!("token {start}"), expected, found, tolerance)?;
    }
    Ok(())
}

/// The gradient by autodiff must be the slope between two nearby points, in random directions.
///
/// `f` maps a tensor to one number, `[1]`. `x` is on a device without autodiff. The step is `1e-2` of the size of `x`,
/// so `tolerance` should not be below about `1e-3` in single precision.
///
/// # Errors
/// The first direction in which they differ, relative to the size of the gradient.
#[cfg(feature = "autodiff")]
pub fn gradients<const D: usize>(
    f: impl Fn(Tensor<D>) -> Tensor<1>,
    x: Tensor<D>,
    tolerance: f64,
) -> Result<(), Violation> {
    let tracked = Tensor::from_data(x.to_data(), &x.device().autodiff()).require_grad();
    let grads = f(tracked.clone()).backward();
    let gradient = tracked.grad(&grads).unwrap_or_else(|| x.zeros_like());
    let step = 1e-2 * scalar(x.clone().abs().mean()).max(1e-3);
    for direction in 0..4 {
        let along = noise(x.dims(), direction, &x.device());
        let ahead = scalar(f(x.clone() + along.clone() * step));
        let behind = scalar(f(x.clone() - along.clone() * step));
        let slope = (ahead - behind) / (2.0 * step);
        let expected = scalar((gradient.clone() * along).sum());
        let size = scalar(gradient.clone().square().sum()).sqrt().max(1e-6);
        let difference = (slope - expected).abs() / size;
        verdict("the gradient is the slope", format!("direction {direction}"), difference, tolerance)?;
    }
    Ok(())
}

fn compare(property: &'static str, place: String, a: Tensor<3>, b: Tensor<3>, tolerance: f64) -> Result<(), Violation> {
    verdict(property, place, scalar((a - b).abs().max()), tolerance)
}

/// A difference that is no number is a violation, too.
fn verdict(property: &'static str, place: String, difference: f64, tolerance: f64) -> Result<(), Violation> {
    if difference <= tolerance { Ok(()) } else { Err(Violation { property, place, difference, tolerance }) }
}

/// Standard normal numbers, the same ones at every call with the same `stream`.
fn noise<const D: usize>(shape: [usize; D], stream: usize, device: &Device) -> Tensor<D> {
    let mut rng = ChaCha8Rng::seed_from_u64(stream as u64);
    let values = (0..shape.iter().product()).map(|_| StandardNormal.sample(&mut rng)).collect::<Vec<f32>>();
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn scalar(x: Tensor<1>) -> f64 {
    x.into_scalar::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x() -> Tensor<3> {
        noise([1, 4, 2], 0, &Device::default())
    }

    #[test]
    fn a_leak_is_found() {
        assert_eq!(causality(|x| x.cumsum(1), x(), 1e-5), Ok(()));
        let leak = causality(|x| x.clone() + x.mean_dim(1), x(), 1e-5).expect_err("the mean sees the future");
        assert_eq!(leak.place, "token 1");
    }

    #[test]
    fn a_step_that_forgets_is_found() {
        let forgets = |part: Tensor<3>| part.cumsum(1);
        assert!(parts_equal_whole(|x| x.cumsum(1), forgets, x(), 2, 1e-5).is_err());
        assert_eq!(parts_equal_whole(|x| x * 2.0, |part| part * 2.0, x(), 3, 1e-6), Ok(()));
    }

    #[test]
    #[cfg(feature = "autodiff")]
    fn a_wrong_gradient_is_found() {
        assert_eq!(gradients(|x: Tensor<3>| x.powi_scalar(3).sum(), x(), 1e-2), Ok(()));
        assert!(gradients(|x: Tensor<3>| x.clone().detach().mul(x).sum(), x(), 1e-2).is_err());
    }
}
