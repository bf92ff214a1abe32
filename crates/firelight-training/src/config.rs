//! How long a run lasts and what it does on the way, and the error that every settings struct of this crate reports.
//! Recipes hold these settings as `[training]`; [`fit`](crate::fit()) reads them.

use burn::tensor::Device;
use serde::{Deserialize, Serialize};

use crate::{Exchange, Precision, Recompute, TrainingError};

/// The name of the validation loss among the metrics.
pub(crate) const LOSS: &str = "loss";

/// No run takes more steps: the numbers of its items must not overflow.
const MAX_STEPS: usize = 1_000_000_000_000;

/// No batch holds more items: the loader reserves memory for all of them at once.
const MAX_BATCH_SIZE: usize = 1_000_000;

/// No group of batches is larger: one optimiser step reads all of them.
const MAX_ACCUMULATION: usize = 1_000_000;

/// The `[training]` section of a recipe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingConfig {
    /// Optimiser steps of the run. From 0, which writes the initial weights, to 10^12, default 2000. The learning rate depends on
    /// it where `schedule.steps` is left out.
    pub steps: usize,
    /// Times that the run sees every item of its data, in the place of `steps`; 0, the default, goes by `steps`.
    pub epochs: usize,
    /// Items in one batch. From 1 to 1,000,000, default 12.
    pub batch_size: usize,
    /// Batches whose gradients make one optimiser step: the step is that of one batch with all their items. From 1, the
    /// default, to 1,000,000.
    pub gradient_accumulation_steps: usize,
    /// Steps from one evaluation to the next; 0 evaluates only after the last step. Default 250.
    pub evaluate_every: usize,
    /// Steps from one checkpoint to the next; 0 writes only the one after the last step. Default 500.
    pub checkpoint_every: usize,
    /// Resumable checkpoints that are kept, the newest ones; 0 keeps all. Default 2.
    pub keep_checkpoints: usize,
    /// What decides which evaluation is the best: `loss`, the default, or the name of a metric of the task.
    pub monitor: String,
    /// Evaluations in a row without a better one after which the run ends; 0, the default, never ends it early.
    pub patience: usize,
    /// Decay of the exponential moving average of the weights, which is evaluated and kept in their place; 0, the default,
    /// keeps none. From 0 to below 1.
    pub ema_decay: f64,
    /// What of the forward pass is dropped and computed again in the backward pass, to save memory: `none`, the default,
    /// `blocks` or `burn`.
    pub recompute: Recompute,
    /// What passes compute in: `f32`, the default, `bf16` or `f16`. Parameters and the optimiser's state are `f32` in any
    /// case.
    pub precision: Precision,
    /// Whether each of several ranks keeps the optimiser's state of its share of the parameters alone (ZeRO stage 1). It changes no
    /// number, and nothing where there is one rank. Default: false.
    pub shard_optimizer: bool,
    /// What gradients are rounded to on their way between several ranks: `f32`, the default, or `bf16`.
    pub exchange: Exchange,
    /// Parameters that stay as they are, by their paths or those of modules: `["embedding", "*.blocks.0"]`. A `!` in front
    /// names what is trained after all; the last one that fits counts. Default: none.
    pub freeze: Vec<String>,
}

impl Default for TrainingConfig {
    fn default() -> Self {
        Self {
            steps: 2000,
            epochs: 0,
            batch_size: 12,
            gradient_accumulation_steps: 1,
            evaluate_every: 250,
            checkpoint_every: 500,
            keep_checkpoints: 2,
            monitor: LOSS.into(),
            patience: 0,
            ema_decay: 0.0,
            recompute: Recompute::None,
            precision: Precision::F32,
            shard_optimizer: false,
            exchange: Exchange::F32,
            freeze: Vec::new(),
        }
    }
}

impl TrainingConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// Returns one error that lists all bad fields.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let mut problems = Problems::of("training");
        for (key, value, least, most) in [
            ("steps", self.steps, 0, MAX_STEPS),
            ("batch_size", self.batch_size, 1, MAX_BATCH_SIZE),
            ("gradient_accumulation_steps", self.gradient_accumulation_steps, 1, MAX_ACCUMULATION),
        ] {
            problems.require(value >= least, key, value, "at least 1");
            problems.require(value <= most, key, value, &format!("at most {most}"));
        }
        problems.require((0.0..1.0).contains(&self.ema_decay), "ema_decay", self.ema_decay, "in [0, 1)");
        problems.into_result()
    }

    /// Checks that `device` can train with these settings.
    ///
    /// # Errors
    /// If it cannot compute in the precision, or cannot recompute what it is to.
    pub fn check_device(&self, device: &Device) -> Result<(), TrainingError> {
        self.recompute.check(device)?;
        self.precision.check(device)
    }

    /// The same settings with the number of steps that `epochs` of `batches` batches each take; without `epochs` nothing
    /// changes.
    #[must_use]
    pub fn over(mut self, batches: usize) -> Self {
        if self.epochs > 0 {
            self.steps = self.epochs.saturating_mul(batches).div_ceil(self.gradient_accumulation_steps).max(1);
        }
        self
    }

    /// Whether an evaluation follows when `done` steps are done.
    pub(crate) fn evaluates_after(&self, done: usize) -> bool {
        done == self.steps || is_due(self.evaluate_every, done)
    }

    /// Whether a checkpoint follows when `done` steps are done.
    pub(crate) fn checkpoints_after(&self, done: usize) -> bool {
        done == self.steps || is_due(self.checkpoint_every, done)
    }
}

