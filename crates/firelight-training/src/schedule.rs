//! The learning rate as a pure function of the step, so that a resumed run needs no state to continue it. The trainer
//! asks [`ScheduleConfig::learning_rate`]; [`Schedule`] offers the same to Burn's own training loop.
//!
//! Every schedule rises linearly from zero to the peak, which is `optimizer.learning_rate`, never rises again, and never
//! falls below its floor. Sources of the shapes after the warm-up, with `s` the number of the step, from 1 on:
//!
//! - cosine: half a cosine down to the floor (Loshchilov and Hutter 2017, SGDR, eq. 5, without restarts,
//!   <https://arxiv.org/abs/1608.03983>), which then stays.
//! - linear: a straight line down to the floor (Goyal et al. 2017 for the warm-up; BERT, Devlin et al. 2019, for both).
//! - noam: `sqrt(warmup / s)` (Vaswani et al. 2017, §5.3, eq. 3). Their rate `d_model^-0.5 min(s^-0.5, s warmup^-1.5)` has
//!   its peak of `(d_model warmup)^-0.5` at `s = warmup`: with that for the peak, this is their equation.
//! - inverse_sqrt: `sqrt(T / (T + s - warmup))` with a time scale `T` of its own (Zhai et al. 2022, Scaling Vision
//!   Transformers, §3.5, <https://arxiv.org/abs/2106.04560>). With `T = warmup` it is noam.
//! - wsd: the peak, then a decay to the floor over the last `decay_steps` (Hu et al. 2024, MiniCPM, §4,
//!   <https://arxiv.org/abs/2404.06395>; the shapes of the decay after Hägele et al. 2024,
//!   <https://arxiv.org/abs/2405.18392>).

use std::f64::consts::PI;

use burn::lr_scheduler::{LrScheduler, LrSchedulerRecord};
use burn::optim::LearningRate;
use serde::{Deserialize, Serialize};

use crate::config::{Problems, SettingsError};

/// Without `decay_steps`, warm-up-stable-decay decays over the last fifth of its steps.
const DECAY_SHARE: usize = 5;

/// The shape of the learning rate after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ScheduleKind {
    /// Half a cosine from the peak down to the floor.
    #[default]
    Cosine,
    /// The peak for ever.
    Constant,
    /// A straight line from the peak down to the floor.
    Linear,
    /// The inverse square root of the step, as the original Transformer.
    Noam,
    /// The inverse square root of the step, with a time scale of its own.
    InverseSqrt,
    /// Warm-up, stable, decay: the peak, and a decay at the end.
    Wsd,
}

impl ScheduleKind {
    /// Every kind there is.
    pub const ALL: [Self; 6] = [Self::Cosine, Self::Constant, Self::Linear, Self::Noam, Self::InverseSqrt, Self::Wsd];

    /// The kind as a recipe names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cosine => "cosine",
            Self::Constant => "constant",
            Self::Linear => "linear",
            Self::Noam => "noam",
            Self::InverseSqrt => "inverse_sqrt",
            Self::Wsd => "wsd",
        }
    }

    /// Whether it reaches its floor at `steps`.
    fn has_horizon(self) -> bool {
        matches!(self, Self::Cosine | Self::Linear | Self::Wsd)
    }
}

/// How warm-up-stable-decay decays: what is left of the way from the floor to the peak when the share `p` of the decay is
/// over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DecayShape {
    /// `1 - p`.
    #[default]
    Linear,
    /// `(1 + cos(π p)) / 2`.
    Cosine,
    /// `1 - sqrt(p)`.
    Sqrt,
}

impl DecayShape {
    /// The shape as a recipe names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Cosine => "cosine",
            Self::Sqrt => "sqrt",
        }
    }

    fn rest(self, p: f64) -> f64 {
        match self {
            Self::Linear => 1.0 - p,
            Self::Cosine => (1.0 + (PI * p).cos()) / 2.0,
            Self::Sqrt => 1.0 - p.sqrt(),
        }
    }
}

