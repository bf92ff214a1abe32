//! Properties that every correct sequence model has, as checks over closures: run them on blocks of your own.
//!
//! Each check returns the first violation with its place and size; its random numbers are the same at every call. Outputs that
//! cannot be compared, because one is empty, of another shape or no number, differ infinitely.
//!
//! | check | holds for |
//! |---|---|
//! | [`causality`] | decoders: the future cannot change the past |
//! | [`parts_equal_whole`] | models with a cache |
//! | [`padding`], [`batch_mates`] | all models that work on batches |
//! | [`rows_sum_to_one`] | attention weights |
//! | [`permutation`] | encoders without positions |
//! | [`shift`] | relative positions |
//! | `gradients` (feature `autodiff`) | everything that is trained |
//!
//! # Example
//!
//! A block of one's own, which forgets a part of its past with every token, and the checks that it should pass:
//!
//! ```
//! use burn::module::Module;
//! use burn::tensor::{Device, Distribution, Tensor};
//! use firelight_core::invariants::{Violation, batch_mates, causality, gradients, parts_equal_whole};
//! use firelight_core::{Linear, LinearConfig};
//!
//! #[derive(Module, Debug)]
//! struct Forgetful {
//!     value: Linear,
//! }
//!
//! impl Forgetful {
//!     /// `x`: `[B, T, D]`, what is left of the past: `[B, 1, D]`; output: `[B, T, D]`.
//!     fn forward(&self, x: Tensor<3>, past: &mut Option<Tensor<3>>) -> Tensor<3> {
//!         let mut outputs = Vec::new();
//!         for value in self.value.forward(x).split(1, 1) {
//!             let state = match past.take() {
//!                 Some(past) => past * 0.9 + value,
//!                 None => value,
//!             };
//!             outputs.push(state.clone());
//!             *past = Some(state);
//!         }
//!         Tensor::cat(outputs, 1)
//!     }
//! }
//!
//! let device = Device::flex();
//! let block = Forgetful { value: LinearConfig::new(4, 4).init(&device) };
//! let whole = |x| block.forward(x, &mut None);
//! let x = Tensor::<3>::random([2, 6, 4], Distribution::Default, &device);
//! causality(whole, x.clone(), 1e-5)?;
//! batch_mates(whole, x.clone(), 1e-5)?;
//! let mut past = None;
//! parts_equal_whole(whole, |part| block.forward(part, &mut past), x.clone(), 4, 1e-5)?;
//! # #[cfg(feature = "autodiff")]
//! gradients(
//!     |x: Tensor<3>| block.clone().to_device(&x.device()).forward(x, &mut None).sum(),
//!     x,
//!     1e-2,
//! )?;
//! # Ok::<(), Violation>(())
//! ```

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use firelight_kernels::Difference;
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
/// The first `t` at which the future leaks into the past; fewer than two tokens, which have no future.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::invariants::causality;
///
/// let x = Tensor::<3>::ones([1, 4, 2], &Device::flex());
/// assert!(causality(|x| x.cumsum(1), x.clone(), 1e-5).is_ok());
/// let leak = causality(|x| x.clone() - x.mean_dim(1), x, 1e-5).expect_err("the mean sees the future");
/// assert_eq!(leak.place, "token 1");
/// ```
pub fn causality(forward: impl Fn(Tensor<3>) -> Tensor<3>, x: Tensor<3>, tolerance: f64) -> Result<(), Violation> {
    let [batch, length, width] = x.dims();
    some("the future changes nothing in the past", "tokens after the first", length.saturating_sub(1))?;
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
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::invariants::parts_equal_whole;
/// use firelight_core::{Cache, Pass, SequenceInput, TransformerConfig};
///
/// let device = Device::flex();
/// let model = TransformerConfig::new(8, 2, 1).init(&device);
/// let forward = |x, pass: &mut Pass| model.forward(x, &SequenceInput::default(), pass);
/// let mut cache = Cache::new(1, 16);
/// let step = |x| forward(x, &mut Pass::cached(&mut cache));
/// let x = Tensor::<3>::ones([1, 5, 8], &device);
/// assert!(parts_equal_whole(|x| forward(x, &mut Pass::default()), step, x, 2, 1e-5).is_ok());
/// ```
pub fn parts_equal_whole(
    whole: impl FnOnce(Tensor<3>) -> Tensor<3>,
    mut step: impl FnMut(Tensor<3>) -> Tensor<3>,
    x: Tensor<3>,
    part: usize,
    tolerance: f64,
) -> Result<(), Violation> {
    let length = x.dims()[1];
    some("parts equal the whole", "tokens", length)?;
    let output = whole(x.clone());
    for start in (0..length).step_by(part) {
        let size = part.min(length - start);
        let found = step(x.clone().narrow(1, start, size));
        let expected = output.clone().narrow(1, start, size);
        compare("parts equal the whole", format!("token {start}"), expected, found, tolerance)?;
    }
    Ok(())
}

/// Padding must change nothing for the other tokens, whatever stands in its place.
///
/// `forward` maps `[B, T, X]` and the flags of the padding, `[B, T]`, true where a token is padding, to `[B, T, Y]`.
/// `sides` tokens are added before and after `x`. A model whose attention pattern counts padding, as chunks do, bears
/// none on the left.
///
/// # Errors
/// The first row whose tokens see the padding, or stand elsewhere because of it.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::invariants::padding;
/// use firelight_core::{Pass, SequenceInput, TransformerConfig};
///
/// let device = Device::flex();
/// let model = TransformerConfig::new(8, 2, 1).init(&device);
/// let forward = |x, flags| {
///     model.forward(x, &SequenceInput::default().with_padding(flags), &mut Pass::default())
/// };
/// assert!(padding(forward, Tensor::ones([2, 3, 8], &device), [2, 1], 1e-5).is_ok());
/// ```
pub fn padding(
    forward: impl Fn(Tensor<3>, Tensor<2, Bool>) -> Tensor<3>,
    x: Tensor<3>,
    sides: [usize; 2],
    tolerance: f64,
) -> Result<(), Violation> {
    let ([batch, length, width], device) = (x.dims(), x.device());
    some("padding changes nothing", "rows", batch)?;
    let flags = |length, padded: bool| Tensor::<2, Int>::full([batch, length], i64::from(padded), &device).bool();
    let alone = forward(x.clone(), flags(length, false));
    // What stands there is far off, so that a trace of it shows.
    let junk =
        sides.map(|side| (side > 0).then(|| (noise([batch, side, width], side, &device) * 10.0, flags(side, true))));
    let [before, after] = junk;
    let parts: Vec<_> = [before, Some((x, flags(length, false))), after].into_iter().flatten().collect();
    let (parts, padded): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let found = forward(Tensor::cat(parts, 1), Tensor::cat(padded, 1)).narrow(1, sides[0], length);
    for row in 0..batch {
        let [alone, found] = [&alone, &found].map(|output| output.clone().narrow(0, row, 1));
        compare("padding changes nothing", format!("row {row}"), alone, found, tolerance)?;
    }
    Ok(())
}

/// A row must come out in company as it does alone.
///
/// `forward` maps `[B, T, X]` to `[B, T, Y]`, for any `B`.
///
/// # Errors
/// The first row that the others change.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use firelight_core::invariants::batch_mates;
///
/// let x = Tensor::<3>::random([3, 4, 2], Distribution::Default, &Device::flex());
/// assert!(batch_mates(|x| x.exp(), x.clone(), 1e-5).is_ok());
/// assert!(batch_mates(|x| x.clone() - x.mean_dim(0), x, 1e-5).is_err()); // A norm over the batch.
/// ```
pub fn batch_mates(forward: impl Fn(Tensor<3>) -> Tensor<3>, x: Tensor<3>, tolerance: f64) -> Result<(), Violation> {
    let [batch, _, _] = x.dims();
    some("the rows of a batch are strangers", "rows", batch)?;
    let together = forward(x.clone());
    for row in 0..batch {
        let alone = forward(x.clone().narrow(0, row, 1));
        let found = together.clone().narrow(0, row, 1);
        compare("the rows of a batch are strangers", format!("row {row}"), alone, found, tolerance)?;
    }
    Ok(())
}

/// Attention weights, `[B, H, Q, K]`, must not be negative, and each row must sum to 1.
///
/// A query that sees no key has zeros: leave it out.
///
/// # Errors
/// The first head that has a negative weight or a row with another sum.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::invariants::rows_sum_to_one;
/// use firelight_core::{AttentionTrace, Pass, SequenceInput, TransformerConfig};
///
/// let device = Device::flex();
/// let mut trace = AttentionTrace::default();
/// let mut pass = Pass::default().with_trace(&mut trace);
/// TransformerConfig::new(8, 2, 1).init(&device).forward(Tensor::ones([1, 3, 8], &device), &SequenceInput::default(), &mut pass);
/// let weights = trace.layers[0].attention.clone().expect("the weights of the only layer");
/// assert!(rows_sum_to_one(weights, 1e-5).is_ok());
/// ```
pub fn rows_sum_to_one(weights: Tensor<4>, tolerance: f64) -> Result<(), Violation> {
    let [_, heads, _, _] = weights.dims();
    some("rows of weights sum to 1", "heads", heads)?;
    for head in 0..heads {
        let (place, weights) = (format!("head {head}"), weights.clone().narrow(1, head, 1));
        compare("weights are not negative", place.clone(), weights.clone().clamp_min(0.0), weights.clone(), 0.0)?;
        let sums = weights.sum_dim(3);
        compare("rows of weights sum to 1", place, sums.ones_like(), sums, tolerance)?;
    }
    Ok(())
}

/// Permuted tokens must give the same outputs, permuted: true of every model that does not know positions.
///
/// `forward` maps `[B, T, X]` to `[B, T, Y]`.
///
/// # Errors
/// The first of three permutations that the outputs do not follow: reversed, turned by one token, two tokens exchanged; fewer
/// than two tokens.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use firelight_core::invariants::permutation;
///
/// let x = Tensor::<3>::random([1, 4, 2], Distribution::Default, &Device::flex());
/// assert!(permutation(|x| x.clone() - x.mean_dim(1), x.clone(), 1e-5).is_ok());
/// assert!(permutation(|x| x.cumsum(1), x, 1e-5).is_err());
/// ```
pub fn permutation(forward: impl Fn(Tensor<3>) -> Tensor<3>, x: Tensor<3>, tolerance: f64) -> Result<(), Violation> {
    let length = x.dims()[1] as i64;
    some("outputs permute with inputs", "tokens after the first", x.dims()[1].saturating_sub(1))?;
    let output = forward(x.clone());
    let reversed: Vec<i64> = (0..length).rev().collect();
    let turned: Vec<i64> = (0..length).map(|t| (t + 1) % length).collect();
    let exchanged: Vec<i64> = [length - 1].into_iter().chain(1..length - 1).chain([0]).take(length as usize).collect();
    for order in [reversed, turned, exchanged] {
        let index = Tensor::<1, Int>::from_ints(order.as_slice(), &x.device());
        let found = forward(x.clone().select(1, index.clone()));
        let expected = output.clone().select(1, index);
        compare("outputs permute with inputs", format!("order {order:?}"), expected, found, tolerance)?;
    }
    Ok(())
}

/// The same tokens elsewhere in a text must give the same outputs: true of positions that enter as differences alone.
///
/// `forward` maps `[B, T, X]`, of which the first token stands at a given position, to `[B, T, Y]`.
///
/// # Errors
/// The first of the positions 1, 7 and 100 that shows.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use firelight_core::invariants::shift;
/// use firelight_core::{
///     AttentionConfig, AttentionContext, LayerPass, PositionScheme, Positions, Rotary, RotaryLayout, Sinusoidal,
/// };
///
/// let device = Device::flex();
/// let attention = AttentionConfig::new(8, 2).init(&device);
/// let positions = |x: &Tensor<3>, start| Positions::Contiguous { start, len: x.dims()[1] };
/// let turned = |x: Tensor<3>, start| {
///     let rotary = Rotary::new(4, 10_000.0, RotaryLayout::Halves);
///     let rotation = rotary.rotation(&positions(&x, start), &device);
///     attention.forward(x, &AttentionContext { rotation, ..Default::default() }, &mut LayerPass::default())
/// };
/// let x = Tensor::<3>::random([1, 4, 8], Distribution::Default, &device);
/// assert!(shift(turned, x.clone(), 1e-5).is_ok());
/// let sines = |x: Tensor<3>, start| Sinusoidal::new(8).embed(x.clone(), &positions(&x, start));
/// assert!(shift(sines, x, 1e-5).is_err());
/// ```
pub fn shift(forward: impl Fn(Tensor<3>, usize) -> Tensor<3>, x: Tensor<3>, tolerance: f64) -> Result<(), Violation> {
    let expected = forward(x.clone(), 0);
    for start in [1, 7, 100] {
        let found = forward(x.clone(), start);
        compare(
            "differences of positions count alone",
            format!("position {start}"),
            expected.clone(),
            found,
            tolerance,
        )?;
    }
    Ok(())
}

/// The gradient by autodiff must be the slope between two nearby points, in random directions.
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
#[cfg(feature = "autodiff")]
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

fn compare<const D: usize>(
    property: &'static str,
    place: String,
    expected: Tensor<D>,
    found: Tensor<D>,
    tolerance: f64,
) -> Result<(), Violation> {
    verdict(property, place, Difference::between(&found, &expected).absolute, tolerance)
}

/// A check that has nothing to compare fails.
fn some(property: &'static str, what: &str, count: usize) -> Result<(), Violation> {
    match count {
        0 => verdict(property, format!("no {what}"), f64::INFINITY, 0.0),
        _ => Ok(()),
    }
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
    use crate::position::{PositionScheme, Positions, Sinusoidal};

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
    fn padding_that_is_seen_or_counted_is_found() {
        let mask = |x: Tensor<3>, flags: Tensor<2, Bool>| x.mask_fill(flags.unsqueeze_dim::<3>(2).expand([1, 7, 2]), 0);
        let seen = |x: Tensor<3>, _: Tensor<2, Bool>| x.cumsum(1);
        let unseen = |x: Tensor<3>, flags: Tensor<2, Bool>| {
            if x.dims()[1] == 4 { x.cumsum(1) } else { mask(x, flags).cumsum(1) }
        };
        let counted = |x: Tensor<3>, _: Tensor<2, Bool>| {
            Sinusoidal::new(2).embed(x.clone(), &Positions::Contiguous { start: 0, len: x.dims()[1] })
        };
        assert_eq!(padding(unseen, x(), [1, 2], 1e-5), Ok(()));
        assert_eq!(padding(seen, x(), [0, 2], 1e-5), Ok(()));
        assert!(padding(seen, x(), [1, 0], 1e-5).is_err());
        assert_eq!(padding(counted, x(), [0, 3], 1e-5), Ok(()));
        assert!(padding(counted, x(), [3, 0], 1e-5).is_err());
    }

    #[test]
    fn weights_that_are_none_are_found() {
        let device = Device::default();
        let weights = |row: [f32; 2]| rows_sum_to_one(Tensor::from_floats([[[[0.5, 0.5], row]]], &device), 1e-5);
        assert_eq!(weights([0.25, 0.75]), Ok(()));
        assert_eq!(weights([0.25, 0.25]).expect_err("a half").property, "rows of weights sum to 1");
        assert_eq!(weights([-0.25, 1.25]).expect_err("a negative").property, "weights are not negative");
        assert!(weights([f32::NAN, 1.0]).is_err());
    }

    #[test]
    fn what_cannot_be_compared_is_a_violation() {
        let nan = |x: Tensor<3>| x * f64::NAN;
        let other_shape = |x: Tensor<3>| if x.dims()[0] == 1 { x.mean_dim(2) } else { x };
        let two = || noise([2, 4, 2], 0, &Device::default());
        let empty = |shape| Tensor::<3>::zeros(shape, &Device::default());
        let at = |result: Result<(), Violation>| result.expect_err("nothing to compare").place;
        assert_eq!(at(causality(nan, x(), 1e-5)), "token 1");
        assert_eq!(at(causality(|x| x, empty([1, 1, 2]), 1e-5)), "no tokens after the first");
        assert_eq!(at(causality(|x| x, empty([0, 4, 2]), 1e-5)), "token 1");
        assert_eq!(at(parts_equal_whole(nan, nan, x(), 2, 1e-5)), "token 0");
        assert_eq!(at(parts_equal_whole(|x| x, |x| x, empty([1, 0, 2]), 2, 1e-5)), "no tokens");
        assert_eq!(at(batch_mates(nan, two(), 1e-5)), "row 0");
        assert_eq!(at(batch_mates(other_shape, two(), 1e-5)), "row 0");
        assert_eq!(at(batch_mates(|x| x, empty([0, 4, 2]), 1e-5)), "no rows");
        assert_eq!(at(padding(|x, _| x * f64::NAN, two(), [1, 0], 1e-5)), "row 0");
        assert_eq!(at(padding(|x, _| x, empty([0, 4, 2]), [0, 0], 1e-5)), "no rows");
        assert_eq!(at(permutation(nan, x(), 1e-5)), "order [3, 2, 1, 0]");
        assert_eq!(at(permutation(|x| x, empty([1, 1, 2]), 1e-5)), "no tokens after the first");
        assert_eq!(at(shift(|x, _| x * f64::NAN, x(), 1e-5)), "position 1");
        assert_eq!(at(shift(|x, _| x, empty([1, 0, 2]), 1e-5)), "position 1");
        assert_eq!(at(rows_sum_to_one(Tensor::zeros([1, 0, 2, 2], &Device::default()), 1e-5)), "no heads");
    }

    #[test]
    #[cfg(feature = "autodiff")]
    fn a_wrong_gradient_is_found() {
        assert_eq!(gradients(|x: Tensor<3>| x.powi_scalar(3).sum(), x(), 1e-2), Ok(()));
        assert!(gradients(|x: Tensor<3>| x.clone().detach().mul(x).sum(), x(), 1e-2).is_err());
    }

    #[test]
    #[cfg(feature = "autodiff")]
    fn one_direction_without_a_slope_is_a_violation() {
        // One call for the gradient, and ten for each direction.
        let calls = std::cell::Cell::new(0);
        let sum = |x: Tensor<3>| {
            calls.set(calls.get() + 1);
            if (12..22).contains(&calls.get()) { x.sum() * f64::NAN } else { x.sum() }
        };
        let violation = gradients(sum, x(), 1e-2).expect_err("the second direction has no slope");
        assert!(violation.difference.is_nan() && violation.place == "direction 1", "{violation}");
        assert_eq!(gradients(|x: Tensor<3>| x.sum(), x(), 1e-2), Ok(()));
    }
}
