//! The processors that options ask for in every way of decoding: penalties, bans, forced tokens, a constraint and the caller's own.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::processors::{
    BannedSequences, Dry, ForcedTokens, FrequencyPenalty, LogitsProcessor, NoRepeatNgram, Processors,
    RepetitionPenalty, SuppressUntil,
};
use crate::{Constraint, GenerationError, range};

/// Penalties, bans and forced tokens, for sampling, greedy choice and searches alike. The default changes nothing.
///
/// ```
/// use firelight_generation::Processing;
///
/// let processing = Processing { repetition_penalty: 1.2, no_repeat_ngram_size: 3, ..Processing::default() };
/// assert!(processing.problems().is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Processing {
    /// Values above 1 make the tokens of the prompt and of the text less probable, see [`RepetitionPenalty`]. Above 0; default 1, no penalty.
    pub repetition_penalty: f64,
    /// Subtracted from the logit of a token for each time it was written, see [`FrequencyPenalty`]. Default 0.
    pub frequency_penalty: f64,
    /// Subtracted once from the logit of a token that was written. Default 0.
    pub presence_penalty: f64,
    /// The length of the n-grams that may not occur twice, see [`NoRepeatNgram`]. Default 0, no limit.
    pub no_repeat_ngram_size: usize,
    /// A penalty for repetitions that grows with their length. Default none.
    pub dry: Option<Dry>,
    /// Sequences of ids that may not occur. Default none.
    pub banned: Vec<Vec<u32>>,
    /// Ids that a text may not begin with. Default none.
    pub not_first: Vec<u32>,
    /// A text begins with one of these ids. Default none, it may begin with any.
    pub forced_first: Vec<u32>,
    /// A text of the full length ends with one of these ids. Default none.
    pub forced_last: Vec<u32>,
    /// The least number of tokens before a stop token. Default 0.
    pub min_new_tokens: usize,
    /// What the text has to satisfy. Where all other rules leave nothing that it allows, they give way to it. Default none.
    #[serde(skip)]
    pub constraint: Option<Constraint>,
    /// Processors of your own, which run after all others.
    #[serde(skip)]
    pub custom: CustomProcessors,
}

impl Default for Processing {
    fn default() -> Self {
        Self {
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            no_repeat_ngram_size: 0,
            dry: None,
            banned: Vec::new(),
            not_first: Vec::new(),
            forced_first: Vec::new(),
            forced_last: Vec::new(),
            min_new_tokens: 0,
            constraint: None,
            custom: CustomProcessors::default(),
        }
    }
}

/// Processors of your own. Every row gets a copy.
#[derive(Clone, Debug, Default)]
pub struct CustomProcessors(Vec<Arc<dyn LogitsProcessor>>);

impl CustomProcessors {
    /// Appends a processor.
    pub fn push(&mut self, processor: impl LogitsProcessor + 'static) {
        self.0.push(Arc::new(processor));
    }
}

/// Two lists are equal if one was cloned from the other.
impl PartialEq for CustomProcessors {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

impl Processing {
    /// Adds a processor of your own, which runs after all others.
    pub fn with_processor(mut self, processor: impl LogitsProcessor + 'static) -> Self {
        self.custom.push(processor);
        self
    }

    /// The processors of a row, in the order in which they run. The text has at most `max_new_tokens` tokens and ends with one of
    /// `stop_tokens`.
    pub fn processors(&self, max_new_tokens: usize, stop_tokens: &[u32]) -> Processors {
        let mut list = Processors::default();
        if self.repetition_penalty != 1.0 {
            list.push(RepetitionPenalty(self.repetition_penalty));
        }
        if self.frequency_penalty != 0.0 || self.presence_penalty != 0.0 {
            list.push(FrequencyPenalty { frequency: self.frequency_penalty, presence: self.presence_penalty });
        }
        if self.no_repeat_ngram_size > 0 {
            list.push(NoRepeatNgram(self.no_repeat_ngram_size));
        }
        if let Some(dry) = &self.dry {
            list.push(dry.clone());
        }
        self.add_bans(&mut list, max_new_tokens, stop_tokens);
        if let Some(constraint) = &self.constraint {
            list.push(constraint.processor(max_new_tokens, stop_tokens));
        }
        list.extend(self.custom.0.iter().map(|processor| processor.boxed()));
        list
    }

    fn add_bans(&self, list: &mut Processors, max_new_tokens: usize, stop_tokens: &[u32]) {
        if !self.banned.is_empty() {
            list.push(BannedSequences(self.banned.clone()));
        }
        if self.min_new_tokens > 0 {
            list.push(SuppressUntil { new_tokens: self.min_new_tokens, ids: stop_tokens.to_vec() });
        }
        if !self.forced_first.is_empty() {
            list.push(ForcedTokens { place: 0, ids: self.forced_first.clone() });
        }
        if let Some(place) = max_new_tokens.checked_sub(1).filter(|_| !self.forced_last.is_empty()) {
            list.push(ForcedTokens { place, ids: self.forced_last.clone() });
        }
        if !self.not_first.is_empty() {
            list.push(SuppressUntil { new_tokens: 1, ids: self.not_first.clone() });
        }
    }

