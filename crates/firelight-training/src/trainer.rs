//! One optimiser step after another: seed, forward and backward, clip, learning rate, update. It knows neither files nor
//! Burn's events; [`fit`](crate::fit()) drives it.

use std::time::Instant;

use burn::data::dataset::DatasetError;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::Device;
use burn::train::{ItemLazy, TrainOutput, TrainStep};
use firelight_kernels::awake;
use firelight_storage::InputError;

use crate::accumulate::{Accumulated, Batches};
use crate::clip::{global_norm, scale_to_norm};
use crate::culprit::culprit;
use crate::ema::Ema;
use crate::evaluate::device_of;
use crate::freeze::is_trained;
use crate::loss::read_scalars;
use crate::ranks::{Ranks, Shards};
use crate::{Exchange, LossScale, OptimizerConfig, ScheduleConfig, StepOutput, StepReport, Trainable, TrainingError};

/// The model, its optimiser and what decides about their next step: for loops of one's own. [`fit`](crate::fit()) drives one
/// through Burn's Learner, with evaluation, checkpoints and metrics around it.
pub struct Trainer<M> {
    pub(crate) model: M,
    pub(crate) optimizer: ModuleOptimizer,
    pub(crate) optimizer_config: OptimizerConfig,
    pub(crate) schedule: ScheduleConfig,
    pub(crate) seed: u64,
    /// Batches of one step, those of all ranks.
    pub(crate) accumulate: usize,
    /// The ranks that share them.
    pub(crate) ranks: Ranks,
    /// What gradients are rounded to on their way between the ranks.
    pub(crate) exchange: Exchange,
    /// Which rank updates which parameters; without it each updates all.
    pub(crate) shards: Option<Shards>,
    /// The moving average of the weights, if one is kept.
    pub(crate) ema: Option<Ema>,
    /// What the task multiplies its loss with, if anything.
    pub(crate) loss_scale: Option<LossScale>,
    /// Steps done.
    pub(crate) done: usize,
}

/// What a rank has made of the gradients of a step.
struct Update<M> {
    report: StepReport,
    /// Counted targets of all batches.
    count: f64,
    /// The model, of which parameters of other ranks are as they were; none where the step is passed over.
    model: Option<M>,
}

