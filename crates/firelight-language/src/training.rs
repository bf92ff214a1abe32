//! The language model as Burn's `Learner` trains it: `TrainStep` and `InferenceStep` over [`LmBatch`].

use std::fmt;

use burn::module::{Devices, Module, ModuleMapper, ModuleVisitor};
use burn::tensor::Device;
use burn::train::{InferenceStep, TrainOutput, TrainStep};
use firelight_core::{AuxiliaryLosses, LossConfig, Pass, SequenceInput, TokenLoss};
use firelight_training::LossOutput;

use crate::data::LmBatch;
use crate::model::LanguageModel;

/// A language model with its loss.
#[derive(Debug, Clone)]
pub struct LmTask {
    /// The model.
    pub model: LanguageModel,
    loss: LossConfig,
}

impl LmTask {
    /// Trains `model` on next-token prediction.
    pub fn new(model: LanguageModel, loss: LossConfig) -> Self {
        Self { model, loss }
    }

    fn with_model(self, change: impl FnOnce(LanguageModel) -> LanguageModel) -> Self {
        Self { model: change(self.model), loss: self.loss }
    }

    fn charge(&self, batch: LmBatch, loss: LossConfig, pass: &mut Pass) -> TokenLoss {
        let hidden = self.model.hidden(batch.inputs, &SequenceInput::default(), pass);
        loss.forward_head(hidden, self.model.head_weight(), batch.targets, batch.padding)
    }
}

/// The plain cross-entropy, so that training and evaluation report the same quantity.
fn report(loss: TokenLoss) -> LossOutput {
    LossOutput::new(loss.cross_entropy, loss.count)
}

impl TrainStep for LmTask {
    type Input = LmBatch;
    type Output = LossOutput;

    /// What is minimised is the loss of the tokens and, with experts, their load balance; what is reported is the plain
    /// cross-entropy.
    fn step(&self, batch: LmBatch) -> TrainOutput<LossOutput> {
        let mut losses = AuxiliaryLosses::default();
        let loss = self.charge(batch, self.loss, &mut Pass::default().with_losses(&mut losses));
        let objective = match losses.load_balance() {
            Some(balance) => loss.mean() + balance * self.loss.load_balance,
            None => loss.mean(),
        };
        TrainOutput::new(self, objective.backward(), report(loss))
    }
}

impl InferenceStep for LmTask {
    type Input = LmBatch;
    type Output = LossOutput;

    /// The plain cross-entropy, whatever the training charges.
    fn step(&self, batch: LmBatch) -> LossOutput {
        report(self.charge(batch, LossConfig::default(), &mut Pass::default()))
    }
}

/// Transparent: the task's parameters are the model's, under the model's own paths, so that a trained file is a model's
/// file. A derived implementation would put the field's name before every path.
impl Module for LmTask {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.model.collect_devices(devices)
    }

    fn fork(self, device: &Device) -> Self {
        self.with_model(|model| model.fork(device))
    }

    fn to_device(self, device: &Device) -> Self {
        self.with_model(|model| model.to_device(device))
    }

    fn train(self) -> Self {
        self.with_model(LanguageModel::train)
    }

    fn valid(&self) -> Self {
        Self { model: self.model.valid(), loss: self.loss }
    }

    fn materialize(self) -> Self {
        self.with_model(LanguageModel::materialize)
    }

    fn visit<Visitor: ModuleVisitor>(&self, visitor: &mut Visitor) {
        self.model.visit(visitor);
    }

    fn map<Mapper: ModuleMapper>(self, mapper: &mut Mapper) -> Self {
        self.with_model(|model| model.map(mapper))
    }
}

impl fmt::Display for LmTask {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.model.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LanguageModelConfig;
    use burn::tensor::Tensor;

    #[test]
    fn training_reports_what_evaluation_does_whatever_it_minimises() {
        let device = Device::default().autodiff();
        let model = LanguageModelConfig::new(7, 8, 2, 1).init(&device);
        let task = LmTask::new(model, LossConfig::default().with_label_smoothing(0.3).with_z_loss(0.1));
        let batch = |device: &Device| LmBatch {
            inputs: Tensor::from_ints([[1, 2, 3]], device),
            targets: Tensor::from_ints([[2, 3, 6]], device),
            padding: None,
        };
        let trained = TrainStep::step(&task, batch(&device)).item.mean().into_scalar::<f64>();
        let evaluated = InferenceStep::step(&task.valid(), batch(&device.inner())).mean().into_scalar::<f64>();
        assert!((trained - evaluated).abs() < 1e-6, "{trained} and {evaluated}");
    }
}
