//! What the recipe of a pre-training says, and the recipe that is built in.

use firelight_core::{AdapterConfig, ConfigError, LossConfig, kind};
use firelight_data::labelled::{Columns, LabelKind};
use firelight_data::{Batching, Masking, SplitConfig, TokenizerConfig, check_stories};
use firelight_training::Recipe;
use serde::{Deserialize, Serialize};

use crate::encoder::TextEncoderConfig;
use crate::objectives::{PretrainingConfig, PretrainingObjective};
use crate::on_encoder::{EncoderKeys, EncoderRecipe};
use crate::records::{source, source_defaults};
use crate::sequence_classification::check_problem_type;

/// The recipe of a pre-training.
pub type MaskedLanguageRecipe = Recipe<TextsRecipe, EncoderModelRecipe, LossConfig>;

/// The built-in recipe.
pub(super) const MASKED: &str = include_str!("masked.toml");

/// The `[data]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextsRecipe {
    /// Which texts are trained on, and which are only validated on: `split.train`, `split.validation` and `split.seed`. Held out are those
    /// of a table that a classifier holds out, and the last ones of a `.txt`.
    pub split: SplitConfig,
    /// Which columns of a table hold texts, and its labels, of which nothing is learnt. Default: the text in the first column,
    /// the label in the second. In a `.txt` every line is a text.
    pub columns: Columns,
    /// What the column of the labels holds, as for a classifier: it decides which texts are held back. Default: a single label.
    #[serde(deserialize_with = "kind::deserialize", skip_serializing_if = "LabelKind::is_single_label")]
    pub problem_type: LabelKind,
    /// Characters of generated stories to train on when no texts are given, at most 1,000,000,000; of those the last are validated on,
    /// as many as `split.validation` says. Default: none, texts must be given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stories: Option<usize>,
    /// How texts become tokens. It knows the training texts alone. Default: `"word:2"`.
    pub tokenizer: TokenizerConfig,
    /// What the model is trained by: `"masked"`, `"masked_and_next_sentence"`, or `"replaced"`, whose settings are
    /// `{ kind = "replaced", generator_size = 0.25, lambda = 50 }`. Default: masked tokens alone.
    #[serde(deserialize_with = "kind::deserialize", skip_serializing_if = "PretrainingObjective::is_masked")]
    pub objective: PretrainingObjective,
    /// Which tokens are hidden, and how.
    pub masking: Masking,
    /// How many texts a batch has: `"fixed"`, `"buckets"` or `{ kind = "tokens", max_tokens = N }`. Default: buckets.
    #[serde(deserialize_with = "kind::deserialize")]
    pub batching: Batching,
    /// Threads that read batches ahead; they change neither the batches nor their order. At most 64, default 0.
    pub workers: usize,
}

source_defaults!(TextsRecipe {
    columns: Columns::default(),
    problem_type: LabelKind::default(),
    stories: None,
    objective: PretrainingObjective::default(),
    masking: Masking::default(),
});

impl TextsRecipe {
    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        source!(self).validate([
            self.columns.text.is_empty().then(|| "data.columns.text = [] must name at least one column".into()),
            check_problem_type(&self.problem_type),
            check_stories(self.stories),
            self.masking.validate().err().map(|error| format!("data: {error}")),
        ])
    }
}

/// The `[model]` section: an encoder without a head.
pub type EncoderModelRecipe = EncoderRecipe<PretrainingKeys>;

/// The keys that are not the stack's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PretrainingKeys {
    /// Segments that tokens may belong to.
    n_segments: usize,
    /// Whether the head of the masked tokens ends in the embedding's matrix.
    tied: bool,
    /// Low-rank adapters of the encoder, which itself stays as the run that `init.from` names has learnt it.
    #[serde(skip_serializing_if = "Option::is_none")]
    adapters: Option<AdapterConfig>,
}

impl Default for PretrainingKeys {
    fn default() -> Self {
        Self { n_segments: 0, tied: true, adapters: None }
    }
}

impl EncoderModelRecipe {
    /// The whole configuration, for a vocabulary of this size and an objective.
    pub fn config(&self, vocab_size: usize, objective: PretrainingObjective) -> PretrainingConfig {
        let PretrainingKeys { n_segments, tied, adapters } = self.own.clone();
        let transformer = self.transformer.clone();
        let encoder = TextEncoderConfig { vocab_size, n_segments, uncounted_padding: None, adapters, transformer };
        let mut config = PretrainingConfig::new(encoder, objective);
        config.head.tied = tied;
        config
    }
}

impl EncoderKeys for PretrainingKeys {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objectives::ReplacedTokens;
    use firelight_data::HeldOut;

    #[test]
    fn the_built_in_recipe_is_whole_and_comes_back_from_its_own_text() {
        let recipe = MaskedLanguageRecipe::parse(MASKED, "masked.toml", &[]).unwrap();
        assert_eq!(recipe.task, crate::MASKED_LANGUAGE_TASK);
        recipe.model.config(70, recipe.data.objective).validate().unwrap();
        let text = recipe.to_toml().unwrap();
        assert!(!text.contains("objective"), "recipes of masked tokens stay as they are: {text}");
        assert_eq!(MaskedLanguageRecipe::parse(&text, "recipe.toml", &[]).unwrap(), recipe);
    }

    #[test]
    fn an_objective_is_named_and_comes_back() {
        let replaced = |generator_size| {
            PretrainingObjective::Replaced(ReplacedTokens { generator_size, ..ReplacedTokens::default() })
        };
        for (named, expected) in [
            ("masked_and_next_sentence", PretrainingObjective::MaskedAndNextSentence),
            ("replaced", replaced(0.25)),
            ("{ kind = \"replaced\", generator_size = 0.5 }", replaced(0.5)),
        ] {
            let change = [("data.objective".to_string(), named.to_string())];
            let recipe = MaskedLanguageRecipe::parse(MASKED, "masked.toml", &change).unwrap();
            assert_eq!(recipe.data.objective, expected);
            let text = recipe.to_toml().unwrap();
            assert_eq!(MaskedLanguageRecipe::parse(&text, "recipe.toml", &[]).unwrap(), recipe);
        }
        let change = [("data.objective".to_string(), "next".to_string())];
        let error = MaskedLanguageRecipe::parse(MASKED, "masked.toml", &change).unwrap_err().to_string();
        assert!(error.contains("data.objective") && error.contains("masked_and_next_sentence"), "{error}");
    }

    #[test]
    fn all_problems_are_listed() {
        let masking = Masking { ratio: 0.0, ..Masking::default() };
        let recipe = TextsRecipe {
            split: SplitConfig { validation: Some(HeldOut::Count(0)), ..SplitConfig::default() },
            masking,
            workers: 65,
            ..TextsRecipe::default()
        };
        assert_eq!(recipe.validate().unwrap_err().problems().len(), 3);
        TextsRecipe::default().validate().unwrap();
    }
}
