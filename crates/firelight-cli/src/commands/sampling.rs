//! How the next token is chosen: the options of `generate`, `chat` and `translate`.

use firelight::generation::processors::{MirostatOptions, Xtc};
use firelight::generation::{GenerationDefaults, GenerationOptions, Processing, RandomSampling};

use super::repeating::Repetitions;
use crate::fields::option_of;
use crate::output;

/// The temperature where neither the user nor the model says one.
const TEMPERATURE: f64 = 0.8;

#[derive(clap::Args, Clone)]
pub(super) struct Sampling {
    /// Take the most probable token at every step
    #[arg(long)]
    greedy: bool,
    /// Below 1 sharpens the distribution, above 1 flattens it [default: the model's own, or 0.8]
    #[arg(long, value_name = "F", conflicts_with = "greedy")]
    temperature: Option<f64>,
    /// Draw among the most probable tokens that hold this share of the entropy
    #[arg(long, value_name = "F", conflicts_with = "greedy")]
    top_h: Option<f64>,
    /// Draw among the N most probable tokens only
    #[arg(long, value_name = "N", conflicts_with = "greedy")]
    top_k: Option<usize>,
    /// Draw among the most probable tokens that hold this share of the probability
    #[arg(long, value_name = "F", conflicts_with = "greedy")]
    top_p: Option<f64>,
    /// Draw among the tokens that have this share of the best one's probability
    #[arg(long, value_name = "F", conflicts_with = "greedy")]
    min_p: Option<f64>,
    /// Draw among the tokens nearest to the entropy that hold this share of the probability
    #[arg(long, value_name = "F", conflicts_with = "greedy")]
    typical_p: Option<f64>,
    /// Draw among the tokens that are at least this probable
    #[arg(long, value_name = "F", conflicts_with = "greedy")]
    epsilon_cutoff: Option<f64>,
    /// Draw among the tokens that are at least this probable, or less where the entropy is high
    #[arg(long, value_name = "F", conflicts_with = "greedy")]
    eta_cutoff: Option<f64>,
    /// Draw among the tokens within this many standard deviations of the best logit
    #[arg(long, value_name = "F", conflicts_with = "greedy")]
    top_n_sigma: Option<f64>,
    /// How often to leave out all top choices but the last (XTC), from 0 to 1
    #[arg(long, value_name = "F", conflicts_with = "greedy")]
    xtc_probability: Option<f64>,
    /// From which probability on a token is a top choice of XTC
    #[arg(long, value_name = "F", default_value_t = Xtc::default().threshold, requires = "xtc_probability")]
    xtc_threshold: f64,
    /// Hold the surprise of the text near so many bits a token (Mirostat 2)
    #[arg(long, value_name = "BITS", conflicts_with = "greedy")]
    mirostat: Option<f64>,
    /// How fast Mirostat corrects the surprise
    #[arg(long, value_name = "F", default_value_t = MirostatOptions::default().eta, requires = "mirostat")]
    mirostat_eta: f64,
    /// Seed of the draws: the same seed gives the same text [default: 0]
    #[arg(long, value_name = "N", conflicts_with = "greedy")]
    seed: Option<u64>,
    #[command(flatten)]
    penalties: Penalties,
}

/// What makes tokens less probable, or impossible: options of every command that writes.
#[derive(clap::Args, Clone)]
pub(super) struct Penalties {
    /// Above 1 makes tokens of the prompt and the text less probable
    #[arg(long, value_name = "F")]
    repetition_penalty: Option<f64>,
    /// What a token costs for each time that it was written
    #[arg(long, value_name = "F", default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f64,
    /// What a token costs once it was written
    #[arg(long, value_name = "F", default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f64,
    /// Write no sequence of N tokens twice
    #[arg(long, value_name = "N")]
    no_repeat_ngram_size: Option<usize>,
    #[command(flatten)]
    pub(super) repetitions: Repetitions,
    /// Choose no end token before N others
    #[arg(long, value_name = "N", default_value_t = 0)]
    min_new_tokens: usize,
}

