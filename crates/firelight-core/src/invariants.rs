//! Properties that every correct sequence model has, as checks over closures: run them on blocks of your own.
//!
//! Each check returns the first violation with its location and size; its random numbers are the same at every call. Outputs that
//! cannot be compared (empty, NaN or of different shapes) count as infinitely different.
//!
//! | check | holds for |
//! |---|---|
//! | [`causality`] | decoders: the future cannot change the past |
//! | [`parts_equal_whole`] | models with a cache |
//! | [`padding`], [`batch_independence`] | all models that work on batches |
//! | [`documents`] | all models that several packed documents can share a row of |
//! | [`rows_sum_to_one`] | attention weights |
//! | [`permutation`] | encoders without positions |
//! | [`shift`] | relative positions |
//! | `gradients` (feature `autodiff`) | everything that is trained |
//! | `stack` (feature `autodiff`) | a whole [`Transformer`](crate::Transformer), of own layers too: all of the above that applies, gradients of parameters, caches, recomputation |
//!
//! # Example
//!
//! A block of one's own, which forgets a part of its past with every token, and the checks that it should pass:
//!
//! ```
//! use burn::module::Module;
//! use burn::tensor::{Device, Distribution, Tensor};
//! use firelight_core::invariants::{Violation, batch_independence, causality, gradients, parts_equal_whole};
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
//! batch_independence(whole, x.clone(), 1e-5)?;
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

mod batches;
#[cfg(feature = "autodiff")]
mod gradients;
mod order;
#[cfg(feature = "autodiff")]
mod stack;
#[cfg(test)]
mod tests;
mod time;
mod weights;

use burn::tensor::{Device, Tensor, TensorData};
use firelight_kernels::Difference;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

pub use batches::{batch_independence, documents, padding};
#[cfg(feature = "autodiff")]
pub use gradients::gradients;
pub use order::permutation;
#[cfg(feature = "autodiff")]
pub use stack::stack;
pub use time::{causality, parts_equal_whole, shift};
pub use weights::rows_sum_to_one;

/// A property that does not hold.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{property}: at {location} the results differ by {difference:e}, more than {tolerance:e}")]
pub struct Violation {
    /// The property.
    pub property: &'static str,
    /// Where it fails.
    pub location: String,
    /// The largest difference found there.
    pub difference: f64,
    /// The difference allowed.
    pub tolerance: f64,
}

fn compare<const D: usize>(
    property: &'static str,
    location: String,
    expected: Tensor<D>,
    found: Tensor<D>,
    tolerance: f64,
) -> Result<(), Violation> {
    verdict(property, location, Difference::between(&found, &expected).absolute, tolerance)
}

/// A check that has nothing to compare fails.
fn some(property: &'static str, what: &str, count: usize) -> Result<(), Violation> {
    match count {
        0 => verdict(property, format!("no {what}"), f64::INFINITY, 0.0),
        _ => Ok(()),
    }
}

/// A difference that is no number is a violation, too.
fn verdict(property: &'static str, location: String, difference: f64, tolerance: f64) -> Result<(), Violation> {
    if difference <= tolerance { Ok(()) } else { Err(Violation { property, location, difference, tolerance }) }
}

/// Standard normal numbers, the same ones at every call with the same `stream`.
fn noise<const D: usize>(shape: [usize; D], stream: usize, device: &Device) -> Tensor<D> {
    let mut rng = ChaCha8Rng::seed_from_u64(stream as u64);
    let values = (0..shape.iter().product()).map(|_| StandardNormal.sample(&mut rng)).collect::<Vec<f32>>();
    Tensor::from_data(TensorData::new(values, shape), device)
}
