//! How well a trained model does on the records of a split.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::Device;
use firelight_data::{DataError, SplitConfig};
use firelight_storage::{Checkpoint, ModelFolder, TaskError};
use firelight_training::{
    Communicator, DataModule, RecipeOf, Task, TaskEvaluation, TrainingModule, agree_on_examples, open_run, telling,
};

use super::files::{Asked, Measured, measured_in};
use super::{RecordData, RecordTask, name_of, read_all};
use crate::pretrained::{Pretrained, load};

/// Evaluates a run on what [`measured_in`] finds; `targets` are those of its training, by the structure of its model. Several ranks share
/// the batches.
pub(crate) fn evaluate<T: RecordTask>(
    folder: &Path,
    asked: (&Checkpoint, Asked<'_>, &Device),
    targets: impl FnOnce(T::Config, &T::Data) -> Result<T::Targets, DataError>,
    ranks: Arc<dyn Communicator>,
) -> Result<TaskEvaluation, TaskError>
where
    T::Config: Pretrained<Model = T::Net>,
{
    telling(ranks, |ranks| evaluate_on::<T>(folder, asked, targets, ranks))
}

fn evaluate_on<T: RecordTask>(
    folder: &Path,
    (checkpoint, asked, device): (&Checkpoint, Asked<'_>, &Device),
    targets: impl FnOnce(T::Config, &T::Data) -> Result<T::Targets, DataError>,
    ranks: Arc<dyn Communicator>,
) -> Result<TaskEvaluation, TaskError>
where
    T::Config: Pretrained<Model = T::Net>,
{
    let (config, model, vocabulary) = load::<T::Config>(folder, checkpoint, device)?;
    let (folder, recipe) = open_run::<T>(folder)?;
    let targets = targets(config, &recipe.data)?;
    let keys = T::source(&recipe.data);
    let records = match measured::<T>(&folder, &recipe, asked, (keys.split, T::ENDINGS))? {
        Measured::Files(files) => (name_of(&files), read_all(&files, |file| T::read_file(&recipe.data, file))?),
        Measured::HeldOut => (folder.validation_pairs(), T::read_stored(&recipe.data, &folder.validation_pairs())?),
    };
    let (count, began) = (records.1.len(), Instant::now());
    let data = RecordData::<T>::measured(&recipe, (vocabulary, targets), records)?;
    agree_on_examples(ranks.clone(), data.validation_records().iter().map(|record| format!("{record:?}")))?;
    let task = TrainingModule::new(model, T::Loss::default());
    let mut evaluator = T::evaluator(&data, &recipe);
    let about = (data.loss_unit(), count, began);
    Ok(TaskEvaluation::on(&task, data.reading(device)?.as_ref(), evaluator.as_mut(), about, ranks)?)
}

/// What is measured of a run: see [`measured_in`].
pub(crate) fn measured<T: Task<Error = TaskError>>(
    folder: &ModelFolder,
    recipe: &RecipeOf<T>,
    data: Asked<'_>,
    splits: (&SplitConfig, &[&str]),
) -> Result<Measured, TaskError> {
    // Data that cannot be read was not trained on; whoever reads it next says why.
    let is_trained_on = |data: &Path| {
        let own = T::DataModule::open(recipe, folder);
        own.and_then(|own| own.is_of(recipe, &[data.into()])).unwrap_or(false)
    };
    measured_in(data, splits, is_trained_on)
}
