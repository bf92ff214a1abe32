//! What a run is trained and validated on.

use std::ops::Range;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use burn::train::{TrainLoader, ValidLoader};
use firelight_storage::ModelFolder;

use super::{RecipeOf, Task};
use crate::TrainingModule;

/// What a task is trained and validated on, with all that turns it into batches, such as a tokenizer: read when a run begins, and
/// kept in its folder.
pub trait DataModule<T: Task>: Sized {
    /// Reads the data at `paths`, or makes what the recipe generates, and learns from it what comes before the training. The
    /// recipe is changed where the data decides; `source` is its name in error messages.
    ///
    /// # Errors
    /// If the data cannot be read or does not fit the recipe.
    fn read(recipe: &mut RecipeOf<T>, source: &Path, paths: &[PathBuf]) -> Result<Self, T::Error>;

    /// Leaves out of the recipe what it would generate in the place of data, once data was given: the recipe in the run folder is not
    /// to promise it.
    fn forget_generated(_recipe: &mut RecipeOf<T>) {}

    /// Takes over into the recipe of a resumed run what reading the data decided when the run began. Default: that data was given.
    fn recall(recipe: &mut RecipeOf<T>, stored: &RecipeOf<T>) {
        let mut given = stored.clone();
        Self::forget_generated(&mut given);
        if given == *stored {
            Self::forget_generated(recipe);
        }
    }

    /// Writes the data into a run folder, so that the run can be resumed without its source.
    ///
    /// # Errors
    /// If a file cannot be written.
    fn save(&self, folder: &ModelFolder) -> Result<(), T::Error>;

    /// Reads the data of a run folder.
    ///
    /// # Errors
    /// If a file is missing or damaged, or files do not belong together.
    fn open(recipe: &RecipeOf<T>, folder: &ModelFolder) -> Result<Self, T::Error>;

    /// Whether it was made from the data at `paths`.
    ///
    /// # Errors
    /// If the data cannot be read.
    fn is_of(&self, recipe: &RecipeOf<T>, paths: &[PathBuf]) -> Result<bool, T::Error>;

    /// How much there is to train and validate on, in words: `90 tokens to train on, 10 to validate on`.
    fn sizes(&self) -> String;

    /// Batches in which a training sees all of its data once. They are steps where `training.gradient_accumulation_steps` is 1: a step
    /// has so many batches.
    ///
    /// # Errors
    /// If there is nothing to train on, or it does not fit into batches.
    fn batches_per_epoch(&self, recipe: &RecipeOf<T>) -> Result<usize, T::Error>;

    /// The training batches of these numbers, counted over the whole run.
    ///
    /// # Errors
    /// If the data does not fit into batches.
    fn training_loader(
        &self,
        recipe: &RecipeOf<T>,
        batches: Range<usize>,
        device: &Device,
    ) -> Result<TrainLoader<TrainingModule<T::Net>>, T::Error>;

    /// The validation batches.
    ///
    /// # Errors
    /// If there is nothing to validate on.
    fn validation_loader(
        &self,
        recipe: &RecipeOf<T>,
        device: &Device,
    ) -> Result<ValidLoader<TrainingModule<T::Net>>, T::Error>;

    /// What the loss of a training on this data counts, as people read it behind the number.
    fn loss_unit(&self) -> String {
        format!("nats per {}", T::TARGET)
    }
}
