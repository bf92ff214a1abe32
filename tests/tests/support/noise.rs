//! Random inputs, drawn on the host: one seed gives one input on every backend, in every run.

use burn::tensor::{Tensor, TensorData};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal};

use super::device;

/// A stream of standard normal numbers.
pub(crate) struct Noise(ChaCha8Rng);

impl Noise {
    /// Every test has a seed of its own.
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// The next numbers of the stream.
    pub(crate) fn numbers(&mut self, count: usize) -> Vec<f32> {
        StandardNormal.sample_iter(&mut self.0).take(count).collect()
    }

    /// The next numbers of the stream, on the device under test.
    pub(crate) fn tensor(&mut self, shape: [usize; 3]) -> Tensor<3> {
        Tensor::from_data(TensorData::new(self.numbers(shape.iter().product()), shape), &device())
    }
}
