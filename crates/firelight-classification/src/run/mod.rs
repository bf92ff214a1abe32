//! Classifiers of texts as recipes train them: what `[data]`, `[model]` and `[loss]` mean, and how labelled texts become
//! batches. `firelight_training::Run` does the rest.

mod adapters;
mod corpus;
mod estimate;
mod evaluate;
mod files;
mod judged;
mod loaders;
mod model_recipe;
mod parts;
mod recipe;
mod report;
mod score;
mod self_check;
mod targets;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::Device;
use burn::train::{TrainLoader, ValidLoader};
use firelight_core::{ConfigError, ParamBuilder};
use firelight_storage::ModelFolder;
use firelight_training::metrics::classes::{ClassReport, draw_confusion};
use firelight_training::{BuiltIn, Check, Estimate, Evaluator, Problem, Task, measure};

pub(crate) use estimate::estimate_of;
pub(crate) use evaluate::measured;
pub(crate) use files::{Asked, Measured, files_in};
pub(crate) use judged::{Judged, scores, values};
pub(crate) use loaders::{Loader, Shuffled, in_order};
pub(crate) use model_recipe::encoder_stack;
pub(crate) use parts::Parts;
pub(crate) use recipe::check_problem_type;

pub use corpus::LabelledCorpus;
pub use evaluate::{Evaluation, evaluate};
pub use model_recipe::ClassifierModelRecipe;
pub use recipe::{ClassificationRecipe, Held, LabelledRecipe, texts_recipe};

use report::Report;

use crate::error::ClassificationError;
use crate::loss::{ClassWeights, ProblemType, SequenceLossConfig};
use crate::model::{TextClassifier, TextClassifierConfig};
use crate::pretrained::Pretrained;
use crate::training::ClassifierTask;

/// A training of a classifier that is ready to begin.
pub type Run = firelight_training::Run<Classification>;

/// What the training of a classifier leaves behind.
pub type TrainedRun = firelight_training::TrainedRun<Classification>;

/// From a text to one of several labels, to any number of them, or to a number.
#[derive(Debug, Clone, Copy)]
pub struct Classification;

impl Task for Classification {
    const NAME: &'static str = crate::TASK;
    const BUILT_IN: &'static [BuiltIn] = &[BuiltIn { name: "texts", text: recipe::TEXTS }];
    const TARGET: &'static str = "text";

    type Data = LabelledRecipe;
    type Model = ClassifierModelRecipe;
    type Loss = SequenceLossConfig;
    type Config = TextClassifierConfig;
    type Corpus = LabelledCorpus;
    type Net = TextClassifier;
    type Error = ClassificationError;

    fn judge(recipe: &ClassificationRecipe) -> Vec<Problem> {
        let model = recipe.model.config(1, vec!["a".into(), "b".into()]).validate();
        let short = recipe.model.max_seq_len() < 4;
        let short = short.then(|| "max_seq_len must be at least 4: three tokens stand around a pair of texts".into());
        let pair = recipe.data.columns.pair.is_some() && recipe.model.n_segments() < 2;
        let pair = pair.then(|| "n_segments must be 2 where data.columns.pair names a second text".into());
        [
            adapters::judge(recipe, model),
            Problem::list("model", short),
            Problem::list("model", pair),
            Problem::list("loss", ConfigError::list(recipe.loss.validate())),
            Problem::list("loss", unfit_loss(recipe)),
            Problem::list("data", ConfigError::list(recipe.data.validate())),
        ]
        .concat()
    }

    fn read(
        recipe: &mut ClassificationRecipe,
        source: &Path,
        paths: &[PathBuf],
    ) -> Result<LabelledCorpus, ClassificationError> {
        let from = match recipe.model.from() {
            Some((path, new_head)) => Some((Pretrained::open(path)?, new_head)),
            None => None,
        };
        let vocabulary = from.as_ref().map(|(run, _)| run.vocabulary()).transpose()?;
        let corpus = LabelledCorpus::read(recipe, source, paths, vocabulary)?;
        if let Some((run, new_head)) = from {
            run.check(&Self::config(recipe, &corpus, source)?, new_head)?;
        }
        recipe.loss.class_weights = recipe.loss.class_weights.clone().resolved(&corpus.class_counts());
        match &recipe.loss.class_weights {
            ClassWeights::Given(weights) if weights.len() != corpus.labels().len() => {
                let classes = corpus.labels().names().to_vec();
                Err(ClassificationError::ClassWeights { found: weights.len(), classes })
            }
            _ => Ok(corpus),
        }
    }

    fn recall(recipe: &mut ClassificationRecipe, stored: &ClassificationRecipe) {
        if recipe.loss.class_weights == ClassWeights::Balanced {
            recipe.loss.class_weights = stored.loss.class_weights.clone();
        }
    }

    fn save(corpus: &LabelledCorpus, folder: &ModelFolder) -> Result<(), ClassificationError> {
        corpus.save(folder)
    }

    fn open(recipe: &ClassificationRecipe, folder: &ModelFolder) -> Result<LabelledCorpus, ClassificationError> {
        LabelledCorpus::open(recipe, folder)
    }

