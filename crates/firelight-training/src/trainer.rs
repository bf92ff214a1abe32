//! One optimiser step after another: seed, forward and backward, clip, learning rate, update. It knows neither files nor
//! Burn's events; [`fit`](crate::fit()) drives it.

use std::time::Instant;

use burn::optim::ModuleOptimizer;
use burn::tensor::Device;
use burn::train::{TrainOutput, TrainStep};
use firelight_kernels::awake;

use crate::clip::{global_norm, scale_to_norm};
use crate::evaluate::device_of;
use crate::loss::read_scalars;
use crate::{LossOutput, OptimizerConfig, ScheduleConfig, StepReport, Trainable, TrainingError};

/// The model, its optimiser and what decides about their next step: for loops of one's own. [`fit`](crate::fit()) drives one
/// through Burn's Learner, with evaluation, checkpoints and metrics around it.
pub struct Trainer<M> {
    pub(crate) model: M,
    pub(crate) optimizer: ModuleOptimizer,
    pub(crate) optimizer_config: OptimizerConfig,
    pub(crate) schedule: ScheduleConfig,
    pub(crate) seed: u64,
    /// Steps done.
    pub(crate) done: usize,
}

impl<M: Trainable> Trainer<M> {
    /// Begins at step 0 with a model whose parameters are tracked, as on a device with autodiff.
    pub fn new(model: M, optimizer_config: OptimizerConfig, schedule: ScheduleConfig, seed: u64) -> Self {
        let optimizer = optimizer_config.init(&model);
        Self { model, optimizer, optimizer_config, schedule, seed, done: 0 }
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
        self.step_since(Instant::now(), batch)
    }

    /// Takes one step on `batch`. Throughput is measured since `began`, so that it includes the loading of the batch.
    pub(crate) fn step_since(
        &mut self,
        began: Instant,
        batch: <M as TrainStep>::Input,
    ) -> Result<(LossOutput, StepReport), TrainingError> {
        let device = self.device();
        awake(&device, || self.take(began, batch))
    }

    fn take(
        &mut self,
        began: Instant,
        batch: <M as TrainStep>::Input,
    ) -> Result<(LossOutput, StepReport), TrainingError> {
        let step = self.done + 1;
        self.device().seed(mix(self.seed, self.done as u64));
        let TrainOutput { grads, item } = TrainStep::step(&self.model, batch);
        let norm = global_norm(&self.model, &grads).ok_or(TrainingError::NoGradient { step })?;
        let [total, count, norm] = read_scalars([item.total.clone(), item.count.clone(), norm])
            .map_err(TrainingError::device("training loss"))?;
        let loss = total / count.max(1.0);
        check_finite(step, "loss", loss)?;
        check_finite(step, "gradient norm", norm)?;

        let grads = scale_to_norm(&self.model, grads, norm, self.optimizer_config.clip_norm);
        let learning_rate = self.schedule.learning_rate(self.optimizer_config.learning_rate, self.done);
        self.model = self.model.clone().optimize(&mut self.optimizer, learning_rate.into(), grads);
        self.done = step;
        let tokens_per_second = count / began.elapsed().as_secs_f64();
        Ok((item, StepReport { step, loss, learning_rate, gradient_norm: norm, tokens_per_second }))
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

/// Refuses a loss or norm with which a training cannot go on.
pub(crate) fn check_finite(step: usize, quantity: &'static str, value: f64) -> Result<(), TrainingError> {
    if value.is_finite() { Ok(()) } else { Err(TrainingError::NotFinite { step, quantity, value }) }
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
        assert!(error.to_string().starts_with("step 1: the loss is NaN; lower"), "{error}");
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
