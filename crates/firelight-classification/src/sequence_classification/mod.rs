//! Classifiers of texts as recipes train them: what `[data]`, `[model]` and `[loss]` mean, and how labelled texts become
//! batches. `firelight_training::Run` does the rest.

#[cfg(test)]
mod adapter_tests;
mod evaluate;
mod model_recipe;
mod recipe;
mod records;
mod report;
mod score;
mod targets;
#[cfg(test)]
mod tests;

use std::path::Path;

use firelight_core::ConfigError;
use firelight_storage::TaskError;
use firelight_tasks::problems;
use firelight_training::{BuiltIn, Evaluator, Problem, RecipeOf, Shared, Task};

pub(crate) use recipe::check_problem_type;

pub use model_recipe::{ClassifierKeys, ClassifierModelRecipe};
pub use recipe::{ClassificationRecipe, LabelledRecipe, texts_recipe};
pub use targets::Targets;

use score::TextScores;

use crate::loss::{ClassWeights, ProblemType, SequenceLossConfig};
use crate::model::{TextClassifier, TextClassifierConfig};
use crate::on_encoder::{on_encoder, other_classes};
use crate::pooling::PoolerConfig;
use crate::records::{RecordData, on_records};
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
    const HEAD_KEYS: &'static [&'static str] = &["pooling", "pooler", "head_dropout"];

    type Data = LabelledRecipe;
    type Model = ClassifierModelRecipe;
    type Loss = SequenceLossConfig;
    type Config = TextClassifierConfig;
    type DataModule = RecordData<Self>;
    type Net = TextClassifier;
    type Error = TaskError;

    fn judge(recipe: &ClassificationRecipe) -> Vec<Problem> {
        let model = recipe.model.config(1, vec!["a".into(), "b".into()]).validate();
        let short = recipe.model.transformer.max_seq_len < 4;
        let short = short.then(|| "max_seq_len must be at least 4: three tokens stand around a pair of texts".into());
        let pair = recipe.data.columns.pair.is_some() && recipe.model.own.n_segments < 2;
        let pair = pair.then(|| "n_segments must be 2 where data.columns.pair names a second text".into());
        problems([
            ("model", ConfigError::collect([model], [short, pair])),
            ("loss", ConfigError::collect([recipe.loss.validate()], unfit_loss(recipe))),
            ("data", recipe.data.validate()),
        ])
    }

    fn config(recipe: &RecipeOf<Self>, corpus: &Self::DataModule, source: &Path) -> Result<Self::Config, Self::Error> {
        let config = recipe.model.config(corpus.vocabulary().vocab_size(), corpus.targets().labels().names().to_vec());
        let config = config.with_problem_type(corpus.targets().problem_type());
        TaskError::in_config(source, &ConfigError::list(config.validate()))?;
        Ok(config)
    }

    on_encoder!();
    on_records!();

    fn other_head(found: &TextClassifierConfig, config: &TextClassifierConfig) -> Option<String> {
        if found.problem_type != config.problem_type {
            let [found, own] = [found, config].map(|config| config.problem_type.name());
            return Some(format!("is for data.problem_type = \"{found}\", but the recipe has \"{own}\""));
        }
        other_classes(&found.labels, &config.labels)
    }

    /// The pooler of next-sentence prediction, or that of a published encoder alone, where the classifier's is of the same kind.
    fn renamed(config: &TextClassifierConfig) -> &'static [(&'static str, &'static str)] {
        match config.head.pooler == PoolerConfig::bert() {
            true => &[("head.pooler", "next_sentence.pooler"), ("head.pooler", "pooler")],
            false => &[],
        }
    }

    fn evaluator(corpus: &RecordData<Self>, _recipe: &ClassificationRecipe) -> Box<dyn Evaluator<ClassifierTask>> {
        let targets = corpus.targets();
        Box::new(Shared(TextScores::on(targets.problem_type(), corpus.validation(), targets.labels().names())))
    }
}

/// What of the loss means nothing for the labels of the recipe.
fn unfit_loss(recipe: &ClassificationRecipe) -> [Option<String>; 2] {
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
    [weights, smoothing].map(|text: Option<&str>| text.map(Into::into))
}
