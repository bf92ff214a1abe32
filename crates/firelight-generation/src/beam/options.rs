//! How wide to search, how to compare hypotheses of different lengths, and when to end. Read by
//! [`beam_search`](crate::beam_search).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::options::stop_problems;
use crate::processors::{LogitsProcessor, Processors};
use crate::{GenerationDefaults, GenerationError, Processing, StopReason};

/// The most beams: each needs a cache of its own, and no search is known to gain from hundreds.
pub const MAX_BEAMS: usize = 1024;

/// Options of a beam search.
///
/// The setters chain: `BeamOptions::new(100).with_beams(5).with_length_penalty(0.6)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct BeamOptions {
    /// Beam width: unfinished hypotheses per row, from 1 to [`MAX_BEAMS`]. Default 4.
    pub beams: usize,
    /// The most tokens of a hypothesis, its stop token counted, at least 1. Default 200.
    pub max_new_tokens: usize,
    /// The exponent `p` of a score `log P / length^p`. Above 0 favours long hypotheses, below 0 short ones; 0 compares bare
    /// log-probabilities. Default 1, the mean of a token.
    pub length_penalty: f64,
    /// When a row has searched enough. Default [`EarlyStopping::Heuristic`].
    pub early_stopping: EarlyStopping,
    /// How many hypotheses of a row are returned, from 1 to `beams`. Default 1.
    pub n_best: usize,
    /// How many groups the beams are divided into. Each group searches by itself and avoids the tokens of the groups before it. A divisor of
    /// `beams`; default 1.
    pub groups: usize,
    /// Subtracted from a token's log-probability for each beam of an earlier group that chose it at the same step. At least 0; default 0, which
    /// makes all groups alike.
    pub diversity_penalty: f64,
    /// Ids that finish a hypothesis. They are not part of the result. Default none: all have the full length.
    pub stop_tokens: Vec<u32>,
    /// Strings that end a text, even if they begin within a token. They are not part of the text. Functions that return ids alone do not
    /// look for them, unless their processors have a [`StopStrings`](crate::StopStrings). Default none.
    pub stop_strings: Vec<String>,
    /// Penalties, bans and forced tokens. They change log-probabilities. Default none.
    pub processing: Processing,
    /// Scores each token by the model's own probabilities, and lists this many of the most probable tokens at its place:
    /// [`Hypothesis::scores`](crate::Hypothesis::scores). Default none: tokens are not scored.
    pub logprobs: Option<usize>,
}

/// When the search of a row stops once it has as many finished hypotheses as beams. It stops in any case when no beam is left, at the
/// latest at the full length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EarlyStopping {
    /// At once (`early_stopping=True` of the transformers package).
    Full,
    /// When the best beam, finished as long as it is now, would be no better than the worst finished hypothesis
    /// (`early_stopping=False`). It may yet have become better, if the length penalty is above 0.
    #[default]
    Heuristic,
    /// When no beam can become better than the worst finished hypothesis (`early_stopping="never"`): with a length penalty
    /// above 0 the best beam is scored as if it reached the full length without losing any probability.
    Never,
}

impl Default for BeamOptions {
    fn default() -> Self {
        Self::new(200)
    }
}

impl BeamOptions {
    /// Hypotheses of at most `max_new_tokens` tokens, everything else at its default.
    pub fn new(max_new_tokens: usize) -> Self {
        Self {
            beams: 4,
            max_new_tokens,
            length_penalty: 1.0,
            early_stopping: EarlyStopping::default(),
            n_best: 1,
            groups: 1,
            diversity_penalty: 0.0,
            stop_tokens: Vec::new(),
            stop_strings: Vec::new(),
            processing: Processing::default(),
            logprobs: None,
        }
    }

    /// Sets how many unfinished hypotheses a row follows.
    pub fn with_beams(mut self, beams: usize) -> Self {
        self.beams = beams;
        self
    }

    /// Sets the exponent of the length in a score.
    pub fn with_length_penalty(mut self, length_penalty: f64) -> Self {
        self.length_penalty = length_penalty;
        self
    }

    /// Sets the number of groups of beams, and the penalty of a token that an earlier group chose (diverse beam search).
    pub fn with_groups(mut self, groups: usize, diversity_penalty: f64) -> Self {
        (self.groups, self.diversity_penalty) = (groups, diversity_penalty);
        self
    }

    /// Sets when a row has searched enough.
    pub fn with_early_stopping(mut self, early_stopping: EarlyStopping) -> Self {
        self.early_stopping = early_stopping;
        self
    }

    /// Sets penalties, bans and forced tokens.
    pub fn with_processing(mut self, processing: Processing) -> Self {
        self.processing = processing;
        self
    }

    /// Adds a processor of your own, which runs after penalties and bans.
    pub fn with_processor(mut self, processor: impl LogitsProcessor + 'static) -> Self {
        self.processing.custom.push(processor);
        self
    }

    /// The processors of a beam, in the order in which they run.
    pub fn processors(&self) -> Processors {
        self.processing.processors(self.max_new_tokens, &self.stop_tokens)
    }

    /// Applies the number of beams, the length penalty and the early stopping of a published model's defaults, where they set them.
    #[must_use]
    pub fn with_defaults(mut self, defaults: &GenerationDefaults) -> Self {
        self.beams = defaults.number("num_beams").map_or(self.beams, |beams| beams as usize);
        self.length_penalty = defaults.number("length_penalty").unwrap_or(self.length_penalty);
        self.early_stopping = match defaults.more.get("early_stopping") {
            Some(Value::Bool(true)) => EarlyStopping::Full,
            Some(Value::Bool(false)) => EarlyStopping::Heuristic,
            Some(Value::String(_)) => EarlyStopping::Never,
            _ => self.early_stopping,
        };
        self
    }

