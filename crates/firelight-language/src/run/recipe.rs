//! What a language recipe says about its data, and the recipe that is built in.

use firelight_core::LossConfig;
use firelight_data::TokenizerConfig;
use firelight_training::Recipe;
use serde::{Deserialize, Serialize};

use super::model_recipe::ModelRecipe;

/// The recipe of a language model.
pub type LanguageRecipe = Recipe<DataRecipe, ModelRecipe, LossConfig>;

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

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_core::{NormConfig, PositionConfig};

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
        assert_eq!(recipe.model.transformer.norm, NormConfig::rms());
        assert!(matches!(recipe.model.transformer.position, PositionConfig::Rotary { theta: 500.0, .. }));
    }
}
