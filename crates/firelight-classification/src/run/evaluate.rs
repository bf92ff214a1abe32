//! How well a trained model answers for the texts of a split.

use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::data::dataloader::DataLoader;
use burn::tensor::Device;
use firelight_data::labelled::{self, LabelledText};
use firelight_storage::{Checkpoint, ModelFolder};
use firelight_training::{Evaluator, Objective, RecipeOf, Task, TrainingModule, measure, read_recipe};
use serde::{Serialize, Serializer};

use super::corpus::{examples, reading, stored};
use super::files::{Asked, ENDINGS, Measured, measured_in};
use super::score::TextScores;
use super::targets::Targets;
use super::{Classification, ClassificationRecipe, Held};
use crate::classifier::Classifier;
use crate::error::ClassificationError;
use crate::loss::SequenceLossConfig;
use crate::training::ClassifierTask;

/// What a model is worth on a split.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// The mean loss without weights and smoothing.
    pub loss: f64,
    /// What it counts, as people read it behind the number.
    #[serde(skip)]
    pub loss_unit: &'static str,
    /// The scores by name, in their order: those that `training.monitor` may name, and in JSON fields beside the others. What the
    /// texts do not define, such as the area under the curve of one class, is left out.
    #[serde(flatten, serialize_with = "fields")]
    pub scores: Vec<(&'static str, f64)>,
    /// Number of texts, sentences or questions.
    pub examples: usize,
    /// Seconds from the texts to the scores.
    pub seconds: f64,
}

impl Evaluation {
    /// What one pass over `loader` finds, with the unit of the loss, the number of examples, and when reading them began.
    pub(crate) fn of<M: Objective>(
        task: &TrainingModule<M>,
        loader: &dyn DataLoader<M::Batch>,
        evaluator: &mut dyn Evaluator<TrainingModule<M>>,
        (loss_unit, examples, began): (&'static str, usize, Instant),
    ) -> Result<Self, ClassificationError> {
        let (found, values) = measure(task, loader, evaluator)?;
        let scores = evaluator.scores().iter().map(|score| score.name).zip(values).collect();
        Ok(Self { loss: found.loss, loss_unit, scores, examples, seconds: began.elapsed().as_secs_f64() })
    }

    /// The score of this name.
    pub fn score(&self, name: &str) -> Option<f64> {
        self.scores.iter().find(|(found, _)| *found == name).map(|(_, value)| *value)
    }
}

fn fields<S: Serializer>(scores: &[(&'static str, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(scores.iter().copied())
}

/// Evaluates a run on the file `DIR/split.tsv` (or `.csv`, `.jsonl`); columns, labels and tokenizer are those of its training.
/// Without a split it is the file that the run validates on, or a file in the place of `DIR`. Where a run held back some of its
/// training texts, and the data is these texts, it is those that were held back. Without data it is what the run validates on,
/// as its folder keeps it.
///
/// # Errors
/// If the folder is no run of this task, or keeps no texts where no data is given, there is no such split, a file is to have splits, or a text has a label that the
/// training did not have, or no number in a regression.
pub fn evaluate(
    folder: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    data: Option<(&Path, Option<&str>)>,
    device: &Device,
) -> Result<Evaluation, ClassificationError> {
    let classifier = Classifier::load_from(folder.as_ref(), checkpoint, device)?;
    let folder = ModelFolder::open(folder)?;
    let recipe = read_recipe::<Classification>(Some(&folder.recipe()), &[])?;
    let (file, texts) = texts_of(&folder, &recipe, data)?;
    let targets = Targets::named(&recipe.data.problem_type, classifier.labels().to_vec())?;
    let began = Instant::now();
    let max_len = classifier.model().encoder.max_seq_len();
    let examples = examples(classifier.vocabulary(), &targets, (&file, &texts), max_len)?;
    let problem_type = targets.problem_type();
    let task = ClassifierTask::new(classifier.model().clone(), SequenceLossConfig::default());
    let (loader, mut scores) =
        (reading(&examples, device)?, TextScores::on(problem_type, &examples, targets.labels().len()));
    Evaluation::of(&task, loader.as_ref(), &mut scores, (problem_type.loss_unit(), examples.len(), began))
}

/// The texts to measure on and their file.
fn texts_of(
    folder: &ModelFolder,
    recipe: &ClassificationRecipe,
    data: Asked<'_>,
) -> Result<(PathBuf, Vec<LabelledText>), ClassificationError> {
    let splits = (recipe.data.training.as_str(), &recipe.data.validation);
    match measured::<Classification>(folder, recipe, data, (splits, &ENDINGS))? {
        Measured::File(file) => {
            let texts = labelled::read_as(&file, &recipe.data.columns, &recipe.data.problem_type)?;
            Ok((file, texts))
        }
        Measured::HeldBack => {
            let file = folder.validation_pairs();
            let texts = stored(recipe, &file)?;
            Ok((file, texts))
        }
    }
}

/// What is measured of a run: see [`measured_in`].
pub(crate) fn measured<T: Task<Error = ClassificationError>>(
    folder: &ModelFolder,
    recipe: &RecipeOf<T>,
    data: Asked<'_>,
    (splits, endings): ((&str, &Held), &[&str]),
) -> Result<Measured, ClassificationError> {
    // Data that cannot be read was not trained on; whoever reads it next says why.
    let is_trained_on = |data: &Path| {
        let own = T::open(recipe, folder);
        own.and_then(|own| T::is_of(&own, recipe, &[data.into()])).unwrap_or(false)
    };
    measured_in(data, splits, endings, is_trained_on)
}
