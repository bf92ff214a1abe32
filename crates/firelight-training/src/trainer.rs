//! One optimiser step after another: seed, forward and backward, clip, learning rate, update. It knows neither files nor
//! Burn's events; [`fit`](crate::fit()) drives it.

use std::time::Instant;

use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::Device;
use burn::train::{Learner, TrainOutput, TrainStep};
use firelight_kernels::awake;

use crate::accumulate::Accumulated;
use crate::clip::{global_norm, scale_to_norm};
use crate::culprit::culprit;
use crate::evaluate::device_of;
use crate::loss::read_scalars;
use crate::smoothed::Smoothed;
use crate::{LossOutput, LossScale, OptimizerConfig, ScheduleConfig, StepReport, Trainable, TrainingError};

/// The model, its optimiser and what decides about their next step: for loops of one's own. [`fit`](crate::fit()) drives one
/// through Burn's Learner, with evaluation, checkpoints and metrics around it.
pub struct Trainer<M> {
    pub(crate) model: M,
    pub(crate) optimizer: ModuleOptimizer,
    pub(crate) optimizer_config: OptimizerConfig,
    pub(crate) schedule: ScheduleConfig,
    pub(crate) seed: u64,
    /// Batches of one step.
    pub(crate) accumulate: usize,
    /// The moving average of the weights, if one is kept.
    pub(crate) smoothed: Option<Smoothed>,
    /// What the task multiplies its loss with, if anything.
    pub(crate) loss_scale: Option<LossScale>,
    /// Steps done.
    pub(crate) done: usize,
}

impl<M: Trainable> Trainer<M> {
    /// Begins at step 0 with a model whose parameters are tracked, as on a device with autodiff.
    ///
    /// # Panics
    /// With the text of [`OptimizerConfig::validate_for`].
    pub fn new(model: M, optimizer_config: OptimizerConfig, schedule: ScheduleConfig, seed: u64) -> Self {
        let optimizer = optimizer_config.init(&model);
        let (smoothed, loss_scale) = (None, None);
        Self { model, optimizer, optimizer_config, schedule, seed, accumulate: 1, smoothed, loss_scale, done: 0 }
    }

    /// Divides gradients by the scale that the task multiplies its loss with, and adapts it.
    #[must_use]
    pub fn with_loss_scale(mut self, loss_scale: Option<LossScale>) -> Self {
        self.loss_scale = loss_scale;
        self
    }

    /// The model as it is now.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// Takes one step on `batch`. The model is left as it was if that fails.
    ///
    /// # Errors
    /// If the loss or the norm of the gradients is no finite number, or the device fails.
    pub fn step(&mut self, batch: <M as TrainStep>::Input) -> Result<(LossOutput, StepReport), TrainingError> {
        self.step_since(Instant::now(), vec![batch])
    }

    /// Takes one step on all `batches` together. Throughput is measured since `began`, so that it includes the loading.
    pub(crate) fn step_since(
        &mut self,
        began: Instant,
        batches: Vec<<M as TrainStep>::Input>,
    ) -> Result<(LossOutput, StepReport), TrainingError> {
        let device = self.device();
        awake(&device, || self.take(began, batches))
    }

    fn take(
        &mut self,
        began: Instant,
        batches: Vec<<M as TrainStep>::Input>,
    ) -> Result<(LossOutput, StepReport), TrainingError> {
        let step = self.done + 1;
        let (gradients, output) = self.gradients(batches).mean(&self.model);
        let gradients = match &self.loss_scale {
            Some(scale) => scale.unscaled(&self.model, gradients),
            None => gradients,
        };
        let norm = global_norm(&self.model, &gradients).ok_or(TrainingError::NoGradient { step })?;
        let charged = output.charged.as_ref().unwrap_or(&output.total);
        let [total, count, norm, charged] =
            read_scalars([output.total.clone(), output.count.clone(), norm, charged.clone()])
                .map_err(TrainingError::device("training loss"))?;
        let loss = total / count.max(1.0);
        let charged_loss = output.charged.is_some().then(|| charged / count.max(1.0));
        self.check_finite("loss", loss, &gradients)?;
        let learning_rate = self.schedule.learning_rate(self.optimizer_config.learning_rate, self.done);
        let tokens_per_second = count / began.elapsed().as_secs_f64();
        let report = StepReport { step, loss, charged_loss, learning_rate, gradient_norm: norm, tokens_per_second };
        if !norm.is_finite() && self.loss_scale.as_ref().is_some_and(LossScale::halve) {
            self.done = step; // The batch is passed over, as it will be when the run is repeated.
            return Ok((output, report));
        }
        self.check_finite("gradient norm", norm, &gradients)?;

        let gradients = scale_to_norm(&self.model, gradients, norm, self.optimizer_config.clip_norm);
        self.model = self.model.clone().optimize(&mut self.optimizer, learning_rate.into(), gradients);
        self.done = step;
        if let Some(smoothed) = &mut self.smoothed {
            smoothed.update(&self.model, step);
        }
        if let Some(scale) = &self.loss_scale {
            scale.keep();
        }
        let tokens_per_second = count / began.elapsed().as_secs_f64();
        Ok((output, StepReport { tokens_per_second, ..report }))
    }

