//! What a language recipe says about data and model, and the recipe that is built in.

use firelight_core::{
    Activation, AttentionPattern, NormConfig, PositionConfig, ProjectionKind, TransformerConfig, kind,
};
use firelight_data::TokenizerConfig;
use firelight_training::Recipe;
use serde::{Deserialize, Serialize};

use crate::model::LanguageModelConfig;

/// The recipe of a language model.
pub type LanguageRecipe = Recipe<DataRecipe, ModelRecipe>;

/// The recipe that is trained when none is named: a small GPT on generated stories, about two minutes on two cores.
pub fn stories_recipe() -> &'static str {
    include_str!("stories.toml")
}

/// The `[data]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataRecipe {
    /// How text becomes tokens: `"char"`, `"byte"` or `{ kind = "bpe", vocab_size = N }`. Default: char.
    pub tokenizer: TokenizerConfig,
    /// The share of the text, at its end, that is only validated on; in `[0, 1)`. Default: 0.1.
    pub validation_fraction: f64,
    /// Characters of generated stories to train on when no text is given. Default: none, a text must be given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stories: Option<usize>,
}

impl Default for DataRecipe {
    fn default() -> Self {
        Self { tokenizer: TokenizerConfig::default(), validation_fraction: 0.1, stories: None }
    }
}

fn max_seq_len() -> usize {
    256
}

fn yes() -> bool {
    true
}

/// The `[model]` section: the sizes that a user chooses. The vocabulary comes from the tokenizer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRecipe {
    /// Width of the residual stream.
    pub d_model: usize,
    /// Number of query heads.
    pub n_heads: usize,
    /// Number of blocks.
    pub n_layers: usize,
    /// Number of key/value heads. Default: as many as query heads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_kv_heads: Option<usize>,
    /// Width of a head. Default: `d_model / n_heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_head: Option<usize>,
    /// Inner width of the feed-forward networks. Default: four times `d_model`, two thirds of that when gated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_ff: Option<usize>,
    /// The context, in tokens. Default: 256.
    #[serde(default = "max_seq_len")]
    pub max_seq_len: usize,
    /// Dropout of residual branches, attention weights and embeddings. Default: 0.
    #[serde(default)]
    pub dropout: f64,
    /// Biases in linear layers. Default: true.
    #[serde(default = "yes")]
    pub bias: bool,
    /// The head shares the embedding's matrix. Default: true.
    #[serde(default = "yes")]
    pub tied: bool,
    /// The nonlinearity. Default: the tanh form of GELU.
    #[serde(default)]
    pub activation: Activation,
    /// One matrix for queries, keys and values, or three. Default: three.
    #[serde(default)]
    pub projection: ProjectionKind,
    /// The norm. Default: layer normalisation.
    #[serde(default, deserialize_with = "kind::deserialize")]
    pub norm: NormConfig,
    /// The position scheme. Default: learned.
    #[serde(default, deserialize_with = "kind::deserialize")]
    pub position: PositionConfig,
}

impl ModelRecipe {
    /// The whole configuration, for a vocabulary of `vocab_size` tokens.
    pub fn config(&self, vocab_size: usize) -> LanguageModelConfig {
        let stack = TransformerConfig::new(self.d_model, self.n_heads, self.n_layers)
            .with_max_seq_len(self.max_seq_len)
            .with_dropout(self.dropout)
            .with_bias(self.bias)
            .with_activation(self.activation)
            .with_projection(self.projection)
            .with_norm(self.norm)
            .with_position(self.position)
            .with_patterns(vec![AttentionPattern::Causal]);
        let Self { n_kv_heads, d_head, d_ff, .. } = *self;
        let transformer = TransformerConfig { n_kv_heads, d_head, d_ff, ..stack };
        LanguageModelConfig { vocab_size, tied: self.tied, transformer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_recipe_is_whole_and_comes_back_from_its_own_text() {
        let recipe = LanguageRecipe::parse(stories_recipe(), "stories.toml", &[]).unwrap();
        assert_eq!(recipe.task, crate::TASK);
        assert!(recipe.data.stories.is_some());
        recipe.model.config(65).validate().unwrap();
        let text = recipe.to_toml().unwrap();
        assert_eq!(LanguageRecipe::parse(&text, "recipe.toml", &[]).unwrap(), recipe);
    }

    #[test]
    fn overrides_reach_nested_choices() {
        let set = |key: &str, value: &str| (key.to_string(), value.to_string());
        let overrides = [set("model.norm", "rms"), set("model.position", "{ kind = \"rotary\", theta = 500.0 }")];
        let recipe = LanguageRecipe::parse(stories_recipe(), "stories.toml", &overrides).unwrap();
        assert_eq!(recipe.model.norm, NormConfig::rms());
        assert!(matches!(recipe.model.position, PositionConfig::Rotary { theta: 500.0, .. }));
    }
}
