//! What a recipe of a classifier of tokens says, and the recipe that is built in.

use firelight_core::{AdapterConfig, ConfigError, LossConfig, kind};
use firelight_data::tagged::TagScheme;
use firelight_data::{Batching, SplitConfig, TokenizerConfig};
use firelight_training::Recipe;
use serde::{Deserialize, Serialize};

use crate::encoder::TextEncoderConfig;
use crate::heads::TokenHeadConfig;
use crate::model::TokenClassifierConfig;
use crate::on_encoder::{EncoderKeys, EncoderRecipe};
use crate::records::{source, source_defaults};

/// The recipe of a classifier of tokens.
pub type TokenClassificationRecipe = Recipe<TaggedRecipe, TokenModelRecipe, LossConfig>;

/// The built-in recipe.
pub(super) const ENTITIES: &str = include_str!("entities.toml");

/// The `[data]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaggedRecipe {
    /// Which sentences are trained on, and which are only validated on: `split.train`, `split.validation` and `split.seed`.
    pub split: SplitConfig,
    /// What the tags mean: `"iob2"`, `"iob1"` or `"plain"`. Default: entities in IOB2.
    pub scheme: TagScheme,
    /// How words become tokens. It knows the training sentences alone. Default: `"word:2"`.
    pub tokenizer: TokenizerConfig,
    /// How many sentences a batch has: `"fixed"`, `"buckets"` or `{ kind = "tokens", max_tokens = N }`. Default: buckets.
    #[serde(deserialize_with = "kind::deserialize")]
    pub batching: Batching,
    /// Threads that read batches ahead; they change neither the batches nor their order. At most 64, default 0.
    pub workers: usize,
}

source_defaults!(TaggedRecipe { scheme: TagScheme::default() });

impl TaggedRecipe {
    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        source!(self).validate([])
    }
}

/// The `[model]` section: an encoder with a head for every token.
pub type TokenModelRecipe = EncoderRecipe<TokenKeys>;

/// The keys that are not the stack's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TokenKeys {
    /// Segments that tokens may belong to.
    n_segments: usize,
    /// Dropout of the tokens' vectors.
    head_dropout: f64,
    /// Low-rank adapters of the encoder, which itself stays as the run that `init.from` names has learnt it.
    #[serde(skip_serializing_if = "Option::is_none")]
    adapters: Option<AdapterConfig>,
}

impl TokenModelRecipe {
    /// The whole configuration, for a vocabulary of this size and these tags.
    pub fn config(&self, vocab_size: usize, tags: Vec<String>) -> TokenClassifierConfig {
        let TokenKeys { n_segments, head_dropout, adapters } = self.own.clone();
        let transformer = self.transformer.clone();
        TokenClassifierConfig {
            labels: tags,
            encoder: TextEncoderConfig { vocab_size, n_segments, uncounted_padding: None, adapters, transformer },
            head: TokenHeadConfig { dropout: head_dropout, transform: None },
        }
    }
}

impl EncoderKeys for TokenKeys {
    fn head_dropout(&mut self) -> Option<&mut f64> {
        Some(&mut self.head_dropout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_data::HeldOut;

    #[test]
    fn the_built_in_recipe_is_whole_and_comes_back_from_its_own_text() {
        let recipe = TokenClassificationRecipe::parse(ENTITIES, "entities.toml", &[]).unwrap();
        assert_eq!(recipe.task, crate::TOKEN_CLASSIFICATION_TASK);
        let config = recipe.model.config(70, vec!["B-A".into(), "O".into()]);
        config.validate().unwrap();
        assert_eq!(config.head.dropout, 0.3);
        let text = recipe.to_toml().unwrap();
        assert_eq!(TokenClassificationRecipe::parse(&text, "recipe.toml", &[]).unwrap(), recipe);
    }

    #[test]
    fn all_problems_are_listed() {
        let recipe = TaggedRecipe {
            split: SplitConfig { validation: Some(HeldOut::Count(0)), ..SplitConfig::default() },
            workers: 65,
            ..TaggedRecipe::default()
        };
        assert_eq!(recipe.validate().unwrap_err().problems().len(), 2);
        TaggedRecipe::default().validate().unwrap();
        let read = |text: &str| toml::from_str::<TaggedRecipe>(text).map(|recipe| recipe.scheme);
        assert_eq!(read("scheme = \"iob1\"").unwrap(), TagScheme::Iob1);
        assert!(read("scheme = \"bilou\"").is_err());
    }
}