/// The `[schedule]` section of a recipe. The peak it scales is `optimizer.learning_rate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScheduleConfig {
    /// The shape after the warm-up: `cosine` (default), `constant`, `linear`, `noam`, `inverse_sqrt` or `wsd`.
    pub kind: ScheduleKind,
    /// Steps of linear warm-up from zero to the peak; 0 begins at the peak, which noam cannot. Default 100.
    pub warmup_steps: usize,
    /// The horizon: the step at which `cosine`, `linear` and `wsd` reach their floor, warm-up included. The others have
    /// none. Default: the last step of the training, see [`over`](Self::over); without one the peak stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<usize>,
    /// The floor, below which no kind falls. At least 0 and at most the peak, default 0.
    pub min_learning_rate: f64,
    /// The time scale of `inverse_sqrt`, in steps: the rate is halved three of them after the warm-up. Default: the warm-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timescale_steps: Option<usize>,
    /// The last steps of `wsd`, in which it decays. Default: a fifth of `steps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decay_steps: Option<usize>,
    /// How `wsd` decays: `linear` (default), `cosine` or `sqrt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decay: Option<DecayShape>,
}

impl Default for ScheduleConfig {
    fn default() -> Self {
        Self {
            kind: ScheduleKind::Cosine,
            warmup_steps: 100,
            steps: None,
            min_learning_rate: 0.0,
            timescale_steps: None,
            decay_steps: None,
            decay: None,
        }
    }
}

impl ScheduleConfig {
    /// The schedule that scales `peak`, for Burn's own training loop.
    pub fn init(&self, peak: f64) -> Schedule {
        Schedule { config: self.clone(), peak, step: 0 }
    }

    /// The schedule of a training of `steps`, which is its horizon where it names none. A training that ends within the warm-up
    /// ends below the peak.
    pub fn over(mut self, steps: usize) -> Self {
        self.steps.get_or_insert(steps.max(self.warmup_steps + 1));
        self
    }