    fn is_of(
        corpus: &LabelledCorpus,
        recipe: &ClassificationRecipe,
        paths: &[PathBuf],
    ) -> Result<bool, ClassificationError> {
        corpus.is_of(recipe, paths)
    }

    fn sizes(corpus: &LabelledCorpus) -> String {
        corpus.sizes()
    }

    fn config(
        recipe: &ClassificationRecipe,
        corpus: &LabelledCorpus,
        source: &Path,
    ) -> Result<TextClassifierConfig, ClassificationError> {
        let config = recipe.model.config(corpus.vocabulary().vocab_size(), corpus.labels().names().to_vec());
        let config = config.with_problem_type(corpus.problem_type());
        config.validate().map_err(|error| ClassificationError::Config { path: source.into(), error })?;
        Ok(config)
    }

    fn model(config: &TextClassifierConfig, seed: u64, device: &Device) -> TextClassifier {
        config.init_with(&ParamBuilder::new(device, seed))
    }

    fn inspect(config: &TextClassifierConfig, device: &Device) -> Vec<Problem> {
        adapters::problems(config.check_adapters(device))
    }

    fn frozen(config: &TextClassifierConfig) -> Vec<String> {
        adapters::frozen(config)
    }

    fn start(
        recipe: &ClassificationRecipe,
        config: &TextClassifierConfig,
        device: &Device,
    ) -> Result<TextClassifier, ClassificationError> {
        let model = Self::model(config, recipe.seed, device);
        let Some((path, new_head)) = recipe.model.from() else { return Ok(model) };
        let anew = recipe.model.has_new_embedding().then(|| model.encoder.embedding.clone());
        let mut begun = Pretrained::open(path)?.give(model, new_head, device)?;
        begun.encoder.embedding = anew.unwrap_or(begun.encoder.embedding);
        Ok(begun)
    }

    fn parameters(model: &TextClassifier) -> Vec<(String, usize)> {
        model.report().parts()
    }

    fn batches_of_an_epoch(
        corpus: &LabelledCorpus,
        recipe: &ClassificationRecipe,
    ) -> Result<usize, ClassificationError> {
        Ok(corpus.training_plan(recipe)?.num_batches())
    }

    fn training_loader(
        corpus: &LabelledCorpus,
        recipe: &ClassificationRecipe,
        batches: Range<usize>,
        device: &Device,
    ) -> Result<TrainLoader<ClassifierTask>, ClassificationError> {
        corpus.training_loader(recipe, batches, device)
    }

    fn validation_loader(
        corpus: &LabelledCorpus,
        _recipe: &ClassificationRecipe,
        device: &Device,
    ) -> Result<ValidLoader<ClassifierTask>, ClassificationError> {
        corpus.validation_loader(device)
    }

    fn evaluator(corpus: &LabelledCorpus, _recipe: &ClassificationRecipe) -> Box<dyn Evaluator<ClassifierTask>> {
        Box::new(corpus.scores())
    }

    fn figures(model: &TextClassifier, corpus: &LabelledCorpus) -> Result<Vec<(String, String)>, ClassificationError> {
        let task = ClassifierTask::new(model.valid(), SequenceLossConfig::default());
        let (loader, mut scores) = (corpus.validation_loader(&model.devices()[0])?, corpus.scores());
        measure(&task, loader.as_ref(), &mut scores)?;
        let heading = "confusion matrix of the validation texts: a row for each true label";
        let drawn = |report: &ClassReport| draw_confusion(&report.confusion, corpus.labels().names());
        let found = scores.report.as_ref().and_then(Report::class);
        Ok(found.map(|report| (heading.to_string(), drawn(report))).into_iter().collect())
    }

    fn loss_unit(corpus: &LabelledCorpus) -> String {
        corpus.problem_type().loss_unit().into()
    }

    fn estimate(recipe: &ClassificationRecipe, config: &TextClassifierConfig) -> Estimate {
        estimate::estimate(config, recipe)
    }

    fn self_check(
        recipe: &ClassificationRecipe,
        config: &TextClassifierConfig,
        corpus: &LabelledCorpus,
        device: &Device,
    ) -> Result<Vec<Check>, ClassificationError> {
        self_check::self_check(config, recipe.seed, corpus, device)
    }
}

/// What of the loss means nothing for the labels of the recipe.
fn unfit_loss(recipe: &ClassificationRecipe) -> Vec<String> {
    let (loss, problem_type) = (&recipe.loss, ProblemType::from(&recipe.data.problem_type));
    let has_weights = loss.class_weights != ClassWeights::None;
    let weights = match problem_type {
        ProblemType::SingleLabel => None,
        // A label that most texts lack has as many terms in the loss as any other.
        ProblemType::MultiLabel => (loss.class_weights == ClassWeights::Balanced).then_some(
            "loss.class_weights = \"balanced\" is for single labels: give a number for each label, or leave it out",
        ),
        ProblemType::Regression => {
            has_weights.then_some("loss.class_weights are for classes: leave them out of a regression")
        }
    };
    let has_smoothing = problem_type != ProblemType::SingleLabel && loss.label_smoothing != 0.0;
    let smoothing = has_smoothing.then_some("loss.label_smoothing is for single labels: leave it out");
    [weights, smoothing].into_iter().flatten().map(Into::into).collect()
}