fn is_due(every: usize, done: usize) -> bool {
    every > 0 && done.is_multiple_of(every)
}

/// One setting out of its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key with its section: `training.steps`.
    pub key: String,
    /// The key, the value found and the values allowed, in one sentence.
    pub text: String,
}

impl Problem {
    /// What is wrong with a `section` in which every text begins with its key: `d_model = 0 must be at least 1`.
    pub fn list(section: &str, texts: impl IntoIterator<Item = String>) -> Vec<Self> {
        let key = |text: &str| {
            let word = text.split([' ', ':']).next().unwrap_or_default();
            if word.contains('.') { word.to_string() } else { format!("{section}.{word}") }
        };
        // Adapters are a section within that of the model.
        let whole = |text: String| if text.starts_with("adapters.") { format!("{section}.{text}") } else { text };
        texts.into_iter().map(whole).map(|text| Self { key: key(&text), text }).collect()
    }
}

/// Settings out of their range; the message lists all of them on one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.iter().map(|problem| problem.text.as_str()).collect::<Vec<_>>().join("; "))]
pub struct SettingsError {
    problems: Vec<Problem>,
}

impl SettingsError {
    /// Each bad field.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Always true: only the user can change a setting.
    pub fn is_user_error(&self) -> bool {
        true
    }
}

/// Collects what is wrong with one section, so that the user hears of all of it at once.
pub(crate) struct Problems {
    section: &'static str,
    found: Vec<Problem>,
}

impl Problems {
    /// Nothing wrong so far with `section`.
    pub(crate) fn of(section: &'static str) -> Self {
        Self { section, found: Vec::new() }
    }

    /// Notes that `key` must be `expected` unless it `holds`.
    pub(crate) fn require(&mut self, holds: bool, key: &str, value: impl std::fmt::Display, expected: &str) {
        if !holds {
            let key = format!("{}.{key}", self.section);
            self.found.push(Problem { text: format!("{key} = {value} must be {expected}"), key });
        }
    }

    /// The error that lists everything found, if anything was.
    pub(crate) fn into_result(self) -> Result<(), SettingsError> {
        if self.found.is_empty() { Ok(()) } else { Err(SettingsError { problems: self.found }) }
    }
}

/// One error out of the results of several sections.
pub(crate) fn all_of<const N: usize>(results: [Result<(), SettingsError>; N]) -> Result<(), SettingsError> {
    let problems: Vec<_> = results.into_iter().filter_map(Result::err).flat_map(|error| error.problems).collect();
    if problems.is_empty() { Ok(()) } else { Err(SettingsError { problems }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bad_field_is_listed() {
        let config = TrainingConfig { gradient_accumulation_steps: 0, batch_size: 0, ..TrainingConfig::default() };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "training.batch_size = 0 must be at least 1; training.gradient_accumulation_steps = 0 must be at least 1"
        );
        let (steps, batch_size) = (MAX_STEPS + 1, 1_000_000_000_000_000);
        let config = TrainingConfig { steps, batch_size, ..TrainingConfig::default() };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "training.steps = 1000000000001 must be at most 1000000000000; \
             training.batch_size = 1000000000000000 must be at most 1000000"
        );
        let config = TrainingConfig { steps: MAX_STEPS, batch_size: MAX_BATCH_SIZE, ..config };
        config.validate().unwrap();
        TrainingConfig { steps: 0, ..TrainingConfig::default() }.validate().unwrap();
    }

    #[test]
    fn epochs_become_steps() {
        let config = TrainingConfig { epochs: 3, gradient_accumulation_steps: 4, ..TrainingConfig::default() };
        assert_eq!(config.clone().over(10).steps, 8); // 30 batches, 4 a step
        assert_eq!(TrainingConfig { epochs: 0, ..config }.over(10).steps, 2000);
    }

    #[test]
    fn events_fall_on_their_multiples_and_on_the_end() {
        let config = TrainingConfig { steps: 7, evaluate_every: 3, checkpoint_every: 0, ..TrainingConfig::default() };
        let after =
            |due: fn(&TrainingConfig, usize) -> bool| (1..=7).filter(|&step| due(&config, step)).collect::<Vec<_>>();
        assert_eq!(after(TrainingConfig::evaluates_after), [3, 6, 7]);
        assert_eq!(after(TrainingConfig::checkpoints_after), [7]);
    }
}