    /// The same settings with another shape; those that the shape does not read are left out.
    pub fn with_kind(&self, kind: ScheduleKind) -> Self {
        let is = |other| kind == other;
        Self {
            kind,
            timescale_steps: self.timescale_steps.filter(|_| is(ScheduleKind::InverseSqrt)),
            decay_steps: self.decay_steps.filter(|_| is(ScheduleKind::Wsd)),
            decay: self.decay.filter(|_| is(ScheduleKind::Wsd)),
            ..*self
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// Returns one error that lists all bad fields.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let mut problems = Problems::of("schedule");
        let floor = self.min_learning_rate;
        problems.require(floor >= 0.0 && floor.is_finite(), "min_learning_rate", floor, "at least 0 and finite");
        if self.kind == ScheduleKind::Noam {
            problems.require(
                self.warmup_steps >= 1,
                "warmup_steps",
                self.warmup_steps,
                "at least 1 with kind = \"noam\"",
            );
        }
        if let (true, Some(steps)) = (self.kind.has_horizon(), self.steps) {
            let expected = format!("more than schedule.warmup_steps = {}", self.warmup_steps);
            problems.require(steps > self.warmup_steps, "steps", steps, &expected);
        }
        self.check_own_keys(&mut problems);
        problems.into_result()
    }

    /// Checks the keys that only one kind reads.
    fn check_own_keys(&self, problems: &mut Problems) {
        let mut belongs = |value: Option<String>, key: &str, kind: ScheduleKind| {
            let expected = format!("left out unless schedule.kind is `{}`", kind.name());
            problems.require(value.is_none() || self.kind == kind, key, value.unwrap_or_default(), &expected);
        };
        belongs(self.timescale_steps.map(|steps| steps.to_string()), "timescale_steps", ScheduleKind::InverseSqrt);
        belongs(self.decay_steps.map(|steps| steps.to_string()), "decay_steps", ScheduleKind::Wsd);
        belongs(self.decay.map(|shape| format!("\"{}\"", shape.name())), "decay", ScheduleKind::Wsd);
        if let (ScheduleKind::InverseSqrt, Some(steps)) = (self.kind, self.timescale_steps) {
            problems.require(steps >= 1, "timescale_steps", steps, "at least 1");
        }
        if let (ScheduleKind::Wsd, Some(steps)) = (self.kind, self.decay_steps) {
            let most = self.horizon().saturating_sub(self.warmup_steps);
            let expected = format!("from 1 to {most}, the schedule.steps after the warm-up");
            problems.require((1..=most.max(1)).contains(&steps), "decay_steps", steps, &expected);
        }
    }

    /// The learning rate of the update that follows when `done` updates are done.
    ///
    /// The warm-up is `peak (done + 1) / warmup_steps`, so the first update already moves the weights. The shapes with a
    /// horizon begin to fall with `done`, those of the inverse square root with `done + 1`, the number of the step in their
    /// papers; the last step of the warm-up has the peak in all.
    pub fn learning_rate(&self, peak: f64, done: usize) -> f64 {
        if done < self.warmup_steps {
            return peak * (done + 1) as f64 / self.warmup_steps as f64;
        }
        let floor = self.min_learning_rate;
        let way = |rest: f64| floor + (peak - floor) * rest;
        match self.kind {
            ScheduleKind::Constant => peak,
            ScheduleKind::Cosine => way((1.0 + (PI * self.progress(self.warmup_steps, done)).cos()) / 2.0),
            ScheduleKind::Linear => way(1.0 - self.progress(self.warmup_steps, done)),
            ScheduleKind::Noam => floor.max(peak * self.inverse_sqrt(self.warmup_steps, done)),
            ScheduleKind::InverseSqrt => {
                floor.max(peak * self.inverse_sqrt(self.timescale_steps.unwrap_or(self.warmup_steps), done))
            }
            ScheduleKind::Wsd => {
                let steps = self.horizon();
                let decay_steps = self.decay_steps.unwrap_or(steps / DECAY_SHARE).max(1);
                let start = steps.saturating_sub(decay_steps).max(self.warmup_steps);
                way(self.decay.unwrap_or_default().rest(self.progress(start, done)))
            }
        }
    }

    /// The step of the floor; without a number there is none, and the peak stays.
    fn horizon(&self) -> usize {
        self.steps.unwrap_or(usize::MAX)
    }

    /// The share of the way from `start` to the horizon, from 0 to 1.
    fn progress(&self, start: usize, done: usize) -> f64 {
        let length = self.horizon().saturating_sub(start).max(1);
        (done.saturating_sub(start) as f64 / length as f64).min(1.0)
    }

    /// `sqrt(T / (T + s - warmup))` for `s = done + 1`.
    fn inverse_sqrt(&self, timescale: usize, done: usize) -> f64 {
        let timescale = timescale.max(1) as f64;
        (timescale / (timescale + (done + 1 - self.warmup_steps) as f64)).sqrt()
    }
}

/// A schedule that counts its own steps, for Burn's `Learner`.
#[derive(Clone, Debug)]
pub struct Schedule {
    config: ScheduleConfig,
    peak: f64,
    step: usize,
}

impl Schedule {
    /// The same schedule after `done` updates.
    pub(crate) fn after(mut self, done: usize) -> Self {
        self.step = done;
        self
    }
}

impl LrScheduler for Schedule {
    fn step(&mut self) -> LearningRate {
        let rate = self.config.learning_rate(self.peak, self.step);
        self.step += 1;
        rate
    }

    fn to_record(&self) -> LrSchedulerRecord {
        LrSchedulerRecord::new().with_scalar("step", self.step)
    }

