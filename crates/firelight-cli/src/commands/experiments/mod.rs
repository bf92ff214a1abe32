//! Experiments: `firelight ablate`, `sweep` and `scale` train a grid of points by one recipe, and differ in what they say of the results.
//! `options.rs` is what they are asked, `training.rs` trains a point, `finished.rs` writes and prints.

mod ablate;
mod finished;
mod options;
mod scale;
mod sweep;
mod training;

pub(super) use ablate::Ablate;
pub(super) use scale::Scale;
pub(super) use sweep::Sweep;
