//! What one batch of any task hands to the trainer: the sum of its losses and over how many targets. Both `TrainStep`
//! and `InferenceStep` of a task return it, so that a mean over many batches weighs every target the same.

use burn::tensor::{Tensor, TensorReadError};
use burn::train::ItemLazy;
use burn::train::metric::{Adaptor, LossInput};
use burn_std::ExecutionError;

/// The losses of one batch.
///
/// # Shapes
/// - `total`: `[1]`, the sum of the losses in nats over the counted targets
/// - `count`: `[1]`, how many targets were counted (padding and ignored positions are not)
#[derive(Clone, Debug)]
pub struct LossOutput {
    /// The sum of the losses in nats. It carries the graph of a training step until it is synchronised.
    pub total: Tensor<1>,
    /// The number of counted targets, as a float.
    pub count: Tensor<1>,
    /// The sum of the training loss, `[1]`, where that is not the loss it reports: with label smoothing, for example.
    pub training_total: Option<Tensor<1>>,
}

impl LossOutput {
    /// The losses of a batch with `count` targets that sum up to `total`.
    pub fn new(total: Tensor<1>, count: Tensor<1>) -> Self {
        Self { total, count, training_total: None }
    }

    /// Adds the sum of the training loss, where a step minimises another loss than it reports.
    #[must_use]
    pub fn with_training_total(mut self, training_total: Option<Tensor<1>>) -> Self {
        self.training_total = training_total;
        self
    }

    /// The same numbers without a graph, which would keep the activations of the batch.
    pub(crate) fn without_autodiff(self) -> Self {
        let Self { total, count, training_total } = self;
        let training_total = training_total.map(Tensor::without_autodiff);
        Self { total: total.without_autodiff(), count: count.without_autodiff(), training_total }
    }

    /// The sums of both batches; their training loss only where both tell.
    pub(crate) fn plus(self, other: Self) -> Self {
        let training_total = self.training_total.zip(other.training_total).map(|(one, other)| one + other);
        Self { total: self.total + other.total, count: self.count + other.count, training_total }
    }

    /// The mean loss in nats per target, the quantity to differentiate: `[1]`; 0 for a batch without a counted target.
    pub fn mean(&self) -> Tensor<1> {
        self.total.clone() / self.count.clone().clamp_min(1.0)
    }

    /// Reads total and count with one wait for the device.
    ///
    /// # Errors
    /// Fails if the device could not compute them.
    pub fn read(&self) -> Result<(f64, f64), TensorReadError> {
        let [total, count] = read_scalars([self.total.clone(), self.count.clone()])?;
        Ok((total, count))
    }
}

impl ItemLazy for LossOutput {
    fn sync(self) -> Result<Self, ExecutionError> {
        self.total.device().flush()?;
        Ok(self.without_autodiff())
    }
}

impl Adaptor<LossInput> for LossOutput {
    fn adapt(&self) -> LossInput {
        LossInput::new(self.mean())
    }
}

impl Adaptor<LossOutput> for LossOutput {
    fn adapt(&self) -> LossOutput {
        self.clone()
    }
}

/// Reads several numbers of one device, each a tensor of one element, with one wait.
pub(crate) fn read_scalars<const N: usize>(scalars: [Tensor<1>; N]) -> Result<[f64; N], TensorReadError> {
    let together = Tensor::cat(scalars.into_iter().map(Tensor::without_autodiff).collect(), 0);
    let values: Vec<f64> = together.try_into_vec_as()?;
    Ok(std::array::from_fn(|i| values[i]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn a_batch_without_a_target_has_the_mean_zero() {
        let device = Device::default().autodiff();
        let total = Tensor::<1>::from_floats([0.0], &device).require_grad();
        let mean = LossOutput::new(total.clone(), Tensor::zeros([1], &device)).mean();
        assert_eq!(mean.clone().try_into_scalar::<f64>().unwrap(), 0.0);
        let gradient = total.grad(&mean.backward()).unwrap();
        assert_eq!(gradient.try_into_scalar::<f64>().unwrap(), 1.0);
    }

    #[test]
    fn training_losses_add_up_where_both_batches_tell() {
        let device = Device::default();
        let number = |number: f32| Tensor::<1>::from_floats([number], &device);
        let output =
            |training: Option<f32>| LossOutput::new(number(1.0), number(2.0)).with_training_total(training.map(number));
        let sum = |one, other| output(one).plus(output(other));
        assert_eq!(sum(Some(0.5), Some(0.25)).training_total.map(|total| total.into_scalar::<f64>()), Some(0.75));
        assert!(sum(Some(0.5), None).training_total.is_none() && sum(None, Some(0.5)).training_total.is_none());
        assert_eq!(sum(None, None).read().unwrap(), (2.0, 4.0));
    }

    #[test]
    fn the_mean_is_the_total_over_the_count() {
        let device = Device::default().autodiff();
        let output = LossOutput::new(Tensor::from_floats([6.0], &device), Tensor::from_floats([4.0], &device));
        assert_eq!(output.read().unwrap(), (6.0, 4.0));
        assert_eq!(output.mean().try_into_scalar::<f64>().unwrap(), 1.5);
        assert!(!output.sync().unwrap().total.device().is_autodiff());
    }
}
