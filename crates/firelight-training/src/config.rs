//! How long a run lasts and what it does on the way, and the error that every settings struct of this crate reports.
//! Recipes hold these settings as `[training]`; [`fit`](crate::fit()) reads them.

use serde::{Deserialize, Serialize};

/// No run takes more steps: the numbers of its items must not overflow.
const MAX_STEPS: usize = 1_000_000_000_000;

/// No batch holds more items: the loader reserves memory for all of them at once.
const MAX_BATCH_SIZE: usize = 1_000_000;

/// The `[training]` section of a recipe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingConfig {
    /// Optimiser steps of the run. From 1 to 10^12, default 2000. The learning rate does not depend on it.
    pub steps: usize,
    /// Items in one batch. From 1 to 1,000,000, default 12.
    pub batch_size: usize,
    /// Steps from one evaluation to the next; 0 evaluates only after the last step. Default 250.
    pub evaluate_every: usize,
    /// Steps from one checkpoint to the next; 0 writes only the one after the last step. Default 500.
    pub checkpoint_every: usize,
}

impl Default for TrainingConfig {
    fn default() -> Self {
        Self { steps: 2000, batch_size: 12, evaluate_every: 250, checkpoint_every: 500 }
    }
}

impl TrainingConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// Returns one error that lists all bad fields.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let mut problems = Problems::of("training");
        for (key, value, most) in [("steps", self.steps, MAX_STEPS), ("batch_size", self.batch_size, MAX_BATCH_SIZE)] {
            problems.require(value >= 1, key, value, "at least 1");
            problems.require(value <= most, key, value, &format!("at most {most}"));
        }
        problems.into_result()
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

/// Settings out of their range; the message lists all of them on one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.join("; "))]
pub struct SettingsError {
    problems: Vec<String>,
}

impl SettingsError {
    /// One sentence for each bad field: its key, the value found and the values allowed.
    pub fn problems(&self) -> &[String] {
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
    found: Vec<String>,
}

impl Problems {
    /// Nothing wrong so far with `section`.
    pub(crate) fn of(section: &'static str) -> Self {
        Self { section, found: Vec::new() }
    }

    /// Notes that `key` must be `expected` unless it `holds`.
    pub(crate) fn require(&mut self, holds: bool, key: &str, value: impl std::fmt::Display, expected: &str) {
        if !holds {
            self.found.push(format!("{}.{key} = {value} must be {expected}", self.section));
        }
    }

    /// The error that lists everything found, if anything was.
    pub(crate) fn into_result(self) -> Result<(), SettingsError> {
        if self.found.is_empty() { Ok(()) } else { Err(SettingsError { problems: self.found }) }
    }
}

/// One error out of the results of several sections.
pub(crate) fn all_of<const N: usize>(results: [Result<(), SettingsError>; N]) -> Result<(), SettingsError> {
    let problems: Vec<String> = results.into_iter().filter_map(Result::err).flat_map(|error| error.problems).collect();
    if problems.is_empty() { Ok(()) } else { Err(SettingsError { problems }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bad_field_is_listed() {
        let config = TrainingConfig { steps: 0, batch_size: 0, ..TrainingConfig::default() };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "training.steps = 0 must be at least 1; training.batch_size = 0 must be at least 1"
        );
        let config = TrainingConfig { steps: MAX_STEPS + 1, batch_size: 1_000_000_000_000_000, ..config };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "training.steps = 1000000000001 must be at most 1000000000000; \
             training.batch_size = 1000000000000000 must be at most 1000000"
        );
        let config = TrainingConfig { steps: MAX_STEPS, batch_size: MAX_BATCH_SIZE, ..config };
        config.validate().unwrap();
        TrainingConfig::default().validate().unwrap();
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
