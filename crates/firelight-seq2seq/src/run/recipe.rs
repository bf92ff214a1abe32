//! What a recipe says about its pairs, and the recipes that are built in.

use firelight_core::{ConfigError, LossConfig, kind};
use firelight_data::{Batching, Denoising, LengthFilter, Separator, SplitConfig, TokenizerConfig, Toy, check_workers};
use firelight_training::metrics::text::TextMetric;
use firelight_training::{BuiltIn, Recipe};
use serde::{Deserialize, Serialize};

use super::model_recipe::Seq2SeqModelRecipe;

/// The recipe of an encoder-decoder.
pub type Seq2SeqRecipe = Recipe<PairRecipe, Seq2SeqModelRecipe, LossConfig>;

/// The built-in recipes: generated tasks with one right answer, each learnt to the last letter in a few minutes on two cores.
pub(super) const BUILT_IN: [BuiltIn; 4] = [
    BuiltIn { name: "dates", text: include_str!("built_in/dates.toml") },
    BuiltIn { name: "copy", text: include_str!("built_in/copy.toml") },
    BuiltIn { name: "reverse", text: include_str!("built_in/reverse.toml") },
    BuiltIn { name: "addition", text: include_str!("built_in/addition.toml") },
];

/// The recipe that is trained when none is named: dates as people write them become dates of ISO 8601, in about a minute on two
/// cores.
pub fn dates_recipe() -> &'static str {
    BUILT_IN[0].text
}

/// The most pairs that are generated: they lie in memory, as text and as ids.
const MAX_TOY_PAIRS: usize = 1_000_000;

/// The `[data]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PairRecipe {
    /// What the sides are called: the endings of parallel files (`"de"` for `train.de`), the columns of a TSV file, or the keys
    /// of a JSONL file. Default: none; files of two columns or with the keys `source` and `target`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// See `source`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Makes the pairs out of a plain text: `"span_corruption"`, `"bart"`, or one of them with settings, such as
    /// `{ kind = "span_corruption", noise_density = 0.3 }`. Every epoch has noise of its own. Default: none, the data are pairs.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "kind::deserialize_option")]
    pub objective: Option<Denoising>,
    /// With `objective`: what ends a text of the file, `"line"`, `"blank_line"` or `{ kind = "text", text = "<|endoftext|>" }`.
    /// Longer texts than the model reads are cut into several. Default: line.
    #[serde(deserialize_with = "kind::deserialize")]
    pub documents: Separator,
    /// A generated task, in the place of files: `{ kind = "dates" }`. Default: none, pairs must be given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toy: Option<Toy>,
    /// Pairs of the generated task, those to validate on included; from 2 to 1,000,000. Default: 20,000.
    pub toy_pairs: usize,
    /// Which pairs are trained on, and which are only validated on: `split.train` and `split.validation`. Held out are the last ones.
    pub split: SplitConfig,
    /// How texts become tokens. Default: `"sentence_bpe:8000"`.
    pub tokenizer: TokenizerConfig,
    /// Whether both sides have one tokenizer. Default: true.
    pub joint: bool,
    /// Which pairs are trained on. Those that the model cannot read are left out in any case. Default: those without an empty
    /// side.
    pub filter: LengthFilter,
    /// How many pairs a batch has: `"fixed"`, `"buckets"` or `{ kind = "tokens", max_tokens = N }`, where a pair counts with its
    /// longer side. Default: fixed, those of `training.batch_size`.
    #[serde(deserialize_with = "kind::deserialize")]
    pub batching: Batching,
    /// Threads that read batches ahead; they change neither the batches nor their order. At most 64, default 0.
    pub workers: usize,
    /// How many validation sources are translated, greedily, at every evaluation. Their scores are then metrics that
    /// `training.monitor` may name beside `token_accuracy`. Default: 0.
    pub translated: usize,
    /// How those translations are scored: `"bleu"`, `"chrf"`, `"exact_match"`, and for summaries `"rouge1"`, `"rouge2"` and
    /// `"rougeL"`. Default: the first three.
    pub metrics: Vec<TextMetric>,
}

impl Default for PairRecipe {
    fn default() -> Self {
        Self {
            source: None,
            target: None,
            objective: None,
            documents: Separator::Line,
            toy: None,
            toy_pairs: 20_000,
            split: SplitConfig::default(),
            tokenizer: TokenizerConfig::SentenceBpe { vocab_size: 8000 },
            joint: true,
            filter: LengthFilter::default(),
            batching: Batching::default(),
            workers: 0,
            translated: 0,
            metrics: vec![TextMetric::Bleu, TextMetric::Chrf, TextMetric::ExactMatch],
        }
    }
}

