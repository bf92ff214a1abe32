//! What a recipe says about its labelled texts, and the recipe that is built in.

use firelight_core::{ConfigError, kind};
use firelight_data::labelled::{Columns, LabelKind};
use firelight_data::{Batching, SplitConfig, TokenizerConfig};
use firelight_training::Recipe;
use serde::{Deserialize, Serialize};

use super::model_recipe::ClassifierModelRecipe;
use crate::loss::SequenceLossConfig;
use crate::records::{source, source_defaults};

/// The recipe of a classifier of texts.
pub type ClassificationRecipe = Recipe<LabelledRecipe, ClassifierModelRecipe, SequenceLossConfig>;

/// The built-in recipe.
pub(super) const TEXTS: &str = include_str!("texts.toml");

/// The recipe that is trained when none is named: a small encoder for a few thousand short texts of any labels.
pub fn texts_recipe() -> &'static str {
    TEXTS
}

/// The `[data]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LabelledRecipe {
    /// Which texts are trained on, and which are only validated on: `split.train`, `split.validation` and `split.seed`. Held out are as
    /// many of each class as it has a share, drawn by `split.seed`: the seed of the recipe does not draw them, so that trainings of several
    /// seeds, and those that one begins from, are judged by the same texts.
    pub split: SplitConfig,
    /// Which columns hold what: `{ text = ["title", "body"], label = "class" }`, with `pair` for pairs of texts. Default: the
    /// text in the first column, the label in the second.
    pub columns: Columns,
    /// What the column of the labels holds: `"single_label"`, `"multi_label"`, of which
    /// `{ kind = "multi_label", separator = ";" }` names another separator than `|`, or `"regression"`. Default: a single label.
    #[serde(deserialize_with = "kind::deserialize", skip_serializing_if = "LabelKind::is_single_label")]
    pub problem_type: LabelKind,
    /// How texts become tokens. It knows the training texts alone. Default: `"word:2"`.
    pub tokenizer: TokenizerConfig,
    /// How many texts a batch has: `"fixed"`, `"buckets"` or `{ kind = "tokens", max_tokens = N }`. Default: buckets.
    #[serde(deserialize_with = "kind::deserialize")]
    pub batching: Batching,
    /// Threads that read batches ahead; they change neither the batches nor their order. At most 64, default 0.
    pub workers: usize,
}

source_defaults!(LabelledRecipe { columns: Columns::default(), problem_type: LabelKind::default() });

impl LabelledRecipe {
    /// # Errors
    /// Lists every field that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        source!(self).validate([
            self.columns.text.is_empty().then(|| "data.columns.text = [] must name at least one column".into()),
            check_problem_type(&self.problem_type),
        ])
    }
}

/// What is wrong with the kind of the labels.
pub(crate) fn check_problem_type(problem_type: &LabelKind) -> Option<String> {
    let is_empty = matches!(problem_type, LabelKind::MultiLabel { separator } if separator.is_empty());
    is_empty.then(|| "data.problem_type.separator = \"\" must have at least one character".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_data::HeldOut;

    #[test]
    fn the_built_in_recipe_is_whole_and_comes_back_from_its_own_text() {
        let recipe = ClassificationRecipe::parse(texts_recipe(), "texts.toml", &[]).unwrap();
        assert_eq!(recipe.task, crate::TASK);
        recipe.model.config(70, vec!["a".into(), "b".into()]).validate().unwrap();
        let text = recipe.to_toml().unwrap();
        assert_eq!(ClassificationRecipe::parse(&text, "recipe.toml", &[]).unwrap(), recipe);
    }

    #[test]
    fn what_is_held_out_is_a_name_a_number_or_a_share() {
        let read = |text: &str| toml::from_str::<LabelledRecipe>(text).unwrap().split.validation;
        assert_eq!(read("split.validation = 100"), Some(HeldOut::Count(100)));
        assert_eq!(read("split = { validation = \"val\" }"), Some(HeldOut::Split("val".into())));
        for other in ["[]", "[100]", "true"] {
            let overrides = [("data.split.validation".to_string(), other.to_string())];
            let error = ClassificationRecipe::parse(texts_recipe(), "texts.toml", &overrides).unwrap_err().to_string();
            let expected = "`data.split.validation`: expected a share such as 0.1, a count such as 500, or the name of a split in quotes";
            assert_eq!(error, format!("`--set data.split.validation`: {expected}"), "{other}");
        }
    }

    #[test]
    fn class_weights_of_another_form_are_refused_with_the_known_ones() {
        for other in ["true", "even"] {
            let overrides = [("loss.class_weights".to_string(), other.to_string())];
            let error = ClassificationRecipe::parse(texts_recipe(), "texts.toml", &overrides).unwrap_err().to_string();
            let expected = "`loss.class_weights`: expected \"none\", \"balanced\" or a list of numbers";
            assert_eq!(error, format!("`--set loss.class_weights`: {expected}"), "{other}");
        }
    }

    #[test]
    fn labels_are_single_unless_the_recipe_says_otherwise() {
        let read = |text: &str| toml::from_str::<LabelledRecipe>(text).unwrap();
        let single = read("problem_type = \"single_label\"");
        assert_eq!(single, LabelledRecipe::default());
        assert!(!toml::to_string(&single).unwrap().contains("problem_type"), "recipes of older runs have no such key");
        let several = read("problem_type = \"multi_label\"");
        assert_eq!(several.problem_type, LabelKind::multi_label());
        assert_eq!(read(&toml::to_string(&several).unwrap()), several);
        let other = read("problem_type = { kind = \"multi_label\", separator = \"\" }");
        assert!(other.validate().unwrap_err().to_string().contains("data.problem_type.separator"));
        assert_eq!(read("problem_type = \"regression\"").problem_type, LabelKind::Regression);
        assert!(toml::from_str::<LabelledRecipe>("problem_type = \"several\"").is_err());
    }

    #[test]
    fn all_problems_are_listed() {
        let columns = Columns { text: Vec::new(), ..Columns::default() };
        let recipe = LabelledRecipe {
            split: SplitConfig { validation: Some(HeldOut::Count(0)), ..SplitConfig::default() },
            columns,
            workers: 65,
            ..LabelledRecipe::default()
        };
        assert_eq!(recipe.validate().unwrap_err().problems().len(), 3);
        LabelledRecipe::default().validate().unwrap();
    }
}
