//! How to continue a prompt: how many tokens, chosen how, with which seed, and where to stop. Built by users, recipes and
//! the command line, read by [`TokenStream`](crate::TokenStream).

use serde::{Deserialize, Serialize};

use crate::{GenerationError, Processor, processors};

/// Options of one generation.
///
/// The methods build on one another, so a line reads like the wish:
/// `GenerationOptions::new(200).with_temperature(0.8).with_top_k(40)` or `GenerationOptions::new(200).greedy()`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct GenerationOptions {
    /// The most tokens to add to the prompt. Default 200; 0 adds nothing.
    pub max_new_tokens: usize,
    /// How each token is chosen. Default: random at temperature 0.8 over the whole vocabulary.
    pub sampling: Sampling,
    /// Seed of the random choice, any value. Default 0. Greedy choice ignores it.
    pub seed: u64,
    /// Ids that end a row. They are not part of the result. Default none.
    pub stop_tokens: Vec<u32>,
}

/// How the next token is chosen from the logits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Sampling {
    /// The most probable token, the lowest id among equals.
    Greedy,
    /// A draw from the processed distribution.
    Random(RandomSampling),
}

/// The distribution that a random choice draws from: temperature, then the `top_k`, then the `top_p` most probable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RandomSampling {
    /// Divides the logits: below 1 sharpens the distribution, above 1 flattens it. Greater than 0, default 0.8.
    pub temperature: f64,
    /// Keeps this many of the most probable tokens, at least 1. Default none: all are kept.
    pub top_k: Option<usize>,
    /// Keeps the fewest of the most probable tokens that hold this share of the probability, above 0 and at most 1.
    /// Default none: all are kept.
    pub top_p: Option<f64>,
}

impl Default for GenerationOptions {
    fn default() -> Self {
        Self::new(200)
    }
}

impl Default for Sampling {
    fn default() -> Self {
        Self::Random(RandomSampling::default())
    }
}

impl Default for RandomSampling {
    fn default() -> Self {
        Self { temperature: 0.8, top_k: None, top_p: None }
    }
}

impl GenerationOptions {
    /// Adds at most `max_new_tokens` tokens, everything else at its default.
    pub fn new(max_new_tokens: usize) -> Self {
        Self { max_new_tokens, sampling: Sampling::default(), seed: 0, stop_tokens: Vec::new() }
    }

    /// Chooses the most probable token at every step.
    pub fn greedy(self) -> Self {
        self.with_sampling(Sampling::Greedy)
    }

    /// Sets how tokens are chosen.
    pub fn with_sampling(mut self, sampling: Sampling) -> Self {
        self.sampling = sampling;
        self
    }

    /// Draws at this temperature; after [`greedy`](Self::greedy) it returns to random choice.
    pub fn with_temperature(self, temperature: f64) -> Self {
        self.with_random(|random| random.temperature = temperature)
    }

    /// Draws among the `top_k` most probable tokens, `None` for all; returns to random choice like `with_temperature`.
    pub fn with_top_k(self, top_k: impl Into<Option<usize>>) -> Self {
        self.with_random(|random| random.top_k = top_k.into())
    }

    /// Draws among the most probable tokens that hold the share `top_p`, `None` for all; returns to random choice like
    /// `with_temperature`.
    pub fn with_top_p(self, top_p: impl Into<Option<f64>>) -> Self {
        self.with_random(|random| random.top_p = top_p.into())
    }

    /// Sets the seed of the random choice.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the ids that end a row.
    pub fn with_stop_tokens(mut self, stop_tokens: impl Into<Vec<u32>>) -> Self {
        self.stop_tokens = stop_tokens.into();
        self
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`GenerationError::InvalidOptions`] with one sentence for each field out of range.
    pub fn validate(&self) -> Result<(), GenerationError> {
        let problems = match &self.sampling {
            Sampling::Greedy => Vec::new(),
            Sampling::Random(random) => random.problems(),
        };
        if problems.is_empty() { Ok(()) } else { Err(GenerationError::InvalidOptions { problems }) }
    }

    fn with_random(mut self, change: impl FnOnce(&mut RandomSampling)) -> Self {
        let mut random = match self.sampling {
            Sampling::Random(random) => random,
            Sampling::Greedy => RandomSampling::default(),
        };
        change(&mut random);
        self.sampling = Sampling::Random(random);
        self
    }
}

impl RandomSampling {
    /// The processors of these settings, in the order in which they apply.
    pub fn processors(&self) -> Vec<Processor> {
        let temperature = Processor::Temperature(processors::Temperature(self.temperature));
        let top_k = self.top_k.map(|k| Processor::TopK(processors::TopK(k)));
        let top_p = self.top_p.map(|p| Processor::TopP(processors::TopP(p)));
        [Some(temperature), top_k, top_p].into_iter().flatten().collect()
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.temperature == 0.0 {
            problems.push(
                "temperature is 0, expected a number greater than 0; for the most probable token at every step use \
                 greedy sampling (--greedy)"
                    .to_string(),
            );
        } else if !(self.temperature.is_finite() && self.temperature > 0.0) {
            problems.push(format!("temperature is {}, expected a finite number greater than 0", self.temperature));
        }
        if self.top_k == Some(0) {
            problems.push("top_k is 0, expected 1 or more; leave it out to keep every token".to_string());
        }
        if let Some(top_p) = self.top_p.filter(|p| !(*p > 0.0 && *p <= 1.0)) {
            problems.push(format!(
                "top_p is {top_p}, expected more than 0 and at most 1; leave it out to keep every token"
            ));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bad_field_is_listed() {
        let options = GenerationOptions::new(5).with_temperature(0.0).with_top_k(0).with_top_p(1.5);
        let message = options.validate().unwrap_err().to_string();
        assert_eq!(
            message,
            "invalid generation options: temperature is 0, expected a number greater than 0; for the most probable \
             token at every step use greedy sampling (--greedy); top_k is 0, expected 1 or more; leave it out to keep \
             every token; top_p is 1.5, expected more than 0 and at most 1; leave it out to keep every token"
        );
    }

    #[test]
    fn values_that_are_no_numbers_are_refused() {
        for temperature in [f64::NAN, f64::INFINITY, -1.0] {
            assert!(GenerationOptions::new(5).with_temperature(temperature).validate().is_err(), "{temperature}");
        }
        assert!(GenerationOptions::new(5).with_top_p(f64::NAN).validate().is_err());
        assert!(GenerationOptions::new(5).with_top_p(0.0).validate().is_err());
    }

    #[test]
    fn the_last_choice_of_sampling_wins() {
        let options = GenerationOptions::new(5).with_top_k(3).greedy();
        assert_eq!(options.sampling, Sampling::Greedy);
        let random = RandomSampling { top_k: Some(3), ..RandomSampling::default() };
        assert_eq!(options.with_top_k(3).sampling, Sampling::Random(random));
    }

    #[test]
    fn processors_come_in_the_order_temperature_top_k_top_p() {
        let random = RandomSampling { temperature: 0.5, top_k: Some(3), top_p: Some(0.9) };
        let expected = [
            Processor::Temperature(processors::Temperature(0.5)),
            Processor::TopK(processors::TopK(3)),
            Processor::TopP(processors::TopP(0.9)),
        ];
        assert_eq!(random.processors(), expected);
    }
}
