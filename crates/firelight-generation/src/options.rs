//! How to continue a prompt: how many tokens, chosen how, with which seed, and where to stop. Built by users, recipes and
//! the command line, read by [`TokenStream`](crate::TokenStream).

use serde::{Deserialize, Serialize};

use crate::processors::{
    LogitsProcessor, MinP, Mirostat, MirostatOptions, Processors, Temperature, TopK, TopNSigma, TopP, Typical, Xtc,
};
use crate::{GenerationError, Processing};

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
    /// Texts that end a row, wherever they begin in its tokens. They are not part of the text; where ids are generated and no text, they are
    /// not looked for. Default none.
    pub stop_strings: Vec<String>,
    /// Penalties, bans and forced tokens. Default none.
    pub processing: Processing,
    /// Whether the log-probabilities of the tokens are told, and those of how many of the most probable ones beside them: see
    /// [`TokenStream::scores`](crate::TokenStream::scores). Default none.
    pub logprobs: Option<usize>,
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

/// The distribution that a random choice draws from. What is set applies in the order of the fields.
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
    /// Keeps the tokens that have at least this share of the best one's probability, from 0 to 1: [`MinP`]. Default none.
    pub min_p: Option<f64>,
    /// Keeps the tokens nearest to the entropy that hold this share of the probability, above 0 and at most 1: [`Typical`]. Default none.
    pub typical_p: Option<f64>,
    /// Keeps the tokens within so many standard deviations of the best, above 0: [`TopNSigma`]. Default none.
    pub top_n_sigma: Option<f64>,
    /// Leaves the most probable tokens out now and then. Default none.
    pub xtc: Option<Xtc>,
    /// Holds the surprise of the text near a target. Default none.
    pub mirostat: Option<MirostatOptions>,
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
        Self {
            temperature: 0.8,
            top_k: None,
            top_p: None,
            min_p: None,
            typical_p: None,
            top_n_sigma: None,
            xtc: None,
            mirostat: None,
        }
    }
}

