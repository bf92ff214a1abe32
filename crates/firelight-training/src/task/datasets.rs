//! A run that is fed by Burn's datasets and a batcher: what a [`DataModule`] does is there once, whatever the items are.

mod noted;
mod shuffled;

use std::fmt::Debug;
use std::ops::Range;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{BatchDataLoader, DataLoader, FixBatchStrategy};
use burn::data::dataset::Dataset;
use burn::tensor::Device;
use firelight_storage::{InputError, ModelFolder, read_text_file};

use self::noted::{Contents, Noted};
use self::shuffled::Shuffled;
use super::{BatchOf, DataModule, RecipeOf, Task};
use crate::TrainingError;
use crate::checkpoint::write_json;

/// No note of data is larger, in bytes: it holds a few paths.
const LIMIT: u64 = 1 << 20;

/// A task that is trained on [`Datasets`].
pub trait DatasetTask: Task<DataModule = Datasets<Self>> {
    /// What the datasets hold, and the batcher stacks.
    type Item: Clone + Debug + Send + Sync + 'static;

    /// What is trained and validated on, from the files at `paths` or made as the recipe says. A resumed run asks for it again by the
    /// same recipe and paths, and goes on if the items are the same.
    ///
    /// # Errors
    /// If the data cannot be read or does not fit the recipe.
    fn datasets(recipe: &RecipeOf<Self>, paths: &[PathBuf]) -> Result<Datasets<Self>, Self::Error>;
}

/// Burn's datasets as a run reads them: `training.batch_size` items a batch, in an order that is new in every epoch and follows from
/// the seed, so that a step has the same batch wherever the run began. The items stay where they are; the run folder notes the paths,
/// and by a checksum what was there.
pub struct Datasets<T: DatasetTask> {
    training: Arc<dyn Dataset<T::Item>>,
    validation: Arc<dyn Dataset<T::Item>>,
    batcher: Arc<dyn Batcher<T::Item, BatchOf<T>>>,
    paths: Vec<PathBuf>,
}

impl<T: DatasetTask> Datasets<T> {
    /// What is trained on, what is validated on, and what stacks the items of either. An item must be the same whenever it is asked for;
    /// what is to differ from step to step belongs into the model's training pass.
    pub fn new(
        training: impl Dataset<T::Item> + 'static,
        validation: impl Dataset<T::Item> + 'static,
        batcher: impl Batcher<T::Item, BatchOf<T>> + 'static,
    ) -> Self {
        let (training, validation) = (Arc::new(training), Arc::new(validation));
        Self { training, validation, batcher: Arc::new(batcher), paths: Vec::new() }
    }

    /// What is trained on.
    pub fn training(&self) -> &dyn Dataset<T::Item> {
        self.training.as_ref()
    }

    /// What is validated on.
    pub fn validation(&self) -> &dyn Dataset<T::Item> {
        self.validation.as_ref()
    }

    fn contents(&self) -> Result<[Contents; 2], TrainingError> {
        Ok([Contents::of("training", self.training())?, Contents::of("validation", self.validation())?])
    }

    fn loader(
        &self,
        items: Arc<dyn Dataset<T::Item>>,
        batch_size: usize,
        device: &Device,
    ) -> BatchDataLoader<T::Item, BatchOf<T>> {
        let strategy = Box::new(FixBatchStrategy::new(batch_size));
        BatchDataLoader::new(strategy, items, self.batcher.clone(), device.clone(), None)
    }
}

impl<T: DatasetTask> DataModule<T> for Datasets<T> {
    fn read(recipe: &mut RecipeOf<T>, _source: &Path, paths: &[PathBuf]) -> Result<Self, T::Error> {
        Ok(Self { paths: paths.to_vec(), ..T::datasets(recipe, paths)? })
    }

    fn save(&self, folder: &ModelFolder) -> Result<(), T::Error> {
        let file = folder.datasets();
        // A run may be resumed from another folder.
        let paths = self.paths.iter().map(absolute).collect::<Result<_, _>>();
        let paths = paths.map_err(TrainingError::file("write", &file))?;
        let [training, validation] = self.contents()?;
        Ok(write_json(&file, &Noted { paths, training, validation })?)
    }

    fn open(recipe: &RecipeOf<T>, folder: &ModelFolder) -> Result<Self, T::Error> {
        let file = folder.datasets();
        let noted = serde_json::from_str::<Noted>(&read_text_file(&file, LIMIT)?);
        let noted = noted.map_err(TrainingError::damaged(&file))?;
        let found = T::datasets(recipe, &noted.paths)?;
        let [training, validation] = found.contents()?;
        training.check("training", &noted.training)?;
        validation.check("validation", &noted.validation)?;
        Ok(Self { paths: noted.paths, ..found })
    }

    fn is_of(&self, recipe: &RecipeOf<T>, paths: &[PathBuf]) -> Result<bool, T::Error> {
        Ok(T::datasets(recipe, paths)?.contents()? == self.contents()?)
    }

    fn sizes(&self) -> String {
        format!("{} items to train on, {} to validate on", self.training.len(), self.validation.len())
    }

    fn batches_per_epoch(&self, recipe: &RecipeOf<T>) -> Result<usize, T::Error> {
        check_filled("training", self.training())?;
        check_filled("validation", self.validation())?;
        Ok(self.training.len().div_ceil(recipe.training.batch_size))
    }

    fn training_loader(
        &self,
        recipe: &RecipeOf<T>,
        batches: Range<usize>,
        device: &Device,
    ) -> Result<Arc<dyn DataLoader<BatchOf<T>>>, T::Error> {
        let size = recipe.training.batch_size;
        let [start, end] = [batches.start, batches.end].map(|batch| batch.saturating_mul(size));
        let shuffled = Shuffled::new(self.training.clone(), recipe.seed, end);
        Ok(self.loader(Arc::new(shuffled), size, device).slice(start, end))
    }

    fn validation_loader(
        &self,
        recipe: &RecipeOf<T>,
        device: &Device,
    ) -> Result<Arc<dyn DataLoader<BatchOf<T>>>, T::Error> {
        Ok(Arc::new(self.loader(self.validation.clone(), recipe.training.batch_size, device)))
    }
}

/// Makes sure that there is an item.
fn check_filled<I>(part: &'static str, items: &dyn Dataset<I>) -> Result<(), TrainingError> {
    match items.is_empty() {
        true => Err(unfit(part, "the dataset is empty: expected at least one item")),
        false => Ok(()),
    }
}

/// The error of a dataset that cannot be trained or validated on.
fn unfit(part: &'static str, problem: &str) -> TrainingError {
    InputError::new(format!("cannot use the {part} data: {problem}")).into()
}

#[cfg(test)]
mod tests;
