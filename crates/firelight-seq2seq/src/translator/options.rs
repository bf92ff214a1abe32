//! How translations are searched, or drawn.

use firelight_generation::{BeamOptions, EarlyStopping, GenerationOptions, Processing, RandomSampling, Sampling};

/// How translations are searched.
#[derive(Clone, Debug, PartialEq)]
pub struct TranslateOptions {
    /// Hypotheses that are followed at a time; 1 is greedy. Default: 5.
    pub beams: usize,
    /// The power of the length that log-probabilities are divided by. Default: 1.
    pub length_penalty: f64,
    /// Translations of a line, best first; at most as many as beams. Default: 1.
    pub n_best: usize,
    /// Groups of beams that search apart, which divide the beams. Default: 1.
    pub groups: usize,
    /// What a token costs for each beam of an earlier group that chose it at the same step. Default: 0.
    pub diversity_penalty: f64,
    /// When a line has been searched enough. Default: [`EarlyStopping::Heuristic`].
    pub early_stopping: EarlyStopping,
    /// Draws each token instead of searching for the best text; there is one beam, and one translation. Default: none.
    pub draws: Option<Draws>,
    /// The most tokens of a translation, its end token counted, at least 1. Default: as many as the model has places for.
    pub max_new_tokens: Option<usize>,
    /// Ids that end a translation, beside the end tokens of the model. Default: none.
    pub end_tokens: Vec<u32>,
    /// Strings that end a translation, even if they begin within a token; they are not part of it. Default: none.
    pub stop_strings: Vec<String>,
    /// Scores each token by the model's own probabilities, and lists this many of the most probable tokens at its place. Default: tokens are
    /// not scored.
    pub logprobs: Option<usize>,
    /// Penalties, bans and forced tokens, and a constraint. Default: none but those of the model's makers.
    pub processing: Processing,
    /// Whether the [sentences](firelight_data::sentences()) of a line are translated one by one. The translation of a line of several is the
    /// best one of each, with a space between them, their ids one after the other and the mean of their scores; such a line has one
    /// translation, and it fails where one of its sentences does. A line that has not several is translated as it is. Default: false.
    pub sentences: bool,
    /// Whether a text that is too long is cut; otherwise it is an error. Default: false.
    pub truncate: bool,
    /// Texts that are translated together, at most; never more than have 4,096 tokens of the source, beams and padding
    /// included. Fewer take less memory and more time, and give the same translations. Default: as many as that.
    pub batch: usize,
}

/// How the tokens of a translation are drawn.
///
/// ```
/// use firelight_generation::RandomSampling;
/// use firelight_seq2seq::{Draws, TranslateOptions};
///
/// let mut sampling = RandomSampling::default();
/// sampling.top_p = Some(0.9);
/// let options = TranslateOptions { draws: Some(Draws { sampling, seed: 7 }), ..TranslateOptions::greedy() };
/// assert_eq!(options.beams, 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Draws {
    /// The distribution that each token is drawn from.
    pub sampling: RandomSampling,
    /// Seed of the draws. All lines are drawn by the same random numbers, so that no translation depends on the other lines.
    pub seed: u64,
}

impl Draws {
    /// The options that draw what a search with these options looks for.
    pub(super) fn options(&self, search: &BeamOptions) -> GenerationOptions {
        token_by_token(search).with_sampling(Sampling::Random(self.sampling.clone())).with_seed(self.seed)
    }
}

/// The greedy choice of the tokens that a search of one beam finds, with their scores.
pub(super) fn token_by_token(search: &BeamOptions) -> GenerationOptions {
    GenerationOptions::new(search.max_new_tokens)
        .greedy()
        .with_processing(search.processing.clone())
        .with_stop_tokens(search.stop_tokens.clone())
        .with_logprobs(search.logprobs.unwrap_or(0))
}

impl Default for TranslateOptions {
    fn default() -> Self {
        Self {
            beams: 5,
            length_penalty: 1.0,
            n_best: 1,
            groups: 1,
            diversity_penalty: 0.0,
            early_stopping: EarlyStopping::default(),
            draws: None,
            max_new_tokens: None,
            end_tokens: Vec::new(),
            stop_strings: Vec::new(),
            logprobs: None,
            processing: Processing::default(),
            sentences: false,
            truncate: false,
            batch: usize::MAX,
        }
    }
}

impl TranslateOptions {
    /// The search of one hypothesis, the likeliest token at every step.
    pub fn greedy() -> Self {
        Self { beams: 1, ..Self::default() }
    }
}
