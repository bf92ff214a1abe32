//! How to continue a prompt: how many tokens, chosen how, with which seed, and where to stop. Built by users, recipes and
//! the command line, read by [`TokenStream`](crate::TokenStream).

use serde::{Deserialize, Serialize};

use crate::processors::{LogitsProcessor, Processors};
use crate::{GenerationError, Processing, RandomSampling, Sampling};

/// Options of one generation.
///
/// The setters chain:
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
    /// Strings that end a row, even if they begin within a token. They are not part of the text. Functions that return ids alone do not
    /// look for them. Default none.
    pub stop_strings: Vec<String>,
    /// Penalties, bans and forced tokens. Default none.
    pub processing: Processing,
    /// Scores each token, and lists this many of the most probable tokens at its place: see
    /// [`TokenStream::scores`](crate::TokenStream::scores). Default none: tokens are not scored.
    pub logprobs: Option<usize>,
}

impl Default for GenerationOptions {
    fn default() -> Self {
        Self::new(200)
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

    /// Adds a processor of your own. It runs after penalties and bans and before the settings of [`RandomSampling`].
    pub fn with_processor(mut self, processor: impl LogitsProcessor + 'static) -> Self {
        self.processing.custom.push(processor);
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

    /// Scores each token, and lists the `top` most probable tokens at its place.
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

    /// Sets the strings that end a row.
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
        problems.extend(stop_problems(&self.stop_strings, &self.processing));
        self.processing.validate(self.max_new_tokens, problems)
    }
}

/// What is wrong with stop strings.
pub(crate) fn stop_problems(stop_strings: &[String], processing: &Processing) -> impl Iterator<Item = String> + use<> {
    let is_empty = stop_strings.iter().any(String::is_empty);
    let empty = is_empty.then_some("stop_strings contains an empty string; leave it out");
    let is_constrained = !stop_strings.is_empty() && processing.constraint.is_some();
    let constrained = is_constrained.then_some(
        "stop_strings cannot be combined with a constraint, because a stop string could end the text before it satisfies the \
         constraint; leave one of the two out",
    );
    [empty, constrained].into_iter().flatten().map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::softmax;
    use crate::processors::{History, MirostatOptions, Xtc};

    #[test]
    fn every_bad_field_is_listed() {
        let options = GenerationOptions::new(5).with_temperature(0.0).with_top_k(0).with_top_p(1.5);
        let message = options.validate().unwrap_err().to_string();
        assert_eq!(
            message,
            "invalid generation options: temperature is 0, expected a number greater than 0; use greedy to take the most \
             probable token at every step; top_k is 0, expected 1 or more; leave it out to keep every token; top_p is 1.5, \
             expected more than 0 and at most 1; leave it out to keep every token"
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
            random.top_h = Some(1.5);
            random.epsilon_cutoff = Some(1.0);
            random.eta_cutoff = Some(0.0);
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
        let filters = ["top_h", "typical_p", "epsilon_cutoff", "eta_cutoff", "min_p"];
        let others = ["xtc.probability", "top_n_sigma", "xtc.threshold", "mirostat.tau", "mirostat.eta"];
        assert_eq!(named, [&filters[..], &others, &["stop_strings", "repetition_penalty"]].concat());
    }

    #[test]
    fn settings_come_back_from_their_text() {
        let options = GenerationOptions::new(5).with_random(|random| random.xtc = Some(Xtc::default()));
        let options = options.with_processing(Processing { banned: vec![vec![1, 2]], ..Processing::default() });
        let text = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<GenerationOptions>(&text).unwrap(), options);
    }
}
