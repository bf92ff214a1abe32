//! How long a run lasts and what it does on the way, and the error that every settings struct of this crate reports.
//! Recipes hold these settings as `[training]`; [`fit`](crate::fit()) reads them.

use serde::{Deserialize, Serialize};

/// The `[training]` section of a recipe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingConfig {
    /// Optimiser steps of the run. At least 1, default 2000. The learning rate does not depend on it.
    pub steps: usize,
    /// Items in one batch. At least 1, default 12.
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
    pub fn validate(&self) -> Result<(), ConfigError> {
        let mut problems = Problems::of("training");
        problems.require(self.steps >= 1, "steps", self.steps, "at least 1");
        problems.require(self.batch_size >= 1, "batch_size", self.batch_size, "at least 1");
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
pub struct ConfigError {
    problems: Vec<String>,
}

impl ConfigError {
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
            self.found.push(format!("{}.{key} = {value}: expected {expected}", self.section));
        }
    }

    /// The error that lists everything found, if anything was.
    pub(crate) fn into_result(self) -> Result<(), ConfigError> {
        if self.found.is_empty() { Ok(()) } else { Err(ConfigError { problems: self.found }) }
    }
}

/// One error out of the results of several sections.
pub(crate) fn all_of<const N: usize>(results: [Result<(), ConfigError>; N]) -> Result<(), ConfigError> {
    let problems: Vec<String> = results.into_iter().filter_map(Result::err).flat_map(|error| error.problems).collect();
    if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bad_field_is_listed() {
        let config = TrainingConfig { steps: 0, batch_size: 0, ..TrainingConfig::default() };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "training.steps = 0: expected at least 1; training.batch_size = 0: expected at least 1"
        );
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
