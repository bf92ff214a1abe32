//! What an evaluation of a task on records takes: the model, and the records of a split.

use std::path::Path;

use firelight_data::{DataError, SplitConfig};
use firelight_storage::{ModelFolder, TaskError};
use firelight_training::{AskedData, DataModule, Measurement, OpenedRun, RecipeOf, Task, TrainingModule};

use super::files::{Measured, measured_in};
use super::{RecordData, RecordTask, name_of, read_all};
use crate::pretrained::{Pretrained, load};

/// Takes the records that [`measured_in`] finds; `targets` are those of the training, by the structure of the model.
pub(crate) fn measurement<T: RecordTask + 'static>(
    run: &OpenedRun<'_, T>,
    asked: AskedData<'_>,
    targets: impl FnOnce(T::Config, &T::Data) -> Result<T::Targets, DataError>,
) -> Result<Measurement<T>, TaskError>
where
    T::Config: Pretrained<Model = T::Net>,
{
    let (config, model, vocabulary) = load::<T::Config>(run.folder.path(), run.checkpoint, run.device)?;
    let (folder, recipe) = (&run.folder, &run.recipe);
    let targets = targets(config, &recipe.data)?;
    let keys = T::source(&recipe.data);
    let records = match measured::<T>(folder, recipe, asked, (keys.split, T::ENDINGS))? {
        Measured::Files(files) => (name_of(&files), read_all(&files, |file| T::read_file(&recipe.data, file))?),
        Measured::HeldOut => (folder.validation_pairs(), T::read_stored(&recipe.data, &folder.validation_pairs())?),
    };
    let data = RecordData::<T>::measured(recipe, (vocabulary, targets), records)?;
    Ok(Measurement {
        task: TrainingModule::new(model, T::Loss::default()),
        loader: data.reading(run.device)?,
        evaluator: T::evaluator(&data, recipe),
        loss_unit: data.loss_unit(),
        count: data.validation_records().len(),
        examples: Box::new(move |digest| {
            digest.extend(data.validation_records().iter().map(|record| format!("{record:?}")));
        }),
    })
}

/// What is measured of a run: see [`measured_in`].
pub(crate) fn measured<T: Task<Error = TaskError>>(
    folder: &ModelFolder,
    recipe: &RecipeOf<T>,
    data: AskedData<'_>,
    splits: (&SplitConfig, &[&str]),
) -> Result<Measured, TaskError> {
    // Data that cannot be read was not trained on; whoever reads it next says why.
    let is_trained_on = |data: &Path| {
        let own = T::DataModule::open(recipe, folder);
        own.and_then(|own| own.is_of(recipe, &[data.into()])).unwrap_or(false)
    };
    measured_in(data, splits, is_trained_on)
}