    /// The gradients of all `batches`, each under a seed of its own.
    fn gradients(&self, batches: Vec<<M as TrainStep>::Input>) -> Accumulated {
        let first = self.first_batch();
        let mut all: Option<Accumulated> = None;
        for (batch, input) in (first..).zip(batches) {
            self.device().seed(mix(self.seed, batch as u64));
            let TrainOutput { grads, item } = TrainStep::step(&self.model, input);
            let item = item.without_autodiff();
            all = Some(match all {
                Some(all) => all.add(&self.model, grads, item),
                None => Accumulated::new(grads, item),
            });
        }
        all.unwrap_or_else(|| unreachable!("a step has at least one batch"))
    }

    /// The number of the next step's first batch, from 0 over the whole run.
    fn first_batch(&self) -> usize {
        self.done * self.accumulate
    }

    fn check_finite(
        &self,
        quantity: &'static str,
        value: f64,
        gradients: &GradientsParams,
    ) -> Result<(), TrainingError> {
        if value.is_finite() {
            return Ok(());
        }
        let culprit = culprit(&self.model, gradients);
        Err(TrainingError::NotFinite { step: self.done + 1, batch: self.first_batch() + 1, quantity, value, culprit })
    }

    /// Refuses a number that an evaluation found and with which a training cannot go on.
    pub(crate) fn check_validation(&self, quantity: &'static str, value: f64) -> Result<(), TrainingError> {
        if value.is_finite() {
            return Ok(());
        }
        let culprit = culprit(&self.model, &GradientsParams::new());
        Err(TrainingError::NotFinite { step: self.done, batch: self.first_batch(), quantity, value, culprit })
    }

    /// The model that is evaluated and kept: the moving average, or else the weights themselves.
    pub(crate) fn kept(&self) -> M {
        self.smoothed.as_ref().map_or_else(|| self.model.clone(), |smoothed| smoothed.of(&self.model))
    }

    /// A learner of Burn's that stands where this trainer stands.
    pub(crate) fn learner(&self) -> Learner<M> {
        let schedule = self.schedule.init(self.optimizer_config.learning_rate).after(self.done);
        Learner::new(self.model.clone(), self.optimizer.clone(), schedule)
    }

    /// The device of the model, with gradients.
    pub(crate) fn device(&self) -> Device {
        device_of(&self.model).autodiff()
    }
}

/// The seed of one step: a bijective scramble of both numbers, so that neighbouring steps draw unrelated numbers.
///
/// Source: SplitMix64 (Steele, Lea and Flood 2014, Fast splittable pseudorandom number generators, figure 14).
fn mix(seed: u64, step: u64) -> u64 {
    let mut z = seed.wrapping_add(step.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::{Line, Points, alone};

    fn trainer(slope: f32) -> Trainer<Line> {
        let model = Line::new(slope, 0.0, &Device::default().autodiff());
        let optimizer = OptimizerConfig { weight_decay: 0.0, ..OptimizerConfig::default() };
        let schedule = ScheduleConfig { warmup_steps: 10, ..ScheduleConfig::default() };
        Trainer::new(model, optimizer, schedule, 1)
    }

    #[test]
    fn a_step_reports_what_the_numbers_say() {
        // The line 2 x answers 2 at x = 1 where 1 is right: the loss is 1 and both derivatives are 2.
        let _alone = alone();
        let mut trainer = trainer(2.0);
        let (_, report) = trainer.step(Points::new(vec![(1.0, 1.0)], &trainer.device())).unwrap();
        assert_eq!((report.step, report.loss, report.learning_rate), (1, 1.0, 1e-4));
        assert!((report.gradient_norm - 8_f64.sqrt()).abs() < 1e-6);
        assert!(
            (f64::from(trainer.model.slope()) - (2.0 - 1e-4)).abs() < 1e-6,
            "Adam's first step is the learning rate"
        );
    }

    #[test]
    fn leaving_the_numbers_stops_before_the_update() {
        let _alone = alone();
        let mut trainer = trainer(2.0);
        let batch = Points::new(vec![(1.0, f32::NAN)], &trainer.device());
        let error = trainer.step(batch).unwrap_err();
        let expected = "step 1, batch 1: the loss is NaN, and the gradient of `slope` is not finite; lower";
        assert!(error.to_string().starts_with(expected), "{error}");
        assert_eq!((trainer.done, trainer.model.slope()), (0, 2.0));
    }

    #[test]
    fn seeds_of_steps_differ() {
        // The first output of SplitMix64 for the seed 0, as its authors publish it.
        assert_eq!(mix(0, 0), 0xe220_a839_7b1d_cdaf);
        let seeds: std::collections::HashSet<u64> = (0..1000).map(|step| mix(7, step)).collect();
        assert_eq!(seeds.len(), 1000);
    }
}
