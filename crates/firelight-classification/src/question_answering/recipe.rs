//! What a recipe of a reader says, and the recipe that is built in.

use firelight_core::{AdapterConfig, ConfigError, kind};
use firelight_data::{Batching, SplitConfig, TokenizerConfig};
use firelight_training::Recipe;
use serde::{Deserialize, Serialize};

use super::batch::SpanLossConfig;
use crate::encoder::TextEncoderConfig;
use crate::model::{ReadingConfig, SpanReaderConfig};
use crate::on_encoder::{EncoderKeys, EncoderRecipe};
use crate::records::{source, source_defaults};

/// The recipe of a reader.
pub type QuestionAnsweringRecipe = Recipe<QuestionsRecipe, SpanModelRecipe, SpanLossConfig>;

/// The built-in recipe.
pub(super) const ANSWERS: &str = include_str!("answers.toml");

/// The `[data]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuestionsRecipe {
    /// Which questions are trained on, and which are only validated on: `split.train`, `split.validation` and `split.seed`.
    pub split: SplitConfig,
    /// Tokens from the beginning of one window on a long text to that of the next, as BERT's `doc_stride`. Without it a text that is
    /// longer than `model.max_seq_len` leaves room for is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stride: Option<usize>,
    /// The most tokens that an answer is given. Default: 30.
    pub max_answer_len: usize,
    /// How texts become tokens. It knows the training texts alone. Default: `"word:2"`.
    pub tokenizer: TokenizerConfig,
    /// How many windows a batch has: `"fixed"`, `"buckets"` or `{ kind = "tokens", max_tokens = N }`. Default: buckets.
    #[serde(deserialize_with = "kind::deserialize")]
    pub batching: Batching,
    /// Threads that read batches ahead; they change neither the batches nor their order. At most 64, default 0.
    pub workers: usize,
}

source_defaults!(QuestionsRecipe { stride: None, max_answer_len: ReadingConfig::default().max_answer_len });

impl QuestionsRecipe {
    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        source!(self).validate([
            (self.stride == Some(0)).then(|| "data.stride = 0 must be at least 1".into()),
            (self.max_answer_len == 0).then(|| "data.max_answer_len = 0 must be at least 1".into()),
        ])
    }
}

/// The `[model]` section: an encoder, whose two segments are question and text.
pub type SpanModelRecipe = EncoderRecipe<SpanKeys>;

/// The keys that are not the stack's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpanKeys {
    /// Segments that tokens may belong to.
    pub(super) n_segments: usize,
    /// Low-rank adapters of the encoder, which itself stays as the run that `init.from` names has learnt it.
    #[serde(skip_serializing_if = "Option::is_none")]
    adapters: Option<AdapterConfig>,
}

impl Default for SpanKeys {
    fn default() -> Self {
        Self { n_segments: 2, adapters: None }
    }
}

impl SpanModelRecipe {
    /// The whole configuration, for a vocabulary of this size.
    pub fn config(&self, vocab_size: usize, reading: ReadingConfig) -> SpanReaderConfig {
        let SpanKeys { n_segments, adapters } = self.own.clone();
        let transformer = self.transformer.clone();
        let encoder = TextEncoderConfig { vocab_size, n_segments, uncounted_padding: None, adapters, transformer };
        SpanReaderConfig::new(encoder).with_reading(reading)
    }
}

impl EncoderKeys for SpanKeys {}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_data::HeldOut;

    #[test]
    fn the_built_in_recipe_is_whole_and_comes_back_from_its_own_text() {
        let recipe = QuestionAnsweringRecipe::parse(ANSWERS, "answers.toml", &[]).unwrap();
        assert_eq!(recipe.task, crate::QUESTION_ANSWERING_TASK);
        recipe.model.config(70, ReadingConfig::default()).validate().unwrap();
        let text = recipe.to_toml().unwrap();
        assert_eq!(QuestionAnsweringRecipe::parse(&text, "recipe.toml", &[]).unwrap(), recipe);
    }

    #[test]
    fn all_problems_are_listed() {
        let recipe = QuestionsRecipe {
            split: SplitConfig { validation: Some(HeldOut::Count(0)), ..SplitConfig::default() },
            stride: Some(0),
            max_answer_len: 0,
            workers: 65,
            ..QuestionsRecipe::default()
        };
        assert_eq!(recipe.validate().unwrap_err().problems().len(), 4);
        QuestionsRecipe::default().validate().unwrap();
    }
}