impl Sampling {
    /// The name of the first option of greedy choice or of draws that is given.
    pub(super) fn given(&self) -> Option<&'static str> {
        let given = [
            (self.greedy, "--greedy"),
            (self.temperature.is_some(), "--temperature"),
            (self.top_h.is_some(), "--top-h"),
            (self.top_k.is_some(), "--top-k"),
            (self.top_p.is_some(), "--top-p"),
            (self.min_p.is_some(), "--min-p"),
            (self.typical_p.is_some(), "--typical-p"),
            (self.epsilon_cutoff.is_some(), "--epsilon-cutoff"),
            (self.eta_cutoff.is_some(), "--eta-cutoff"),
            (self.top_n_sigma.is_some(), "--top-n-sigma"),
            (self.xtc_probability.is_some(), "--xtc-probability"),
            (self.mirostat.is_some(), "--mirostat"),
        ];
        given.into_iter().find(|(is_given, _)| *is_given).map(|(_, name)| name)
    }

    /// The same with what the model's makers say where the user says nothing, which is told.
    pub(super) fn with_defaults(mut self, defaults: &GenerationDefaults) -> Self {
        let mut makers = Makers::new(defaults);
        if !self.greedy {
            self.temperature = makers.or("temperature", self.temperature);
            self.top_h = makers.or("top_h", self.top_h);
            self.top_k = makers.or_count("top_k", self.top_k);
            self.top_p = makers.or("top_p", self.top_p);
            self.min_p = makers.or("min_p", self.min_p);
            self.typical_p = makers.or("typical_p", self.typical_p);
            self.epsilon_cutoff = makers.or("epsilon_cutoff", self.epsilon_cutoff);
            self.eta_cutoff = makers.or("eta_cutoff", self.eta_cutoff);
        }
        self.penalties.take(&mut makers);
        makers.tell();
        self
    }

    /// The options, for texts of at most so many tokens.
    pub(super) fn options(&self, max_new_tokens: usize) -> GenerationOptions {
        let options = GenerationOptions::new(max_new_tokens).with_seed(self.seed()).with_processing(self.processing());
        if self.greedy { options.greedy() } else { options.with_random(|random| *random = self.distribution()) }
    }

    /// The distribution that tokens are drawn from; none for greedy choice.
    pub(super) fn random(&self) -> Option<RandomSampling> {
        (!self.greedy).then(|| self.distribution())
    }

    fn distribution(&self) -> RandomSampling {
        let mut random = RandomSampling::default();
        random.temperature = self.temperature.unwrap_or(TEMPERATURE);
        (random.top_h, random.top_k, random.top_p) = (self.top_h, self.top_k, self.top_p);
        (random.min_p, random.typical_p, random.top_n_sigma) = (self.min_p, self.typical_p, self.top_n_sigma);
        (random.epsilon_cutoff, random.eta_cutoff) = (self.epsilon_cutoff, self.eta_cutoff);
        random.xtc = self.xtc_probability.map(|probability| Xtc { probability, threshold: self.xtc_threshold });
        random.mirostat = self.mirostat.map(|tau| MirostatOptions { tau, eta: self.mirostat_eta });
        random
    }

    /// The seed of the draws.
    pub(super) fn seed(&self) -> u64 {
        self.seed.unwrap_or(0)
    }

    /// Whether the user says the seed.
    pub(super) fn has_seed(&self) -> bool {
        self.seed.is_some()
    }

    /// How many of the most probable tokens are kept, where the user says it.
    pub(super) fn top_k(&self) -> Option<usize> {
        self.top_k
    }

    /// The penalties alone, for a search.
    pub(super) fn penalties(&self) -> &Penalties {
        &self.penalties
    }

    pub(super) fn processing(&self) -> Processing {
        self.penalties.processing()
    }
}

impl Penalties {
    /// The same with what the model's makers say where the user says nothing, which is told.
    pub(super) fn with_defaults(&self, defaults: &GenerationDefaults) -> Self {
        let (mut penalties, mut makers) = (self.clone(), Makers::new(defaults));
        penalties.take(&mut makers);
        makers.tell();
        penalties
    }

    /// Takes what the model's makers say where the user says nothing.
    pub(super) fn take(&mut self, makers: &mut Makers) {
        self.repetition_penalty = makers.or("repetition_penalty", self.repetition_penalty);
        self.no_repeat_ngram_size = makers.or_count("no_repeat_ngram_size", self.no_repeat_ngram_size);
    }

    pub(super) fn processing(&self) -> Processing {
        Processing {
            repetition_penalty: self.repetition_penalty.unwrap_or(1.0),
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            no_repeat_ngram_size: self.no_repeat_ngram_size.unwrap_or(0),
            min_new_tokens: self.min_new_tokens,
            dry: self.repetitions.dry(),
            ..Processing::default()
        }
    }
}

/// What a model's makers say of its decoding, and what of it was taken.
pub(super) struct Makers<'d> {
    defaults: &'d GenerationDefaults,
    taken: Vec<String>,
}

impl<'d> Makers<'d> {
    pub(super) fn new(defaults: &'d GenerationDefaults) -> Self {
        Self { defaults, taken: Vec::new() }
    }

    /// What is given, or else the number of a key; there, 0 stands for nothing.
    pub(super) fn or(&mut self, key: &str, given: Option<f64>) -> Option<f64> {
        given.or_else(|| {
            let found = self.defaults.number(key).filter(|number| *number != 0.0)?;
            self.taken.push(format!("{} {found}", option_of(key)));
            Some(found)
        })
    }

    /// The same of a key that counts something.
    pub(super) fn or_count(&mut self, key: &str, given: Option<usize>) -> Option<usize> {
        self.or(key, given.map(|count| count as f64)).map(|count| count as usize)
    }

    /// Notes an option that was taken in another way.
    pub(super) fn note(&mut self, what: String) {
        self.taken.push(what);
    }

    /// Tells what was taken.
    pub(super) fn tell(self) {
        if !self.taken.is_empty() {
            output::note(format_args!("defaults of the model: {}", self.taken.join(", ")));
        }
    }
}
