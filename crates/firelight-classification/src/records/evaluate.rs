//! How well a trained model does on the records of a split.

use std::path::Path;
use std::time::Instant;

use burn::data::dataloader::DataLoader;
use burn::tensor::Device;
use firelight_storage::ModelFolder;
use firelight_training::{DataModule, Evaluator, Objective, RecipeOf, Task, TrainingModule, measure, read_recipe};
use serde::{Serialize, Serializer};

use super::files::{Asked, Measured, measured_in};
use super::{Held, RecordData, RecordTask};
use crate::error::ClassificationError;
use crate::vocabulary::TextVocabulary;

/// What a model is worth on a split.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// The mean loss without weights and smoothing.
    pub loss: f64,
    /// What it counts, as people read it behind the number.
    #[serde(skip)]
    pub loss_unit: String,
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
        (loss_unit, examples, began): (String, usize, Instant),
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

/// Evaluates a model of the run in `folder` on what [`measured_in`] finds.
pub(crate) fn evaluate<T: RecordTask>(
    folder: &Path,
    model: T::Net,
    (vocabulary, targets): (TextVocabulary, T::Targets),
    asked: Asked<'_>,
    device: &Device,
) -> Result<Evaluation, ClassificationError> {
    let folder = ModelFolder::open(folder)?;
    let recipe = read_recipe::<T>(Some(&folder.recipe()), &[])?;
    let keys = T::source(&recipe.data);
    let records = match measured::<T>(&folder, &recipe, asked, ((keys.training, keys.validation), T::ENDINGS))? {
        Measured::File(file) => (file.clone(), T::read_file(&recipe.data, &file)?),
        Measured::HeldBack => (folder.validation_pairs(), T::read_stored(&recipe.data, &folder.validation_pairs())?),
    };
    let (count, began) = (records.1.len(), Instant::now());
    let data = RecordData::<T>::measured(&recipe, (vocabulary, targets), records)?;
    let task = TrainingModule::new(model, T::Loss::default());
    let mut evaluator = T::evaluator(&data, &recipe);
    Evaluation::of(&task, data.reading(device)?.as_ref(), evaluator.as_mut(), (data.loss_unit(), count, began))
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
        let own = T::DataModule::open(recipe, folder);
        own.and_then(|own| own.is_of(recipe, &[data.into()])).unwrap_or(false)
    };
    measured_in(data, splits, endings, is_trained_on)
}