    /// Sets how many hypotheses of a row are returned.
    pub fn with_n_best(mut self, n_best: usize) -> Self {
        self.n_best = n_best;
        self
    }

    /// Sets the ids that finish a hypothesis.
    pub fn with_stop_tokens(mut self, stop_tokens: impl Into<Vec<u32>>) -> Self {
        self.stop_tokens = stop_tokens.into();
        self
    }

    /// Sets the strings that end a text.
    pub fn with_stop_strings(mut self, stop_strings: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.stop_strings = stop_strings.into_iter().map(Into::into).collect();
        self
    }

    /// Scores each token, and lists the `top` most probable tokens at its place.
    pub fn with_logprobs(mut self, top: usize) -> Self {
        self.logprobs = Some(top);
        self
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`GenerationError::InvalidOptions`] with one sentence for each field out of range.
    pub fn validate(&self) -> Result<(), GenerationError> {
        let mut problems = Vec::new();
        if !(1..=MAX_BEAMS).contains(&self.beams) {
            problems.push(format!("beams is {}, expected 1 to {MAX_BEAMS}", self.beams));
        }
        if self.max_new_tokens == 0 {
            problems.push("max_new_tokens is 0, expected 1 or more".to_string());
        }
        if !self.length_penalty.is_finite() {
            problems.push(format!("length_penalty is {}, expected a finite number", self.length_penalty));
        }
        if self.n_best == 0 || self.n_best > self.beams {
            let (n_best, beams) = (self.n_best, self.beams);
            problems.push(format!("n_best is {n_best}, expected at least 1 and at most beams, which is {beams}"));
        }
        if self.groups == 0 || !self.beams.is_multiple_of(self.groups) {
            let (groups, beams) = (self.groups, self.beams);
            problems.push(format!("groups is {groups}, expected a divisor of beams, which is {beams}"));
        }
        if !(0.0..=1e6).contains(&self.diversity_penalty) {
            problems.push(format!("diversity_penalty is {}, expected a number from 0 to 1e6", self.diversity_penalty));
        }
        problems.extend(stop_problems(&self.stop_strings, &self.processing));
        self.processing.validate(self.max_new_tokens, problems)
    }

    /// The score of `length` new tokens, the stop token counted.
    pub(super) fn score(&self, log_probability: f64, length: usize) -> f64 {
        log_probability / (length as f64).powf(self.length_penalty)
    }

    /// Whether a hypothesis is finished by `token`, its token number `length`.
    pub(super) fn finishes(&self, token: u32, length: usize) -> Option<StopReason> {
        let stop = self.stop_tokens.contains(&token).then_some(StopReason::StopToken(token));
        stop.or((length == self.max_new_tokens).then_some(StopReason::MaxNewTokens))
    }

    /// How many beams a group has.
    pub(super) fn group_size(&self) -> usize {
        self.beams / self.groups
    }

    /// How many continuations a group looks at, so that enough are left whichever of them end: each beam has at most one continuation
    /// for each stop token.
    pub(super) fn candidates(&self) -> usize {
        self.group_size().saturating_mul(1 + self.stop_tokens.len().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_models_makers_name_is_taken() {
        let of = |text: &str| BeamOptions::new(9).with_defaults(&serde_json::from_str(text).unwrap());
        assert_eq!(of("{}"), BeamOptions::new(9));
        let named = of(r#"{"num_beams": 6, "length_penalty": 0.5, "early_stopping": true}"#);
        let expected = BeamOptions::new(9).with_beams(6).with_length_penalty(0.5);
        assert_eq!(named, expected.with_early_stopping(EarlyStopping::Full));
        assert_eq!(of(r#"{"early_stopping": "never"}"#).early_stopping, EarlyStopping::Never);
        assert_eq!(of(r#"{"early_stopping": null, "num_beams": null}"#), BeamOptions::new(9));
    }

    #[test]
    fn every_bad_field_is_listed() {
        let options = BeamOptions::new(0).with_beams(0).with_length_penalty(f64::NAN).with_n_best(3);
        assert_eq!(
            options.validate().unwrap_err().to_string(),
            "invalid generation options: beams is 0, expected 1 to 1024; max_new_tokens is 0, expected 1 or more; \
             length_penalty is NaN, expected a finite number; n_best is 3, expected at least 1 and at most beams, which is \
             0"
        );
        assert!(BeamOptions::new(1).with_beams(MAX_BEAMS + 1).validate().is_err());
        assert!(BeamOptions::new(1).with_n_best(5).validate().is_err());
        assert!(BeamOptions::new(1).with_beams(5).with_n_best(5).validate().is_ok());
    }

    #[test]
    fn the_stop_token_comes_before_the_length() {
        let options = BeamOptions::new(2).with_stop_tokens([7]);
        assert_eq!(options.finishes(7, 2), Some(StopReason::StopToken(7)));
        assert_eq!(options.finishes(6, 2), Some(StopReason::MaxNewTokens));
        assert_eq!(options.finishes(6, 1), None);
    }

    #[test]
    fn a_score_divides_by_a_power_of_the_length() {
        let options = BeamOptions::new(9);
        assert_eq!(options.score(-6.0, 4), -1.5);
        assert_eq!(options.clone().with_length_penalty(0.5).score(-6.0, 4), -3.0);
        assert_eq!(options.clone().with_length_penalty(0.0).score(-6.0, 4), -6.0);
        assert_eq!(options.with_length_penalty(-1.0).score(-6.0, 4), -24.0);
    }
}
