//! The language model as Burn's `Learner` trains it: `TrainStep` and `InferenceStep` over [`LmBatch`].

use std::fmt;

use burn::module::{Devices, Module, ModuleMapper, ModuleVisitor};
use burn::tensor::Device;
use burn::train::{InferenceStep, TrainOutput, TrainStep};
use firelight_core::{AuxiliaryLosses, LossConfig, Pass, SequenceInput};
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

    fn charge(&self, batch: LmBatch, loss: LossConfig, pass: &mut Pass) -> LossOutput {
        let logits = self.model.logits(self.model.hidden(batch.inputs, &SequenceInput::default(), pass));
        let loss = loss.forward(logits, batch.targets, batch.padding);
        LossOutput::new(loss.total, loss.count)
    }
}

impl TrainStep for LmTask {
    type Input = LmBatch;
    type Output = LossOutput;

    /// What is minimised is the loss of the tokens and, with experts, their load balance; what is reported is the former.
    fn step(&self, batch: LmBatch) -> TrainOutput<LossOutput> {
        let mut losses = AuxiliaryLosses::default();
        let output = self.charge(batch, self.loss, &mut Pass::default().with_losses(&mut losses));
        let objective = match losses.load_balance() {
            Some(balance) => output.mean() + balance * self.loss.load_balance,
            None => output.mean(),
        };
        TrainOutput::new(self, objective.backward(), output)
    }
}

impl InferenceStep for LmTask {
    type Input = LmBatch;
    type Output = LossOutput;

    /// The loss without smoothing, whatever the training charges.
    fn step(&self, batch: LmBatch) -> LossOutput {
        self.charge(batch, LossConfig::default(), &mut Pass::default())
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
