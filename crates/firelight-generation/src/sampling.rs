//! How each token is chosen: greedily, or by a draw from a processed distribution.

use serde::{Deserialize, Serialize};

use crate::processors::{
    EpsilonCutoff, EtaCutoff, MinP, Mirostat, MirostatOptions, Processors, Temperature, TopH, TopK, TopNSigma, TopP,
    Typical, Xtc,
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
    /// Keeps the most probable tokens that hold this share of the entropy, above 0 and at most 1: [`TopH`]. Default none.
    pub top_h: Option<f64>,
    /// Keeps this many of the most probable tokens, at least 1. Default none: all are kept.
    pub top_k: Option<usize>,
    /// Keeps the fewest of the most probable tokens that hold this share of the probability, above 0 and at most 1.
    /// Default none: all are kept.
    pub top_p: Option<f64>,
    /// Keeps the tokens that have at least this share of the best one's probability, from 0 to 1: [`MinP`]. Default none.
    pub min_p: Option<f64>,
    /// Keeps the tokens nearest to the entropy that hold this share of the probability, above 0 and at most 1: [`Typical`]. Default none.
    pub typical_p: Option<f64>,
    /// Keeps the tokens that are at least this probable, above 0 and below 1: [`EpsilonCutoff`]. Default none.
    pub epsilon_cutoff: Option<f64>,
    /// Keeps the tokens that are at least this probable, or less where the entropy is high, above 0 and below 1: [`EtaCutoff`]. Default none.
    pub eta_cutoff: Option<f64>,
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
            top_h: None,
            top_k: None,
            top_p: None,
            min_p: None,
            typical_p: None,
            epsilon_cutoff: None,
            eta_cutoff: None,
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
        self.top_h.map(TopH).into_iter().for_each(|top_h| list.push(top_h));
        self.top_k.map(TopK).into_iter().for_each(|top_k| list.push(top_k));
        self.top_p.map(TopP).into_iter().for_each(|top_p| list.push(top_p));
        self.min_p.map(MinP).into_iter().for_each(|min_p| list.push(min_p));
        self.typical_p.map(Typical).into_iter().for_each(|typical| list.push(typical));
        self.epsilon_cutoff.map(EpsilonCutoff).into_iter().for_each(|epsilon| list.push(epsilon));
        self.eta_cutoff.map(EtaCutoff).into_iter().for_each(|eta| list.push(eta));
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
        let nuclei = [("top_h", self.top_h), ("top_p", self.top_p), ("typical_p", self.typical_p)];
        let cutoffs = [("epsilon_cutoff", self.epsilon_cutoff), ("eta_cutoff", self.eta_cutoff)];
        let mut problems: Vec<String> = self.temperature_problem().into_iter().collect();
        problems.extend(
            (self.top_k == Some(0))
                .then(|| "top_k is 0, expected 1 or more; leave it out to keep every token".to_string()),
        );
        problems.extend(nuclei.into_iter().filter_map(|(name, value)| not_a_nucleus(name, value?)));
        problems.extend(cutoffs.into_iter().filter_map(|(name, value)| not_a_cutoff(name, value?)));
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

/// The problem of a share of the probability, or of the entropy, that is kept: it may be all of it, but not nothing.
fn not_a_nucleus(name: &str, share: f64) -> Option<String> {
    let fits = share > 0.0 && share <= 1.0;
    (!fits).then(|| format!("{name} is {share}, expected more than 0 and at most 1; leave it out to keep every token"))
}

/// The problem of a probability below which tokens are left out.
fn not_a_cutoff(name: &str, cutoff: f64) -> Option<String> {
    let fits = cutoff > 0.0 && cutoff < 1.0;
    (!fits)
        .then(|| format!("{name} is {cutoff}, expected more than 0 and less than 1; leave it out to keep every token"))
}