    /// Makes sure that there are no `problems`, that every field is in its range, and that a text of `max_new_tokens` tokens can satisfy the
    /// constraint.
    pub(crate) fn validate(&self, max_new_tokens: usize, mut problems: Vec<String>) -> Result<(), GenerationError> {
        problems.extend(self.problems());
        if !problems.is_empty() {
            return Err(GenerationError::InvalidOptions { problems });
        }
        self.constraint.as_ref().map_or(Ok(()), |constraint| constraint.check(max_new_tokens))
    }

    /// One sentence for each field out of range.
    pub fn problems(&self) -> Vec<String> {
        let bounded = |name: &str, value: f64| {
            let fits = value.abs() <= 1e6;
            (!fits).then(|| format!("{name} is {value}, expected a number from -1e6 to 1e6; 0 is no penalty"))
        };
        let dry = self.dry.iter().flat_map(|dry| {
            [
                range::positive("dry.multiplier", dry.multiplier, ""),
                (!(dry.base.is_finite() && dry.base >= 1.0))
                    .then(|| format!("dry.base is {}, expected a finite number of at least 1", dry.base)),
                (dry.allowed == 0).then(|| "dry.allowed is 0, expected 1 or more".to_string()),
            ]
        });
        let own = [
            range::positive("repetition_penalty", self.repetition_penalty, "; 1 is no penalty"),
            bounded("frequency_penalty", self.frequency_penalty),
            bounded("presence_penalty", self.presence_penalty),
            self.banned
                .iter()
                .any(Vec::is_empty)
                .then(|| "banned contains a sequence without tokens; leave it out".into()),
        ];
        own.into_iter().chain(dry).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processors::{HIDDEN, History};

    #[test]
    fn nothing_is_changed_by_default() {
        assert!(Processing::default().processors(9, &[1]).is_empty());
        assert!(Processing::default().problems().is_empty());
    }

    #[test]
    fn penalties_come_before_bans_and_bans_before_ones_own() {
        #[derive(Clone, Debug)]
        struct Last;
        impl LogitsProcessor for Last {
            fn process(&mut self, _: &History<'_>, logits: &mut [f64]) {
                assert_eq!(logits[..], [HIDDEN, 0.5, HIDDEN]);
                logits[2] = 9.0;
            }
            fn boxed(&self) -> Box<dyn LogitsProcessor> {
                Box::new(self.clone())
            }
        }
        let processing =
            Processing { repetition_penalty: 2.0, banned: vec![vec![2]], min_new_tokens: 2, ..Processing::default() };
        let mut list = processing.with_processor(Last).processors(9, &[0]);
        let mut logits = [3.0, 1.0, 2.0];
        list.process(&History::new(&[1], 1), &mut logits);
        assert_eq!(logits, [HIDDEN, 0.5, 9.0]);
    }

    #[test]
    fn the_last_place_is_forced_only_where_there_is_one() {
        let processing = Processing { forced_last: vec![1], not_first: vec![0], ..Processing::default() };
        let at = |ids: &[u32], most| {
            let mut logits = [2.0, 1.0, 1.5];
            processing.processors(most, &[]).process(&History::new(ids, 0), &mut logits);
            logits
        };
        assert_eq!(at(&[], 3), [HIDDEN, 1.0, 1.5]);
        assert_eq!(at(&[2], 3), [2.0, 1.0, 1.5]);
        assert_eq!(at(&[2, 2], 3), [HIDDEN, 0.0, HIDDEN]);
        assert_eq!(at(&[], 0), [HIDDEN, 1.0, 1.5]);
    }

    #[test]
    fn every_bad_field_is_listed() {
        let processing = Processing {
            repetition_penalty: 0.0,
            frequency_penalty: f64::NAN,
            banned: vec![vec![]],
            dry: Some(Dry { multiplier: 0.0, base: 0.5, allowed: 0, ..Dry::default() }),
            ..Processing::default()
        };
        assert_eq!(
            processing.problems(),
            [
                "repetition_penalty is 0, expected a finite number greater than 0; 1 is no penalty",
                "frequency_penalty is NaN, expected a number from -1e6 to 1e6; 0 is no penalty",
                "banned contains a sequence without tokens; leave it out",
                "dry.multiplier is 0, expected a finite number greater than 0",
                "dry.base is 0.5, expected a finite number of at least 1",
                "dry.allowed is 0, expected 1 or more",
            ]
        );
    }
}
