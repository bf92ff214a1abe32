//! What the steps of a model hand to the trainer: their losses, and what scores are made from.

use burn::tensor::Tensor;
use burn::train::metric::{Adaptor, LossInput};
use burn::train::{ClassificationOutput, ItemLazy, MultiLabelClassificationOutput, RegressionOutput, SequenceOutput};
use burn_std::ExecutionError;

use crate::LossOutput;

/// The output of a training step or of an evaluation step. [`LossOutput`] is one, and so are the outputs of Burn's own learners, whose
/// loss is the mean over their targets.
pub trait StepOutput: ItemLazy + 'static {
    /// The losses of the batch.
    fn losses(&self) -> LossOutput;
}

impl StepOutput for LossOutput {
    fn losses(&self) -> LossOutput {
        self.clone()
    }
}

impl StepOutput for ClassificationOutput {
    fn losses(&self) -> LossOutput {
        of_mean(&self.loss, self.targets.dims()[0])
    }
}

impl StepOutput for MultiLabelClassificationOutput {
    fn losses(&self) -> LossOutput {
        of_mean(&self.loss, self.targets.dims()[0])
    }
}

impl StepOutput for RegressionOutput {
    fn losses(&self) -> LossOutput {
        of_mean(&self.loss, self.targets.dims()[0])
    }
}

impl StepOutput for SequenceOutput {
    /// Padding counts as a target, which the output does not tell from one.
    fn losses(&self) -> LossOutput {
        of_mean(&self.loss, self.targets.shape().num_elements())
    }
}

fn of_mean(mean: &Tensor<1>, targets: usize) -> LossOutput {
    let count = Tensor::full([1], targets as f64, (&mean.device().inner(), mean.dtype()));
    LossOutput::new(mean.clone().reshape([1]).without_autodiff() * targets as f64, count)
}

/// The output of an evaluation step of an [`Objective`](crate::Objective).
#[derive(Clone, Debug)]
pub struct ValidOutput<A> {
    /// The losses of the batch.
    pub losses: LossOutput,
    /// What an [`Evaluator`](crate::Evaluator) makes scores from, such as logits.
    pub answers: A,
}

impl<A> ValidOutput<A> {
    /// The losses of a batch and what a model has answered.
    pub fn new(losses: LossOutput, answers: A) -> Self {
        Self { losses, answers }
    }
}

impl From<LossOutput> for ValidOutput<()> {
    fn from(losses: LossOutput) -> Self {
        Self::new(losses, ())
    }
}

impl<A: Send + 'static> StepOutput for ValidOutput<A> {
    fn losses(&self) -> LossOutput {
        self.losses.clone()
    }
}

impl<A: Send> ItemLazy for ValidOutput<A> {
    fn sync(self) -> Result<Self, ExecutionError> {
        Ok(Self { losses: self.losses.sync()?, ..self })
    }
}

impl<A> Adaptor<LossInput> for ValidOutput<A> {
    fn adapt(&self) -> LossInput {
        self.losses.adapt()
    }
}

impl<A> Adaptor<LossOutput> for ValidOutput<A> {
    fn adapt(&self) -> LossOutput {
        self.losses.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn a_mean_of_burns_outputs_is_a_sum_over_their_targets() {
        let device = Device::default();
        let (mean, scores) = (|| Tensor::<1>::from_floats([0.5], &device), Tensor::<2>::zeros([4, 3], &device));
        let sums = |output: &dyn Fn() -> LossOutput| output().read().unwrap();
        let class = ClassificationOutput::new(mean(), scores.clone(), Tensor::zeros([4], &device));
        assert_eq!(sums(&|| class.losses()), (2.0, 4.0));
        let classes = MultiLabelClassificationOutput::new(mean(), scores.clone(), Tensor::zeros([4, 3], &device));
        assert_eq!(sums(&|| classes.losses()), (2.0, 4.0));
        let numbers = RegressionOutput::new(mean(), scores.clone(), scores);
        assert_eq!(sums(&|| numbers.losses()), (2.0, 4.0));
        let logits = Tensor::<3>::zeros([2, 5, 3], &device);
        let tokens = SequenceOutput::new(mean(), logits, None, Tensor::zeros([2, 5], &device));
        assert_eq!(sums(&|| tokens.losses()), (5.0, 10.0));
    }
}
