//! How each token is chosen: greedily, or by a draw from a processed distribution.

use serde::{Deserialize, Serialize};

use crate::processors::{
    MinP, Mirostat, MirostatOptions, Processors, Temperature, TopK, TopNSigma, TopP, Typical, Xtc,
};
use crate::range;

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

/// The distribution that a random choice draws from. The settings apply in the order of the fields.
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
    /// Keeps the tokens within this many standard deviations of the best, above 0: [`TopNSigma`]. Default none.
    pub top_n_sigma: Option<f64>,
    /// Leaves out the most probable tokens now and then: [`Xtc`]. Default none.
    pub xtc: Option<Xtc>,
    /// Keeps the surprise of the text near a target: [`Mirostat`]. Default none.
    pub mirostat: Option<MirostatOptions>,
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

impl RandomSampling {
    /// Appends the processors of the distribution, in the order of the fields.
    pub(crate) fn add_to(&self, list: &mut Processors) {
        list.push(Temperature(self.temperature));
        self.top_k.map(TopK).into_iter().for_each(|top_k| list.push(top_k));
        self.top_p.map(TopP).into_iter().for_each(|top_p| list.push(top_p));
        self.min_p.map(MinP).into_iter().for_each(|min_p| list.push(min_p));
        self.typical_p.map(Typical).into_iter().for_each(|typical| list.push(typical));
        self.top_n_sigma.map(TopNSigma).into_iter().for_each(|top_n_sigma| list.push(top_n_sigma));
        self.xtc.into_iter().for_each(|xtc| list.push(xtc));
        self.mirostat.map(Mirostat::new).into_iter().for_each(|mirostat| list.push(mirostat));
    }

    /// One sentence for each field out of range.
    pub(crate) fn problems(&self) -> Vec<String> {
        let shares = [("min_p", self.min_p), ("xtc.probability", self.xtc.map(|xtc| xtc.probability))];
        let numbers = [
            ("top_n_sigma", self.top_n_sigma),
            ("xtc.threshold", self.xtc.map(|xtc| xtc.threshold)),
            ("mirostat.tau", self.mirostat.map(|mirostat| mirostat.tau)),
            ("mirostat.eta", self.mirostat.map(|mirostat| mirostat.eta)),
        ];
        let nuclei = [("top_p", self.top_p), ("typical_p", self.typical_p)];
        let mut problems: Vec<String> = self.temperature_problem().into_iter().collect();
        problems.extend(
            (self.top_k == Some(0))
                .then(|| "top_k is 0, expected 1 or more; leave it out to keep every token".to_string()),
        );
        problems.extend(nuclei.into_iter().filter_map(|(name, value)| not_a_nucleus(name, value?)));
        problems.extend(shares.into_iter().filter_map(|(name, value)| range::share(name, value?)));
        problems.extend(numbers.into_iter().filter_map(|(name, value)| range::positive(name, value?, "")));
        problems
    }

    fn temperature_problem(&self) -> Option<String> {
        if self.temperature != 0.0 {
            return range::positive("temperature", self.temperature, "");
        }
        let greedy = "use greedy to take the most probable token at every step";
        Some(format!("temperature is 0, expected a number greater than 0; {greedy}"))
    }
}

/// The problem of a share of the probability that is kept: it may be all of it, but not nothing.
fn not_a_nucleus(name: &str, share: f64) -> Option<String> {
    let fits = share > 0.0 && share <= 1.0;
    (!fits).then(|| format!("{name} is {share}, expected more than 0 and at most 1; leave it out to keep every token"))
}
