//! Classifiers of tokens as recipes train them: what `[data]` and `[model]` mean, and how tagged sentences become batches.
//! `firelight_training::Run` does the rest.

mod batch;
mod evaluate;
mod recipe;
mod records;
mod score;
#[cfg(test)]
mod tests;

use std::path::Path;

use firelight_core::{ConfigError, LossConfig};
use firelight_storage::TaskError;
use firelight_tasks::problems;
use firelight_training::{BuiltIn, Evaluator, Problem, RecipeOf, Shared, Task};

pub use batch::{TagAnswers, TaggedBatch, TaggedBatcher, TaggedExample, TokenClassifierTask};
pub use recipe::{TaggedRecipe, TokenClassificationRecipe, TokenKeys, TokenModelRecipe};

use crate::model::{TokenClassifier, TokenClassifierConfig};
use crate::on_encoder::{on_encoder, other_classes};
use crate::records::{RecordData, on_records};

/// A training of a classifier of tokens that is ready to begin.
pub type TokenClassificationRun = firelight_training::Run<TokenClassification>;

/// From the words of a sentence to a tag for each, such as the part of a name that it is.
#[derive(Debug, Clone, Copy)]
pub struct TokenClassification;

impl Task for TokenClassification {
    const NAME: &'static str = crate::TOKEN_CLASSIFICATION_TASK;
    const BUILT_IN: &'static [BuiltIn] = &[BuiltIn { name: "entities", text: recipe::ENTITIES }];
    const TARGET: &'static str = "word";

    type Data = TaggedRecipe;
    type Model = TokenModelRecipe;
    type Loss = LossConfig;
    type Config = TokenClassifierConfig;
    type DataModule = RecordData<Self>;
    type Net = TokenClassifier;
    type Error = TaskError;

    fn judge(recipe: &TokenClassificationRecipe) -> Vec<Problem> {
        let model = recipe.model.config(1, vec!["a".into(), "b".into()]).validate();
        let short = recipe.model.transformer.max_seq_len < 4;
        let short = short.then(|| "max_seq_len must be at least 4: two tokens stand around a sentence".into());
        problems([
            ("model", ConfigError::collect([model], [short])),
            ("loss", recipe.loss.validate()),
            ("data", recipe.data.validate()),
        ])
    }

    fn config(recipe: &RecipeOf<Self>, corpus: &Self::DataModule, source: &Path) -> Result<Self::Config, Self::Error> {
        let config = recipe.model.config(corpus.vocabulary().vocab_size(), corpus.targets().names().to_vec());
        TaskError::in_config(source, &ConfigError::list(config.validate()))?;
        Ok(config)
    }

    on_encoder!();
    on_records!();

    fn other_head(found: &TokenClassifierConfig, config: &TokenClassifierConfig) -> Option<String> {
        other_classes(&found.labels, &config.labels)
    }

    fn evaluator(corpus: &RecordData<Self>, _recipe: &RecipeOf<Self>) -> Box<dyn Evaluator<TokenClassifierTask>> {
        let (examples, sentences) = (corpus.validation(), corpus.validation_records());
        Box::new(Shared(score::TagScores::on(corpus.targets().names(), examples, sentences)))
    }
}
