//! What a language recipe says about its data, and the recipe that is built in.

use firelight_core::{ConfigError, LossConfig, kind};
use firelight_data::{
    Batching, Mixture, Separator, SplitConfig, TokenizerConfig, TokenizerKind, check_stories, check_workers,
};
use firelight_training::Recipe;
use serde::{Deserialize, Serialize};

use super::model_recipe::ModelRecipe;

/// The recipe of a language model.
pub type LanguageRecipe = Recipe<DataRecipe, ModelRecipe, LossConfig>;

/// The built-in recipe.
pub(super) const STORIES: &str = include_str!("stories.toml");

/// The recipe that is trained when none is named: a small GPT on generated stories, about two minutes on two cores.
pub fn stories_recipe() -> &'static str {
    STORIES
}

/// The `[data]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataRecipe {
    /// How text becomes tokens: `"char"`, `"byte"` or `{ kind = "bpe", vocab_size = N }`. Default: char.
    pub tokenizer: TokenizerConfig,
    /// What is only validated on: `split.validation`, and `split.train`. Default: the validation split of a folder, otherwise the last
    /// tenth of each source.
    pub split: SplitConfig,
    /// The column of files of records (`.jsonl`, `.parquet`, `.csv` and `.tsv`) that has the text. Default: text.
    pub column: String,
    /// What the sources are drawn in the ratio of, one number for each, in their order. Default: none, every token of all is drawn as
    /// often.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<f64>,
    /// Characters of generated stories to train on when no text is given, at most 1,000,000,000. Default: none, a text must be
    /// given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stories: Option<usize>,
    /// What ends a document: `"line"`, `"blank_line"` or `{ kind = "text", text = "<|endoftext|>" }`; a record is one, whatever ends
    /// the others. Documents do not see each other; one that is longer than the context is cut. Default: none, a source is one stream
    /// of tokens and every window of it is trained on.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "kind::deserialize_option")]
    pub documents: Option<Separator>,
    /// Whether documents share rows. Default: none do.
    pub packing: Packing,
    /// How many rows a batch has: `"fixed"`, `"buckets"` or `{ kind = "tokens", max_tokens = N }`. Default: fixed, those of
    /// `training.batch_size`.
    #[serde(deserialize_with = "kind::deserialize")]
    pub batching: Batching,
    /// Threads that read batches ahead; they change neither the batches nor their order. At most 64, default 0.
    pub workers: usize,
}

/// Whether several documents lie in one row of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Packing {
    /// Each has a row of its own, padded to the longest of the batch.
    #[default]
    None,
    /// The longest first, each in the fullest row that has room for it.
    BestFit,
}

impl Default for DataRecipe {
    fn default() -> Self {
        Self {
            tokenizer: TokenizerConfig::default(),
            split: SplitConfig::default(),
            column: "text".into(),
            weights: Vec::new(),
            stories: None,
            documents: None,
            packing: Packing::default(),
            batching: Batching::default(),
            workers: 0,
        }
    }
}

impl DataRecipe {
    /// # Errors
    /// Lists every field that does not fit. The budget and the number of weights are judged with the text.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let separator = self.documents.as_ref().map_or(Ok(()), Separator::validate);
        let unpackable = self.packing != Packing::None && self.documents.is_none();
        ConfigError::collect(
            [],
            [
                separator.err().map(|error| format!("data.documents: {error}")),
                self.split.problem(),
                Mixture::<()>::check(&self.weights, self.weights.len()).err().map(|error| error.to_string()),
                self.tokenizer.kind().and_then(|kind| begins_anew(&self.tokenizer, kind)),
                check_stories(self.stories),
                unpackable.then(|| "data.packing needs documents: give data.documents, such as \"blank_line\"".into()),
                self.batching.validate().err().map(|error| format!("data: {error}")),
                check_workers(self.workers),
            ],
        )
    }
}

/// What is wrong with a tokenizer of a kind that a language model cannot have.
pub(super) fn begins_anew(tokenizer: &TokenizerConfig, kind: TokenizerKind) -> Option<String> {
    (!kind.continues_text()).then(|| {
        format!(
            "data.tokenizer = {tokenizer} begins every text anew, but a language model continues one: give char, byte or bpe:N, or a \
             file with one of these"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_core::{NormConfig, PositionConfig, RotaryConfig};

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
        assert!(matches!(recipe.model.transformer.position, PositionConfig::Rotary(RotaryConfig { theta: 500.0, .. })));
    }

    fn data(text: &str) -> DataRecipe {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_tokenizer_that_begins_every_text_anew_is_refused() {
        for tokenizer in ["sentence_bpe:300", "unigram:300", "word:1"] {
            let error = data(&format!("tokenizer = {tokenizer:?}\n")).validate().unwrap_err().to_string();
            assert!(error.contains(&format!("data.tokenizer = {tokenizer} begins every text anew")), "{error}");
        }
    }

    #[test]
    fn documents_and_batches_are_named_or_given_in_full() {
        let short = data("documents = \"blank_line\"\npacking = \"best_fit\"\nbatching = \"buckets\"\nworkers = 2\n");
        assert_eq!(short.documents, Some(Separator::BlankLine));
        assert_eq!((short.packing, short.batching), (Packing::BestFit, Batching::Buckets { buckets: 16 }));
        let full =
            data("documents = { kind = \"text\", text = \"#\" }\nbatching = { kind = \"tokens\", max_tokens = 900 }\n");
        assert_eq!(full.documents, Some(Separator::Text { text: "#".into() }));
        assert_eq!(full.batching, Batching::Tokens { max_tokens: 900, buckets: 16 });
        for recipe in [short, full, DataRecipe::default()] {
            recipe.validate().unwrap();
            assert_eq!(data(&toml::to_string(&recipe).unwrap()), recipe);
        }
    }

    #[test]
    fn all_problems_are_listed() {
        let packed = data("packing = \"best_fit\"\nbatching = { kind = \"buckets\", buckets = 0 }\nworkers = 65\n");
        assert_eq!(
            packed.validate().unwrap_err().to_string(),
            "data.packing needs documents: give data.documents, such as \"blank_line\"; \
             data: batching.buckets = 0 must be at least 1; data.workers = 65 must be at most 64"
        );
        let endless = data("stories = 1000000001").validate().unwrap_err().to_string();
        assert_eq!(endless, "data.stories = 1000000001 must be at most 1000000000");
        let empty = data("documents = { kind = \"text\", text = \"\" }");
        assert!(empty.validate().unwrap_err().to_string().starts_with("data.documents: the text that separates"));
    }
}
