//! The learning rate as a pure function of the step, so that a resumed run needs no state to continue it. The trainer
//! asks [`ScheduleConfig::learning_rate`]; [`Schedule`] offers the same to Burn's own training loop.
//!
//! Source: linear warm-up, then half a cosine down to a floor (Loshchilov and Hutter 2017, SGDR, eq. 5,
//! <https://arxiv.org/abs/1608.03983>, without restarts). After the horizon the floor stays.

use std::f64::consts::PI;

use burn::lr_scheduler::{LrScheduler, LrSchedulerRecord};
use burn::optim::LearningRate;
use serde::{Deserialize, Serialize};

use crate::config::{Problems, SettingsError};

/// The shape of the learning rate after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ScheduleKind {
    /// Half a cosine from the peak down to the floor.
    #[default]
    Cosine,
    /// The peak for ever.
    Constant,
}

/// The `[schedule]` section of a recipe. The peak it scales is `optimizer.learning_rate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScheduleConfig {
    /// The shape after the warm-up: `cosine` (default) or `constant`.
    pub kind: ScheduleKind,
    /// Steps of linear warm-up from zero to the peak; 0 begins at the peak. Default 100.
    pub warmup_steps: usize,
    /// The horizon: the step at which the cosine reaches its floor, warm-up included. Default 2000.
    pub steps: usize,
    /// The floor of the cosine. At least 0 and at most the peak, default 0.
    pub min_learning_rate: f64,
}

impl Default for ScheduleConfig {
    fn default() -> Self {
        Self { kind: ScheduleKind::Cosine, warmup_steps: 100, steps: 2000, min_learning_rate: 0.0 }
    }
}

impl ScheduleConfig {
    /// The schedule that scales `peak`, for Burn's own training loop.
    pub fn init(&self, peak: f64) -> Schedule {
        Schedule { config: self.clone(), peak, step: 0 }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// Returns one error that lists all bad fields.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let mut problems = Problems::of("schedule");
        let floor = self.min_learning_rate;
        problems.require(floor >= 0.0 && floor.is_finite(), "min_learning_rate", floor, "at least 0 and finite");
        if self.kind == ScheduleKind::Cosine {
            let holds = self.steps > self.warmup_steps;
            let expected = format!("more than schedule.warmup_steps = {}", self.warmup_steps);
            problems.require(holds, "steps", self.steps, &expected);
        }
        problems.into_result()
    }

    /// The learning rate of the update that follows when `done` updates are done.
    ///
    /// The warm-up is `peak (done + 1) / warmup_steps`, so the first update already moves the weights. With
    /// `p = (done - warmup_steps) / (steps - warmup_steps)`, the cosine is
    /// `floor + (peak - floor) (1 + cos(pi p)) / 2` for `p < 1` and the floor from there on.
    pub fn learning_rate(&self, peak: f64, done: usize) -> f64 {
        if done < self.warmup_steps {
            return peak * (done + 1) as f64 / self.warmup_steps as f64;
        }
        match self.kind {
            ScheduleKind::Constant => peak,
            ScheduleKind::Cosine => {
                let horizon = self.steps.saturating_sub(self.warmup_steps).max(1);
                let progress = ((done - self.warmup_steps) as f64 / horizon as f64).min(1.0);
                self.min_learning_rate + (peak - self.min_learning_rate) * (1.0 + (PI * progress).cos()) / 2.0
            }
        }
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

    const COSINE: ScheduleConfig =
        ScheduleConfig { kind: ScheduleKind::Cosine, warmup_steps: 4, steps: 12, min_learning_rate: 0.2 };

    fn assert_rates(config: &ScheduleConfig, expected: &[(usize, f64)]) {
        for &(done, rate) in expected {
            let found = config.learning_rate(1.0, done);
            assert!((found - rate).abs() < 1e-12, "step {done}: expected {rate}, found {found}");
        }
    }

    #[test]
    fn warms_up_falls_to_the_floor_and_stays() {
        // A quarter of the cosine is cos(pi / 4): 0.2 + 0.8 (1 + 0.70710678) / 2.
        let quarter = 0.2 + 0.4 * (1.0 + std::f64::consts::FRAC_1_SQRT_2);
        assert_rates(&COSINE, &[(0, 0.25), (3, 1.0), (4, 1.0), (6, quarter), (8, 0.6), (12, 0.2), (1000, 0.2)]);
        let constant = ScheduleConfig { kind: ScheduleKind::Constant, warmup_steps: 0, ..COSINE };
        assert_rates(&constant, &[(0, 1.0), (50, 1.0)]);
    }

    #[test]
    fn the_scheduler_of_burn_continues_from_its_record() {
        let mut scheduler = COSINE.init(1.0);
        let mut restored = scheduler.clone();
        let first: Vec<f64> = (0..5).map(|_| scheduler.step()).collect();
        assert_eq!(first, (0..5).map(|done| COSINE.learning_rate(1.0, done)).collect::<Vec<_>>());
        restored.load_record(scheduler.to_record());
        assert_eq!(restored.step(), COSINE.learning_rate(1.0, 5));
    }

    #[test]
    fn a_horizon_within_the_warm_up_is_refused() {
        let config = ScheduleConfig { steps: 4, min_learning_rate: -1.0, ..COSINE };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "schedule.min_learning_rate = -1 must be at least 0 and finite; \
             schedule.steps = 4 must be more than schedule.warmup_steps = 4"
        );
    }

    proptest! {
        #[test]
        fn never_rises_after_the_warm_up_nor_leaves_its_bounds(warmup in 0_usize..50, length in 1_usize..500) {
            let config = ScheduleConfig { warmup_steps: warmup, steps: warmup + length, ..COSINE };
            let rates: Vec<f64> = (warmup..warmup + length + 50).map(|done| config.learning_rate(1.0, done)).collect();
            prop_assert!(rates.windows(2).all(|pair| pair[1] <= pair[0]));
            prop_assert!(rates.iter().all(|rate| (0.2..=1.0).contains(rate)));
        }
    }
}