impl<M: Trainable> Trainer<M> {
    /// Begins at step 0 with a model whose parameters are tracked, as on a device with autodiff.
    ///
    /// # Panics
    /// With the text of [`OptimizerConfig::validate_for`].
    pub fn new(model: M, optimizer_config: OptimizerConfig, schedule: ScheduleConfig, seed: u64) -> Self {
        let optimizer = optimizer_config.init(&model);
        Self {
            model,
            optimizer,
            optimizer_config,
            schedule,
            seed,
            accumulate: 1,
            ranks: Ranks::alone(),
            exchange: Exchange::F32,
            shards: None,
            ema: None,
            loss_scale: None,
            done: 0,
        }
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
    pub fn step(&mut self, batch: <M as TrainStep>::Input) -> Result<StepReport, TrainingError> {
        self.step_since(Instant::now(), [Ok(batch)], drop)
    }

    /// Takes one step on all `batches` of this rank and of the others together. Each is loaded when its turn has come and its output is
    /// handed to `tell` at once, so that one is in memory at a time. Throughput is measured since `began`, so that it includes the loading.
    pub(crate) fn step_since(
        &mut self,
        began: Instant,
        batches: impl IntoIterator<Item = Result<<M as TrainStep>::Input, DatasetError>>,
        tell: impl FnMut(<M as TrainStep>::Output),
    ) -> Result<StepReport, TrainingError> {
        if !is_trained(&self.model) {
            return Err(no_gradient(self.done + 1).into());
        }
        let own = self.gradients(batches, tell)?;
        let gradients = self.ranks.together(&self.model, own, self.exchange)?;
        let device = self.device();
        let Update { report, count, model } = awake(&device, || self.update(began, gradients))?;
        if let Some(updated) = model {
            // Not within `awake`, which runs in rayon's pool: what a rank waits for may need that thread.
            self.model = match &self.shards {
                Some(shards) => self.ranks.all_updated(updated, shards)?,
                None => updated,
            };
            awake(&device, || self.follow(report.step));
        }
        self.done = report.step;
        let tokens_per_second = count / began.elapsed().as_secs_f64();
        Ok(StepReport { tokens_per_second, ..report })
    }

    /// Updates the parameters of this rank by the gradients of all batches of the step.
    fn update(&mut self, began: Instant, gradients: Accumulated) -> Result<Update<M>, TrainingError> {
        let step = self.done + 1;
        let (gradients, output, batches) = gradients.mean(&self.model);
        let gradients = match &self.loss_scale {
            Some(scale) => scale.unscaled(&self.model, gradients),
            None => gradients,
        };
        let norm = global_norm(&self.model, &gradients).ok_or_else(|| no_gradient(step))?;
        let minimised = output.training_total.as_ref().unwrap_or(&output.total);
        let [total, count, norm, minimised] =
            read_scalars([output.total.clone(), output.count.clone(), norm, minimised.clone()])
                .map_err(TrainingError::device("training loss"))?;
        let loss = total / count.max(1.0);
        let training_loss = output.training_total.is_some().then(|| minimised / count.max(1.0));
        self.check_finite("loss", loss, &batches, &gradients)?;
        let learning_rate = self.learning_rate();
        let tokens_per_second = count / began.elapsed().as_secs_f64();
        let report = StepReport { step, loss, training_loss, learning_rate, gradient_norm: norm, tokens_per_second };
        if !norm.is_finite() && self.loss_scale.as_ref().is_some_and(LossScale::halve) {
            // The batch is passed over, as it will be when the run is repeated; on all ranks, whose gradients are the same bytes.
            return Ok(Update { report, count, model: None });
        }
        self.check_finite("gradient norm", norm, &batches, &gradients)?;

        let gradients = scale_to_norm(&self.model, gradients, norm, self.optimizer_config.clip_norm);
        let gradients = match &self.shards {
            Some(shards) => shards.own(&self.model, gradients),
            None => gradients,
        };
        let updated = self.model.clone().optimize(&mut self.optimizer, learning_rate.into(), gradients);
        Ok(Update { report, count, model: Some(updated) })
    }

    /// Takes the average and the scale of the loss along after a step that has updated the model.
    fn follow(&mut self, step: usize) {
        if let Some(ema) = &mut self.ema {
            ema.update(&self.model, step);
        }
        if let Some(scale) = &self.loss_scale {
            scale.keep();
        }
    }

    /// The learning rate of the next step.
    pub(crate) fn learning_rate(&self) -> f64 {
        self.schedule.learning_rate(self.optimizer_config.learning_rate, self.done)
    }

    /// The gradients of all `batches` of this rank, each of whose outputs it hands to `tell`; none without a batch.
    fn gradients(
        &mut self,
        batches: impl IntoIterator<Item = Result<<M as TrainStep>::Input, DatasetError>>,
        mut tell: impl FnMut(<M as TrainStep>::Output),
    ) -> Result<Option<Accumulated>, TrainingError> {
        let (device, ranks, mut all) = (self.device(), self.ranks.clone(), None);
        let first = self.first_batch() + ranks.share(self.accumulate).before;
        for (number, batch) in (first..).zip(batches) {
            let batch = batch.map_err(TrainingError::data("training"))?;
            let _turn = ranks.turn()?;
            let (so_far, output) = awake(&device, || self.accumulated(all, number, batch));
            // Without its graph, which would keep the activations of the batch.
            tell(output.sync().map_err(|error| TrainingError::device("training loss")(error.into()))?);
            all = Some(so_far);
        }
        Ok(all)
    }

    /// The gradients so far and those of one more batch, under a seed of its own.
    fn accumulated(
        &mut self,
        so_far: Option<Accumulated>,
        number: usize,
        batch: <M as TrainStep>::Input,
    ) -> (Accumulated, <M as TrainStep>::Output) {
        self.device().seed(mix(self.seed, number as u64));
        let TrainOutput { grads, item } = TrainStep::step(&self.model, batch);
        let losses = item.losses().without_autodiff();
        let gradients = match so_far {
            Some(so_far) => so_far.add(&self.model, grads, losses),
            None => Accumulated::new(self.accumulate, grads, losses), // A share follows the order of the whole group.
        };
        (gradients, item)
    }

    /// The number of the next step's first batch, from 0 over the whole run.
    fn first_batch(&self) -> usize {
        self.done * self.accumulate
    }

    fn check_finite(
        &self,
        quantity: &'static str,
        value: f64,
        batches: &Batches,
        gradients: &GradientsParams,
    ) -> Result<(), TrainingError> {
        if value.is_finite() {
            return Ok(());
        }
        let (batches, culprit) = (batches.bad(self.first_batch() + 1), culprit(&self.model, gradients));
        Err(TrainingError::NotFinite { step: self.done + 1, batches, quantity, value, culprit })
    }

    /// Refuses a number that an evaluation found and with which a training cannot go on.
    pub(crate) fn check_validation(&self, quantity: &'static str, value: f64) -> Result<(), TrainingError> {
        if value.is_finite() {
            return Ok(());
        }
        let (batch, culprit) = (self.first_batch(), culprit(&self.model, &GradientsParams::new()));
        Err(TrainingError::NotFinite { step: self.done, batches: batch..=batch, quantity, value, culprit })
    }

    /// The model that is evaluated and kept: the moving average, or else the weights themselves.
    pub(crate) fn kept(&self) -> M {
        self.ema.as_ref().map_or_else(|| self.model.clone(), |ema| ema.of(&self.model))
    }

    /// The device of the model, with gradients.
    pub(crate) fn device(&self) -> Device {
        device_of(&self.model).autodiff()
    }
}

/// A step without a gradient.
fn no_gradient(step: usize) -> InputError {
    InputError::new(format!("step {step}: no parameter has a gradient"))
        .advise("is every parameter of the model frozen?")
}

/// The seed of one step: a bijective scramble of both numbers, so that neighbouring steps draw unrelated numbers.
///
/// Source: SplitMix64 (Steele, Lea and Flood 2014, Fast splittable pseudorandom number generators, figure 14).
pub(crate) fn mix(seed: u64, step: u64) -> u64 {
    let mut z = seed.wrapping_add(step.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::{Line, Noted, Points, alone};
    use crate::{AdamConfig, LossOutput, Precision, TrainingModule, UpdateRule};
    use std::cell::RefCell;
    use std::time::Duration;

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
        let report = trainer.step(Points::new(vec![(1.0, 1.0)], &trainer.device())).unwrap();
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
    fn a_weight_that_is_no_number_is_named_before_the_gradients_that_follow_from_it() {
        let _alone = alone();
        let mut trainer = trainer(f32::NAN);
        let error = trainer.step(Points::new(vec![(1.0, 1.0)], &trainer.device())).unwrap_err();
        let expected = "step 1, batch 1: the loss is NaN, and the weight `slope` is not finite; lower";
        assert!(error.to_string().starts_with(expected), "{error}");
    }

    #[test]
    fn a_gradient_that_overflows_is_named_while_the_loss_is_still_a_number() {
        // The derivative by the slope is 2 x (slope x - y): -2e40, more than single precision holds, where the loss is 1e20.
        let _alone = alone();
        let mut trainer = trainer(0.0);
        let batch = Points::new(vec![(1e30, 1e10)], &trainer.device());
        let error = trainer.step(batch).unwrap_err();
        let expected = "step 1, batch 1: the gradient norm is inf, and the gradient of `slope` is not finite; lower";
        assert!(error.to_string().starts_with(expected), "{error}");
        assert_eq!((trainer.done, trainer.model.slope()), (0, 0.0));
    }

    #[test]
    fn a_sum_of_squares_that_overflows_names_the_largest_gradient() {
        // The derivatives are 2 x (slope x - y) = 1e30 and 2 (slope x - y) = 1e5: both are finite, the square of the first is not.
        let _alone = alone();
        let mut trainer = trainer(0.0);
        let batch = Points::new(vec![(1e25, -5e4)], &trainer.device());
        let error = trainer.step(batch).unwrap_err();
        let expected =
            "step 1, batch 1: the gradient norm is inf, and the largest gradient is 1.0e30, of `slope`; lower";
        assert!(error.to_string().starts_with(expected), "{error}");
    }

    #[test]
    fn the_bad_one_of_several_batches_is_named_or_all_where_only_their_sum_tells() {
        let _alone = alone();
        let error = |points: [(f32, f32); 3]| {
            let mut trainer = Trainer { accumulate: 3, done: 1, ..trainer(0.0) };
            let batches = points.map(|point| Ok(Points::new(vec![point], &trainer.device())));
            trainer.step_since(Instant::now(), batches, drop).unwrap_err().to_string()
        };
        let bad = error([(1.0, 1.0), (1.0, 1.0), (1.0, f32::NAN)]);
        assert!(bad.starts_with("step 2, batch 6: the loss is NaN, and the gradient of `slope`"), "{bad}");
        let bad = error([(1.0, 1.0), (1.0, f32::INFINITY), (1.0, f32::NAN)]);
        assert!(bad.starts_with("step 2, batch 5: the loss is NaN"), "{bad}");
        let sum = error([(0.0, 1.5e19), (0.0, 1.5e19), (1.0, 1.0)]); // squares of 2.25e38, twice
        assert!(sum.starts_with("step 2, batches 4 to 6: the loss is inf"), "{sum}");
    }

    #[test]
    fn an_output_is_told_before_the_next_batch_is_loaded() {
        let _alone = alone();
        let mut trainer = Trainer { accumulate: 3, ..trainer(0.0) };
        let (seen, device) = (RefCell::new(Vec::new()), trainer.device());
        let batches = (1..=3).map(|number| {
            seen.borrow_mut().push(("loaded", number));
            Ok(Points::new(vec![(0.0, 1.0); number], &device))
        });
        let tell = |output: LossOutput| seen.borrow_mut().push(("told", output.read().unwrap().1 as usize));
        trainer.step_since(Instant::now(), batches, tell).unwrap();
        let expected = (1..=3).flat_map(|number| [("loaded", number), ("told", number)]).collect::<Vec<_>>();
        assert_eq!(seen.into_inner(), expected);
    }

    #[test]
    fn the_step_is_that_of_clipped_gradients() {
        // Both derivatives are 2 and their norm is sqrt 8, so that 0.5 / sqrt 2 is left of each; with epsilon = 1 Adam's first
        // step is r g / (g + 1), which the size of g decides.
        let _alone = alone();
        let adamw = AdamConfig { epsilon: 1.0, ..AdamConfig::adamw() };
        let optimizer = OptimizerConfig {
            learning_rate: 0.1,
            weight_decay: 0.0,
            clip_norm: 0.5,
            ..UpdateRule::AdamW(adamw).into()
        };
        let schedule = ScheduleConfig { warmup_steps: 0, ..ScheduleConfig::default() };
        let mut trainer = Trainer::new(Line::new(2.0, 0.0, &Device::default().autodiff()), optimizer, schedule, 1);
        let report = trainer.step(Points::new(vec![(1.0, 1.0)], &trainer.device())).unwrap();
        assert!((report.gradient_norm - 8_f64.sqrt()).abs() < 1e-6, "the norm is that before clipping");
        let gradient = 0.5 / 2_f64.sqrt();
        let moved = 2.0 - f64::from(trainer.model.slope());
        assert!((moved - 0.1 * gradient / (gradient + 1.0)).abs() < 1e-6, "{moved}");
    }

    #[test]
    fn what_a_loss_is_multiplied_by_is_divided_out_of_its_gradients() {
        let _alone = alone();
        let task = TrainingModule::new(Line::new(2.0, 0.0, &Device::default().autodiff()), Noted::default());
        let task = task.with_precision(Precision::F16);
        let scale = task.loss_scale();
        let trainer = Trainer::new(task, OptimizerConfig::default(), ScheduleConfig::default(), 1);
        let mut trainer = trainer.with_loss_scale(scale);
        let report = trainer.step(Points::new(vec![(1.0, 1.0)], &trainer.device())).unwrap();
        assert!((report.gradient_norm - 8_f64.sqrt()).abs() < 1e-6, "{}", report.gradient_norm);
    }

    #[test]
    fn the_average_follows_every_step_from_the_first_on() {
        let _alone = alone();
        let mut trainer = trainer(2.0);
        trainer.optimizer_config.learning_rate = 0.1;
        trainer.ema = Ema::new(0.9, &trainer.model);
        let mut expected = 2.0;
        for decay in [2.0 / 11.0, 3.0 / 12.0, 4.0 / 13.0] {
            trainer.step(Points::new(vec![(1.0, 1.0)], &trainer.device())).unwrap();
            expected = expected * decay + trainer.model.slope() * (1.0 - decay);
        }
        let found = trainer.kept().slope();
        assert!((found - expected).abs() < 1e-6 && found != trainer.model.slope(), "{found} is not {expected}");
    }

    #[test]
    fn throughput_counts_targets_from_the_moment_when_batches_were_asked_for() {
        let _alone = alone();
        let mut trainer = trainer(0.0);
        let began = Instant::now() - Duration::from_secs(10);
        let batch = Points::new(vec![(1.0, 1.0); 1000], &trainer.device());
        let report = trainer.step_since(began, [Ok(batch)], drop).unwrap();
        assert!((10.0..=100.0).contains(&report.tokens_per_second), "{}", report.tokens_per_second);
    }

    #[test]
    fn seeds_of_steps_differ() {
        // The first output of SplitMix64 for the seed 0, as its authors publish it.
        assert_eq!(mix(0, 0), 0xe220_a839_7b1d_cdaf);
        let seeds: std::collections::HashSet<u64> = (0..1000).map(|step| mix(7, step)).collect();
        assert_eq!(seeds.len(), 1000);
    }
}
