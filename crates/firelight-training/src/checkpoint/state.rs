//! Where a run stands, and when it ends.

use serde::{Deserialize, Serialize};

use crate::TrainingConfig;
use crate::config::LOSS;
use crate::precision::Scale;
use crate::words::metric_in_words;

/// A validation loss and when it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidationLoss {
    /// The number of steps done before the evaluation.
    pub step: usize,
    /// The mean loss in nats per target.
    pub loss: f64,
}

impl ValidationLoss {
    /// The evaluation as the best one of a run, by its loss or by another metric: `by macro F1 at step 6, where the loss was 0.7085`.
    pub fn in_words(&self, monitor: &str) -> String {
        let Self { step, loss } = self;
        match monitor {
            LOSS => format!("{loss:.4} at step {step}"),
            metric => format!("by {} at step {step}, where the loss was {loss:.4}", metric_in_words(metric)),
        }
    }
}

/// Where a run stands: `state.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunState {
    /// Steps done.
    pub(crate) step: usize,
    /// The seed of the run; checkpoints of older versions have none.
    #[serde(default)]
    pub(crate) seed: Option<u64>,
    /// The newest evaluation.
    pub(crate) evaluation: Option<ValidationLoss>,
    /// The best evaluation.
    pub(crate) best: Option<ValidationLoss>,
    /// What makes it the best: the deciding metric, turned so that lower is better.
    #[serde(default, with = "exact")]
    pub(super) badness: Option<f64>,
    /// Evaluations since the best one.
    #[serde(default)]
    pub(super) without_gain: usize,
    /// Where the scale of the loss stands, if there is one.
    #[serde(default)]
    pub(crate) loss_scale: Option<Scale>,
}

impl RunState {
    /// The same in a run of `seed`.
    pub(crate) fn of_seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// Notes an evaluation after the current step and returns whether it is the best so far: the one of lowest `badness`.
    pub(crate) fn note(&mut self, loss: f64, badness: f64) -> bool {
        let evaluation = ValidationLoss { step: self.step, loss };
        let is_best = self.badness.is_none_or(|best| badness < best);
        self.evaluation = Some(evaluation);
        self.without_gain = if is_best { 0 } else { self.without_gain + 1 };
        if is_best {
            (self.best, self.badness) = (Some(evaluation), Some(badness));
        }
        is_best
    }

    /// Whether no step is left to take: all are done, or patience has run out.
    pub(crate) fn ends(&self, training: &TrainingConfig) -> bool {
        self.step >= training.steps || (training.patience > 0 && self.without_gain >= training.patience)
    }

    /// Whether a run that stands here has nothing left to do.
    pub(crate) fn is_finished(&self, training: &TrainingConfig) -> bool {
        self.ends(training) && self.evaluation.is_some_and(|newest| newest.step == self.step)
    }
}

/// A number as text: one that was read from a JSON number may be off in its last bit, and a later evaluation that found the same
/// would count as a better one.
mod exact {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Older checkpoints have a number.
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a number")]
    enum Written {
        Text(String),
        Number(f64),
    }

    #[allow(clippy::ref_option)] // the signature that serde calls
    pub(super) fn serialize<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        number.map(|number| number.to_string()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        match Option::<Written>::deserialize(deserializer)? {
            Some(Written::Text(text)) => text.parse().map(Some).map_err(D::Error::custom),
            Some(Written::Number(number)) => Ok(Some(number)),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_evaluation_names_what_decided() {
        let best = ValidationLoss { step: 6, loss: 0.70851 };
        assert_eq!(best.in_words("loss"), "0.7085 at step 6");
        assert_eq!(best.in_words("macro_f1"), "by macro F1 at step 6, where the loss was 0.7085");
    }

    #[test]
    fn the_best_so_far_is_read_back_to_the_bit_and_equal_is_not_better() {
        let shares = (1..=1093).map(|right| f64::from(right) / 1093.0);
        for badness in shares.flat_map(|share| [-share, share.ln()]) {
            let mut state = RunState { step: 1, ..RunState::default() };
            assert!(state.note(1.0, badness));
            let mut read: RunState = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
            assert_eq!(read.badness.map(f64::to_bits), Some(badness.to_bits()));
            assert!(!read.note(1.0, badness));
        }
        let old = "{\"step\": 1, \"evaluation\": null, \"best\": null, \"badness\": 0.5}";
        assert_eq!(serde_json::from_str::<RunState>(old).unwrap().badness, Some(0.5));
        assert!(serde_json::from_str::<RunState>(&old.replace("0.5", "\"half\"")).is_err());
    }

    #[test]
    fn only_a_lower_badness_is_better() {
        let mut state = RunState { step: 1, ..RunState::default() };
        assert!(state.note(2.0, 0.5));
        state.step = 2;
        assert!(!state.note(1.0, 0.5));
        assert_eq!(state.evaluation, Some(ValidationLoss { step: 2, loss: 1.0 }));
        assert_eq!(state.best, Some(ValidationLoss { step: 1, loss: 2.0 }));
    }

    #[test]
    fn a_run_ends_at_its_last_step_or_when_patience_runs_out() {
        let training = TrainingConfig { steps: 10, patience: 2, ..TrainingConfig::default() };
        let mut state = RunState { step: 4, ..RunState::default() };
        for (badness, ends) in [(2.0, false), (2.0, false), (1.0, false), (3.0, false), (1.5, true)] {
            state.note(badness, badness);
            assert_eq!(state.ends(&training), ends, "{badness}");
        }
        assert!(state.is_finished(&training));
        assert!(!state.is_finished(&TrainingConfig { patience: 0, ..training.clone() }));
        state.step = 10;
        assert!(state.ends(&training) && !state.is_finished(&training), "its last step was not evaluated");
    }
}
