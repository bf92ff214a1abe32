//! Classifiers of tokens as recipes train them: what `[data]` and `[model]` mean, and how tagged sentences become batches.
//! `firelight_training::Run` does the rest.

mod batch;
mod corpus;
mod evaluate;
mod recipe;
mod score;
mod self_check;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use burn::train::{TrainLoader, ValidLoader};
use firelight_core::{ConfigError, LossConfig, ParamBuilder};
use firelight_storage::ModelFolder;
use firelight_training::{BuiltIn, Check, Estimate, Evaluator, Problem, Task};

pub use batch::{TagAnswers, TaggedBatch, TaggedBatcher, TaggedExample, TokenClassifierTask};
pub use corpus::TaggedCorpus;
pub use evaluate::evaluate_tags;
pub use recipe::{TaggedRecipe, TokenClassificationRecipe, TokenModelRecipe};

use crate::error::ClassificationError;
use crate::model::{TokenClassifier, TokenClassifierConfig};
use crate::pretrained::Pretrained;
use crate::run::estimate_of;

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
    type Corpus = TaggedCorpus;
    type Net = TokenClassifier;
    type Error = ClassificationError;

    fn judge(recipe: &TokenClassificationRecipe) -> Vec<Problem> {
        let model = recipe.model.config(1, vec!["a".into(), "b".into()]).validate();
        let short = recipe.model.transformer.max_seq_len < 4;
        let short = short.then(|| "max_seq_len must be at least 4: two tokens stand around a sentence".into());
        [
            Problem::list("model", ConfigError::list(model)),
            Problem::list("model", short),
            Problem::list("loss", ConfigError::list(recipe.loss.validate())),
            Problem::list("data", ConfigError::list(recipe.data.validate())),
        ]
        .concat()
    }

    fn read(
        recipe: &mut TokenClassificationRecipe,
        source: &Path,
        paths: &[PathBuf],
    ) -> Result<TaggedCorpus, ClassificationError> {
        let from = recipe.model.from().map(Pretrained::open).transpose()?;
        let vocabulary = from.as_ref().map(Pretrained::vocabulary).transpose()?;
        let corpus = TaggedCorpus::read(recipe, source, paths, vocabulary)?;
        if let Some(run) = from {
            run.check_encoder(&Self::config(recipe, &corpus, source)?.encoder)?;
        }
        Ok(corpus)
    }

    fn save(corpus: &TaggedCorpus, folder: &ModelFolder) -> Result<(), ClassificationError> {
        corpus.save(folder)
    }

    fn open(recipe: &TokenClassificationRecipe, folder: &ModelFolder) -> Result<TaggedCorpus, ClassificationError> {
        TaggedCorpus::open(recipe, folder)
    }

    fn is_of(
        corpus: &TaggedCorpus,
        recipe: &TokenClassificationRecipe,
        paths: &[PathBuf],
    ) -> Result<bool, ClassificationError> {
        corpus.is_of(&recipe.data, paths)
    }

    fn sizes(corpus: &TaggedCorpus) -> String {
        corpus.sizes()
    }

    fn config(
        recipe: &TokenClassificationRecipe,
        corpus: &TaggedCorpus,
        source: &Path,
    ) -> Result<TokenClassifierConfig, ClassificationError> {
        let config = recipe.model.config(corpus.vocabulary().vocab_size(), corpus.tags().names().to_vec());
        config.validate().map_err(|error| ClassificationError::Config { path: source.into(), error })?;
        Ok(config)
    }

    fn model(config: &TokenClassifierConfig, seed: u64, device: &Device) -> TokenClassifier {
        config.init_with(&ParamBuilder::new(device, seed))
    }

    /// The encoder is that of the other run, the head begins anew.
    fn start(
        recipe: &TokenClassificationRecipe,
        config: &TokenClassifierConfig,
        device: &Device,
    ) -> Result<TokenClassifier, ClassificationError> {
        let mut model = Self::model(config, recipe.seed, device);
        if let Some(path) = recipe.model.from() {
            Pretrained::open(path)?.give_encoder(&mut model.encoder, device)?;
        }
        Ok(model)
    }

    fn parameters(model: &TokenClassifier) -> Vec<(String, usize)> {
        model.report().parts()
    }

    fn batches_of_an_epoch(
        corpus: &TaggedCorpus,
        recipe: &TokenClassificationRecipe,
    ) -> Result<usize, ClassificationError> {
        Ok(corpus.training_plan(recipe)?.num_batches())
    }

    fn training_loader(
        corpus: &TaggedCorpus,
        recipe: &TokenClassificationRecipe,
        batches: Range<usize>,
        device: &Device,
    ) -> Result<TrainLoader<TokenClassifierTask>, ClassificationError> {
        corpus.training_loader(recipe, batches, device)
    }

    fn validation_loader(
        corpus: &TaggedCorpus,
        _recipe: &TokenClassificationRecipe,
        device: &Device,
    ) -> Result<ValidLoader<TokenClassifierTask>, ClassificationError> {
        corpus.validation_loader(device)
    }

    fn evaluator(
        corpus: &TaggedCorpus,
        _recipe: &TokenClassificationRecipe,
    ) -> Box<dyn Evaluator<TokenClassifierTask>> {
        let (examples, sentences) = (corpus.validation(), corpus.validation_sentences());
        Box::new(score::TagScores::on(corpus.tags().names(), examples, sentences))
    }

    fn estimate(recipe: &TokenClassificationRecipe, config: &TokenClassifierConfig) -> Estimate {
        let length = config.encoder.transformer.max_seq_len;
        let cost = config.init_with(&ParamBuilder::counting()).cost(length);
        estimate_of(&cost, length, recipe.data.batching, &recipe.training)
    }

    fn self_check(
        recipe: &TokenClassificationRecipe,
        config: &TokenClassifierConfig,
        corpus: &TaggedCorpus,
        device: &Device,
    ) -> Result<Vec<Check>, ClassificationError> {
        self_check::self_check(config, recipe.seed, corpus, device)
    }
}
