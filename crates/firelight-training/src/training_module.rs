//! A model with its loss, as Burn's `Learner` trains it. A task crate implements [`Objective`], which computes the loss
//! of its model on a batch; precision, recomputation, the scale of the loss and the paths of the parameters are the
//! same for all.

use std::fmt;

use burn::module::{Devices, Module, ModuleMapper, ModuleVisitor};
use burn::tensor::{Device, FloatDType, Tensor};
use burn::train::{InferenceStep, TrainOutput, TrainStep};

use crate::{LossOutput, LossScale, Precision, Recompute, ValidOutput};

/// A model that computes its loss on a batch.
pub trait Objective: Module + fmt::Display + 'static {
    /// What one pass reads.
    type Batch: Send + 'static;
    /// The settings of the loss.
    type Loss: Clone + fmt::Debug + Send + 'static;
    /// What an evaluation hands out beside the loss, from which scores are made, such as logits; `()` where the loss is all.
    type Answers: Send + 'static;

    /// What a training step minimises, and what it reports.
    fn train_loss(&self, batch: Self::Batch, loss: &Self::Loss, switches: Switches) -> TrainLoss;

    /// What an evaluation reports: the loss, the same quantity whatever the training minimises, and the answers behind it.
    fn valid_step(&self, batch: Self::Batch, switches: Switches) -> ValidOutput<Self::Answers>;
}

/// How a pass is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Switches {
    /// Whether blocks are computed again in the backward pass.
    pub recompute_blocks: bool,
    /// The type that blocks compute in; none is that of the parameters.
    pub dtype: Option<FloatDType>,
}

/// The loss of one training step.
#[derive(Clone, Debug)]
pub struct TrainLoss {
    /// What is minimised, `[1]`.
    pub minimised: Tensor<1>,
    /// What is reported.
    pub reported: LossOutput,
}

/// A model with its loss.
#[derive(Clone, Debug)]
pub struct TrainingModule<M: Objective> {
    /// The model.
    pub model: M,
    loss: M::Loss,
    recompute: Recompute,
    precision: Precision,
    loss_scale: Option<LossScale>,
}

impl<M: Objective> TrainingModule<M> {
    /// Trains `model` with the settings `loss`.
    pub fn new(model: M, loss: M::Loss) -> Self {
        Self { model, loss, recompute: Recompute::None, precision: Precision::F32, loss_scale: None }
    }

    /// Sets what a training step computes twice.
    pub fn with_recompute(mut self, recompute: Recompute) -> Self {
        self.recompute = recompute;
        self
    }

    /// Sets what passes compute in. `f16` brings a [`loss_scale`](Self::loss_scale), which the trainer needs as well.
    pub fn with_precision(mut self, precision: Precision) -> Self {
        (self.precision, self.loss_scale) = (precision, precision.loss_scale());
        self
    }

    /// What training steps multiply their loss with.
    pub fn loss_scale(&self) -> Option<LossScale> {
        self.loss_scale.clone()
    }

    fn with_model(self, change: impl FnOnce(M) -> M) -> Self {
        Self { model: change(self.model), ..self }
    }

    fn switches(&self, recompute_blocks: bool) -> Switches {
        Switches { recompute_blocks, dtype: self.precision.dtype() }
    }
}

impl<M: Objective> TrainStep for TrainingModule<M> {
    type Input = M::Batch;
    type Output = LossOutput;

    fn step(&self, batch: M::Batch) -> TrainOutput<LossOutput> {
        let switches = self.switches(self.recompute == Recompute::Blocks);
        let forward = || self.model.train_loss(batch, &self.loss, switches);
        let TrainLoss { minimised, reported } = self.precision.matmul_precision().within(forward);
        let minimised = match &self.loss_scale {
            Some(scale) => scale.scaled(minimised),
            None => minimised,
        };
        TrainOutput::new(self, minimised.backward(), reported)
    }
}

impl<M: Objective> InferenceStep for TrainingModule<M> {
    type Input = M::Batch;
    type Output = ValidOutput<M::Answers>;

    fn step(&self, batch: M::Batch) -> ValidOutput<M::Answers> {
        self.precision.matmul_precision().within(|| self.model.valid_step(batch, self.switches(false)))
    }
}

/// Transparent: the parameters are the model's, under the model's own paths, so that a trained file is a model's file. A
/// derived implementation would put the field's name before every path.
impl<M: Objective> Module for TrainingModule<M> {
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
        self.with_model(M::train)
    }

    fn valid(&self) -> Self {
        self.clone().with_model(|model| model.valid())
    }

    fn materialize(self) -> Self {
        self.with_model(M::materialize)
    }

    fn visit<Visitor: ModuleVisitor>(&self, visitor: &mut Visitor) {
        self.model.visit(visitor);
    }

    fn map<Mapper: ModuleMapper>(self, mapper: &mut Mapper) -> Self {
        self.with_model(|model| model.map(mapper))
    }
}

impl<M: Objective> fmt::Display for TrainingModule<M> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Display::fmt(&self.model, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::{Line, Noted, Points};
    use firelight_kernels::MatmulPrecision;

    #[test]
    fn what_a_pass_is_to_do_reaches_the_model() {
        let device = Device::default().autodiff();
        let noted = Noted::default();
        let task = TrainingModule::new(Line::new(1.0, 0.0, &device), noted.clone());
        for (recompute, precision) in [
            (Recompute::None, Precision::F32),
            (Recompute::Blocks, Precision::F32),
            (Recompute::None, Precision::Bf16x3),
            (Recompute::Burn, Precision::Bf16),
            (Recompute::Blocks, Precision::F16),
        ] {
            let task = task.clone().with_recompute(recompute).with_precision(precision);
            TrainStep::step(&task, Points::new(vec![(1.0, 2.0)], &device));
        }
        let switches: Vec<_> = noted.passes().into_iter().map(|(switches, _)| switches).collect();
        let (brain, half) = (Some(FloatDType::BF16), Some(FloatDType::F16));
        let expected = [(false, None), (true, None), (false, None), (false, brain), (true, half)];
        assert_eq!(switches, expected.map(|(recompute_blocks, dtype)| Switches { recompute_blocks, dtype }));
        let (plain, three) = (MatmulPrecision::F32, MatmulPrecision::Bf16x3);
        assert_eq!(noted.precisions(), [plain, plain, three, plain, plain]);
        assert_eq!(MatmulPrecision::current(), plain);
    }
}