    fn load_record(&mut self, record: LrSchedulerRecord) {
        self.step = record.scalar("step").unwrap_or(self.step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Four steps of warm-up, eight from the peak of 1 to the floor.
    fn of(kind: ScheduleKind) -> ScheduleConfig {
        ScheduleConfig { kind, warmup_steps: 4, steps: Some(12), min_learning_rate: 0.2, ..ScheduleConfig::default() }
    }

    fn assert_rates(config: &ScheduleConfig, expected: &[(usize, f64)]) {
        for &(done, rate) in expected {
            let found = config.learning_rate(1.0, done);
            assert!((found - rate).abs() < 1e-12, "{:?}, step {done}: expected {rate}, found {found}", config.kind);
        }
    }

    #[test]
    fn warms_up_falls_to_the_floor_and_stays() {
        // A quarter of the cosine is cos(pi / 4): 0.2 + 0.8 (1 + 0.70710678) / 2.
        let quarter = 0.2 + 0.4 * (1.0 + std::f64::consts::FRAC_1_SQRT_2);
        let cosine = of(ScheduleKind::Cosine);
        assert_rates(&cosine, &[(0, 0.25), (3, 1.0), (4, 1.0), (6, quarter), (8, 0.6), (12, 0.2), (1000, 0.2)]);
        let linear = of(ScheduleKind::Linear);
        assert_rates(&linear, &[(0, 0.25), (3, 1.0), (4, 1.0), (6, 0.8), (8, 0.6), (12, 0.2), (1000, 0.2)]);
        assert_rates(&of(ScheduleKind::Constant), &[(0, 0.25), (1, 0.5), (2, 0.75), (3, 1.0), (4, 1.0), (50, 1.0)]);
        let at_once = ScheduleConfig { warmup_steps: 0, ..of(ScheduleKind::Constant) };
        assert_rates(&at_once, &[(0, 1.0), (50, 1.0)]);
    }

    #[test]
    fn warm_up_stable_decay_falls_in_its_last_steps_alone() {
        let wsd = ScheduleConfig { decay_steps: Some(4), ..of(ScheduleKind::Wsd) };
        assert_rates(&wsd, &[(0, 0.25), (4, 1.0), (8, 1.0), (9, 0.8), (10, 0.6), (12, 0.2), (99, 0.2)]);
        let cosine = ScheduleConfig { decay: Some(DecayShape::Cosine), ..wsd.clone() };
        assert_rates(&cosine, &[(8, 1.0), (10, 0.6), (12, 0.2)]);
        let sqrt = ScheduleConfig { decay: Some(DecayShape::Sqrt), ..wsd };
        assert_rates(&sqrt, &[(8, 1.0), (9, 0.6), (12, 0.2)]);
        // Without a number it is a fifth of 12, two steps.
        assert_rates(&of(ScheduleKind::Wsd), &[(10, 1.0), (11, 0.6), (12, 0.2)]);
    }

    #[test]
    fn noam_is_equation_3_of_the_paper_when_the_peak_is_its() {
        let (d_model, warmup_steps) = (512_f64, 4000);
        let noam = ScheduleConfig { kind: ScheduleKind::Noam, warmup_steps, ..ScheduleConfig::default() };
        let peak = (d_model * warmup_steps as f64).powf(-0.5);
        for step in [1, 2, 100, 3999, 4000, 4001, 5000, 100_000] {
            let s = step as f64;
            let equation = d_model.powf(-0.5) * s.powf(-0.5).min(s * (warmup_steps as f64).powf(-1.5));
            let found = noam.learning_rate(peak, step - 1);
            assert!((found / equation - 1.0).abs() < 1e-12, "step {step}: {found}, not {equation}");
        }
        // The number that the paper's base model begins to fall from.
        assert!((peak - 6.987_712e-4).abs() < 1e-10);
    }

    #[test]
    fn the_inverse_root_has_a_time_scale_of_its_own_or_that_of_the_warm_up() {
        // One step after the warm-up of 4 steps: sqrt(4 / 5). Three time scales after it: a half.
        let plain = ScheduleConfig { min_learning_rate: 0.0, ..of(ScheduleKind::InverseSqrt) };
        assert_rates(&plain, &[(3, 1.0), (4, 0.8_f64.sqrt()), (15, 0.5)]);
        let slow = ScheduleConfig { timescale_steps: Some(100), ..plain.clone() };
        assert_rates(&slow, &[(3, 1.0), (303, 0.5)]);
        let noam = plain.with_kind(ScheduleKind::Noam);
        assert!((0..100).all(|done| noam.learning_rate(3.0, done) == plain.learning_rate(3.0, done)));
        assert_rates(&of(ScheduleKind::Noam), &[(10_000, 0.2)]);
    }

    #[test]
    fn the_scheduler_of_burn_continues_from_its_record() {
        let cosine = of(ScheduleKind::Cosine);
        let mut scheduler = cosine.init(1.0);
        let mut restored = scheduler.clone();
        let first: Vec<f64> = (0..5).map(|_| scheduler.step()).collect();
        assert_eq!(first, (0..5).map(|done| cosine.learning_rate(1.0, done)).collect::<Vec<_>>());
        restored.load_record(scheduler.to_record());
        assert_eq!(restored.step(), cosine.learning_rate(1.0, 5));
    }

    #[test]
    fn a_horizon_within_the_warm_up_is_refused() {
        let config = ScheduleConfig { steps: Some(4), min_learning_rate: -1.0, ..of(ScheduleKind::Cosine) };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "schedule.min_learning_rate = -1 must be at least 0 and finite; \
             schedule.steps = 4 must be more than schedule.warmup_steps = 4"
        );
    }

    #[test]
    fn without_a_horizon_of_its_own_it_is_that_of_the_training() {
        for kind in ScheduleKind::ALL {
            let open = ScheduleConfig { steps: None, ..of(kind) };
            open.validate().unwrap();
            assert_eq!(open.clone().over(12), of(kind));
            assert_eq!(of(kind).over(99), of(kind));
            assert_eq!(open.clone().over(3).steps, Some(5), "the warm-up has four steps");
        }
        let endless = ScheduleConfig { steps: None, ..of(ScheduleKind::Linear) };
        assert_rates(&endless, &[(3, 1.0), (1000, 1.0)]);
    }

    #[test]
    fn keys_of_another_kind_and_bad_lengths_are_refused() {
        let config = ScheduleConfig { decay_steps: Some(9), timescale_steps: Some(3), ..of(ScheduleKind::Wsd) };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "schedule.timescale_steps = 3 must be left out unless schedule.kind is `inverse_sqrt`; \
             schedule.decay_steps = 9 must be from 1 to 8, the schedule.steps after the warm-up"
        );
        let config = ScheduleConfig { decay: Some(DecayShape::Sqrt), warmup_steps: 0, ..of(ScheduleKind::Noam) };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "schedule.warmup_steps = 0 must be at least 1 with kind = \"noam\"; \
             schedule.decay = \"sqrt\" must be left out unless schedule.kind is `wsd`"
        );
        config.with_kind(ScheduleKind::Linear).validate().unwrap();
    }

    #[test]
    fn every_kind_is_read_by_its_name() {
        for kind in ScheduleKind::ALL {
            let config: ScheduleConfig = toml::from_str(&format!("kind = \"{}\"", kind.name())).unwrap();
            assert_eq!(config, ScheduleConfig { kind, ..ScheduleConfig::default() });
            assert_eq!(toml::from_str::<ScheduleConfig>(&toml::to_string(&config).unwrap()).unwrap(), config);
        }
    }

    proptest! {
        #[test]
        fn never_rises_after_the_warm_up_nor_leaves_its_bounds(
            kind in prop::sample::select(&ScheduleKind::ALL[..]),
            warmup in 1_usize..50,
            length in 1_usize..500,
        ) {
            let config = ScheduleConfig { warmup_steps: warmup, steps: Some(warmup + length), ..of(kind) };
            let rates: Vec<f64> = (warmup - 1..warmup + length + 50).map(|done| config.learning_rate(1.0, done)).collect();
            prop_assert_eq!(rates[0], 1.0);
            prop_assert!(rates.windows(2).all(|pair| pair[1] <= pair[0]));
            prop_assert!(rates.iter().all(|rate| (0.2..=1.0).contains(rate)));
        }
    }
}