impl PairRecipe {
    /// # Errors
    /// Lists every field that does not fit. The budget is judged with the pairs.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let text = |error: firelight_data::DataError| format!("data: {error}");
        ConfigError::collect(
            [],
            [
                (self.source.is_some() != self.target.is_some())
                    .then(|| "data.source and data.target belong together: give both or neither".into()),
                self.toy.and_then(|toy| toy.validate().err()).map(|error| format!("data.toy: {error}")),
                self.objective
                    .as_ref()
                    .and_then(|noise| noise.validate().err())
                    .map(|error| format!("data.objective: {error}")),
                self.documents.validate().err().map(|error| format!("data.documents: {error}")),
                (self.objective.is_some() && self.toy.is_some()).then(|| {
                    "data.objective makes pairs out of a text, data.toy out of nothing: leave one of them out".into()
                }),
                (self.objective.is_some() && !self.joint)
                    .then(|| "data.joint = false does not fit data.objective: both sides are made of one text".into()),
                (self.tokenizer.is_file() && !self.joint).then(|| {
                    format!(
                        "data.joint = false does not fit data.tokenizer = {}: both sides would have one",
                        self.tokenizer
                    )
                }),
                (self.objective.is_some() && self.translated > 0).then(|| {
                    format!("data.translated = {} does not fit data.objective: noise is no text", self.translated)
                }),
                (!(2..=MAX_TOY_PAIRS).contains(&self.toy_pairs))
                    .then(|| format!("data.toy_pairs = {} must be from 2 to {MAX_TOY_PAIRS}", self.toy_pairs)),
                self.split.problem(),
                self.repeated_metric()
                    .map(|name| format!("data.metrics names \"{name}\" twice: leave one of them out")),
                (self.metrics.is_empty() && self.translated > 0).then(|| {
                    format!("data.metrics = [] leaves data.translated = {} without a score: name one", self.translated)
                }),
                self.filter.validate().err().map(text),
                self.batching.validate().err().map(text),
                check_workers(self.workers),
            ],
        )
    }

    fn repeated_metric(&self) -> Option<&'static str> {
        let is_repeated = |(at, metric): &(usize, &TextMetric)| self.metrics[..*at].contains(metric);
        self.metrics.iter().enumerate().find(is_repeated).map(|(_, metric)| metric.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_data::SpanCorruption;

    #[test]
    fn the_built_in_recipes_are_whole_and_come_back_from_their_own_text() {
        for BuiltIn { name, text } in BUILT_IN {
            let recipe = Seq2SeqRecipe::parse(text, name, &[]).unwrap();
            assert_eq!(recipe.task, crate::TASK);
            let toy = serde_json::to_value(recipe.data.toy).unwrap();
            assert_eq!(toy["kind"], name);
            recipe.model.config([70, 70], 68).validate().unwrap();
            let text = recipe.to_toml().unwrap();
            assert_eq!(Seq2SeqRecipe::parse(&text, "recipe.toml", &[]).unwrap(), recipe);
        }
        assert_eq!(dates_recipe(), BUILT_IN[0].text);
    }

    #[test]
    fn a_generated_task_has_a_pair_for_each_part_and_no_more_than_fit_into_memory() {
        let validated = |toy_pairs| PairRecipe { toy_pairs, ..PairRecipe::default() }.validate();
        for pairs in [0, 1, MAX_TOY_PAIRS + 1] {
            let error = validated(pairs).unwrap_err().to_string();
            assert_eq!(error, format!("data.toy_pairs = {pairs} must be from 2 to 1000000"));
        }
        assert!(validated(2).is_ok() && validated(MAX_TOY_PAIRS).is_ok());
    }

    #[test]
    fn metrics_of_translations_are_named_once_and_one_at_least() {
        let error = |metrics: &[TextMetric], translated| {
            let recipe = PairRecipe { metrics: metrics.to_vec(), translated, ..PairRecipe::default() };
            recipe.validate().err().map(|error| error.to_string())
        };
        let twice = error(&[TextMetric::RougeL, TextMetric::Bleu, TextMetric::RougeL], 0).unwrap();
        assert_eq!(twice, "data.metrics names \"rougeL\" twice: leave one of them out");
        let none = error(&[], 4).unwrap();
        assert_eq!(none, "data.metrics = [] leaves data.translated = 4 without a score: name one");
        assert_eq!((error(&[], 0), error(&TextMetric::ALL, 4)), (None, None));
    }

    #[test]
    fn all_problems_are_listed() {
        let recipe = PairRecipe {
            source: Some("de".into()),
            toy_pairs: MAX_TOY_PAIRS + 1,
            split: SplitConfig::share(1.0),
            workers: 65,
            ..PairRecipe::default()
        };
        assert_eq!(recipe.validate().unwrap_err().problems().len(), 4);
        PairRecipe::default().validate().unwrap();
        let spans = SpanCorruption { noise_density: 0.0, ..SpanCorruption::default() };
        let recipe = PairRecipe {
            objective: Some(Denoising::SpanCorruption(spans)),
            toy: Some(Toy::Dates),
            joint: false,
            translated: 5,
            ..PairRecipe::default()
        };
        assert_eq!(recipe.validate().unwrap_err().problems().len(), 4);
    }
}