impl GenerationOptions {
    /// Adds at most `max_new_tokens` tokens, everything else at its default.
    pub fn new(max_new_tokens: usize) -> Self {
        Self {
            max_new_tokens,
            sampling: Sampling::default(),
            seed: 0,
            stop_tokens: Vec::new(),
            stop_strings: Vec::new(),
            processing: Processing::default(),
            logprobs: None,
        }
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

    /// Changes the distribution that is drawn from; returns to random choice like `with_temperature`.
    ///
    /// ```
    /// use firelight_generation::GenerationOptions;
    ///
    /// let options = GenerationOptions::new(9).with_random(|random| random.min_p = Some(0.05));
    /// assert!(options.validate().is_ok());
    /// ```
    pub fn with_random(mut self, change: impl FnOnce(&mut RandomSampling)) -> Self {
        let mut random = match self.sampling {
            Sampling::Random(random) => random,
            Sampling::Greedy => RandomSampling::default(),
        };
        change(&mut random);
        self.sampling = Sampling::Random(random);
        self
    }

    /// Sets penalties, bans and forced tokens.
    pub fn with_processing(mut self, processing: Processing) -> Self {
        self.processing = processing;
        self
    }

    /// Adds a processor of the caller's own, behind penalties and bans and before the distribution is drawn from.
    pub fn with_processor(mut self, processor: impl LogitsProcessor + 'static) -> Self {
        self.processing.own.push(processor);
        self
    }

    /// The processors of a row, in the order in which they apply.
    pub fn processors(&self) -> Processors {
        let mut list = self.processing.processors(self.max_new_tokens, &self.stop_tokens);
        if let Sampling::Random(random) = &self.sampling {
            random.add_to(&mut list);
        }
        list
    }

    /// Asks for the log-probability of each token, and for those of the `top` most probable ones at its place.
    pub fn with_logprobs(mut self, top: usize) -> Self {
        self.logprobs = Some(top);
        self
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

    /// Sets the texts that end a row.
    pub fn with_stop_strings(mut self, stop_strings: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.stop_strings = stop_strings.into_iter().map(Into::into).collect();
        self
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`GenerationError::InvalidOptions`] with one sentence for each field out of range.
    pub fn validate(&self) -> Result<(), GenerationError> {
        let mut problems = match &self.sampling {
            Sampling::Greedy => Vec::new(),
            Sampling::Random(random) => random.problems(),
        };
        if self.stop_strings.iter().any(String::is_empty) {
            problems.push("stop_strings has an empty text; leave it out".to_string());
        }
        self.processing.validate(self.max_new_tokens, problems)
    }
}

impl RandomSampling {
    fn add_to(&self, list: &mut Processors) {
        list.push(Temperature(self.temperature));
        self.top_k.map(TopK).into_iter().for_each(|top_k| list.push(top_k));
        self.top_p.map(TopP).into_iter().for_each(|top_p| list.push(top_p));
        self.min_p.map(MinP).into_iter().for_each(|min_p| list.push(min_p));
        self.typical_p.map(Typical).into_iter().for_each(|typical| list.push(typical));
        self.top_n_sigma.map(TopNSigma).into_iter().for_each(|top_n_sigma| list.push(top_n_sigma));
        self.xtc.into_iter().for_each(|xtc| list.push(xtc));
        self.mirostat.map(Mirostat::new).into_iter().for_each(|mirostat| list.push(mirostat));
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
        for (name, share) in [("top_p", self.top_p), ("typical_p", self.typical_p)] {
            if let Some(share) = share.filter(|p| !(*p > 0.0 && *p <= 1.0)) {
                problems.push(format!(
                    "{name} is {share}, expected more than 0 and at most 1; leave it out to keep every token"
                ));
            }
        }
        let shares = [("min_p", self.min_p), ("xtc.probability", self.xtc.map(|xtc| xtc.probability))];
        for (name, share) in shares {
            if let Some(share) = share.filter(|p| !(0.0..=1.0).contains(p)) {
                problems.push(format!("{name} is {share}, expected a number from 0 to 1"));
            }
        }
        let numbers = [
            ("top_n_sigma", self.top_n_sigma),
            ("xtc.threshold", self.xtc.map(|xtc| xtc.threshold)),
            ("mirostat.tau", self.mirostat.map(|mirostat| mirostat.tau)),
            ("mirostat.eta", self.mirostat.map(|mirostat| mirostat.eta)),
        ];
        for (name, number) in numbers {
            if let Some(number) = number.filter(|number| !(number.is_finite() && *number > 0.0)) {
                problems.push(format!("{name} is {number}, expected a finite number greater than 0"));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processors::{History, softmax};

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
    fn processors_come_in_the_order_of_the_fields() {
        // At temperature 1/2 of the odds 4, 2, 1, 1 become 16, 4, 1, 1; of the best three, 16/21 and 4/21 hold 0.8.
        let options = GenerationOptions::new(5).with_temperature(0.5).with_top_k(3).with_top_p(0.8);
        let mut logits = [4.0, 2.0, 1.0, 1.0].map(f64::ln);
        options.processors().process(&History::default(), &mut logits);
        let found = softmax(&logits);
        assert!((found[0] - 0.8).abs() < 1e-12 && (found[1] - 0.2).abs() < 1e-12, "{found:?}");
        // Before the temperature the third would be in the share.
        assert_eq!(found[2..], [0.0, 0.0]);
    }

    #[test]
    fn settings_of_samplers_are_checked_by_name() {
        let options = GenerationOptions::new(5).with_random(|random| {
            random.min_p = Some(1.5);
            random.typical_p = Some(0.0);
            random.top_n_sigma = Some(-1.0);
            random.xtc = Some(Xtc { probability: 2.0, threshold: 0.0 });
            random.mirostat = Some(MirostatOptions { tau: 0.0, eta: f64::NAN });
        });
        let processing = Processing { repetition_penalty: -1.0, ..Processing::default() };
        let error = options.with_processing(processing).with_stop_strings([""]).validate().unwrap_err();
        let named: Vec<String> =
            error.problems().iter().map(|problem| problem.split(' ').next().unwrap().into()).collect();
        let expected = ["typical_p", "min_p", "xtc.probability", "top_n_sigma", "xtc.threshold", "mirostat.tau"];
        assert_eq!(named, [&expected[..], &["mirostat.eta", "stop_strings", "repetition_penalty"]].concat());
    }

    #[test]
    fn settings_come_back_from_their_text() {
        let options = GenerationOptions::new(5).with_random(|random| random.xtc = Some(Xtc::default()));
        let options = options.with_processing(Processing { banned: vec![vec![1, 2]], ..Processing::default() });
        let text = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<GenerationOptions>(&text).unwrap(), options);
    }
}
