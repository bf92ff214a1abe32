//! The records of a run with their tokenizer: read and split when the run begins, kept in its folder.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::data::dataset::InMemDataset;
use burn::tensor::Device;
use firelight_data::{BatchPlan, StepLoader};
use firelight_storage::{ModelFolder, TaskError, write_json_lines};
use firelight_training::{DataModule, RecipeOf};
use serde::Serialize;

use super::{BatchOf, Parts, RecordTask, no_data};
use crate::vocabulary::TextVocabulary;

/// A loader of batches.
type Loader<O> = Arc<dyn DataLoader<O>>;

/// What a task on records is trained and validated on.
#[derive(Debug, Clone)]
pub struct RecordData<T: RecordTask> {
    vocabulary: TextVocabulary,
    targets: T::Targets,
    records: Parts<T::Record>,
    training: Vec<T::Example>,
    validation: Vec<T::Example>,
}

impl<T: RecordTask> RecordData<T> {
    /// The tokenizer.
    pub fn vocabulary(&self) -> &TextVocabulary {
        &self.vocabulary
    }

    /// What the training records say of all of them, such as their classes.
    pub fn targets(&self) -> &T::Targets {
        &self.targets
    }

    /// The records to train on.
    pub fn training_records(&self) -> &[T::Record] {
        &self.records.training
    }

    /// The records to validate on.
    pub fn validation_records(&self) -> &[T::Record] {
        &self.records.validation
    }

    /// What is trained on.
    pub fn training(&self) -> &[T::Example] {
        &self.training
    }

    /// What is validated on.
    pub fn validation(&self) -> &[T::Example] {
        &self.validation
    }

    /// The same of records alone that a finished model is measured on.
    pub(super) fn measured(
        recipe: &RecipeOf<T>,
        (vocabulary, targets): (TextVocabulary, T::Targets),
        (file, validation): (PathBuf, Vec<T::Record>),
    ) -> Result<Self, TaskError> {
        let records = Parts { training: Vec::new(), validation, files: [file.clone(), file], is_held_out: false };
        Self::encode(recipe, vocabulary, targets, records)
    }

    fn new(recipe: &RecipeOf<T>, vocabulary: TextVocabulary, records: Parts<T::Record>) -> Result<Self, TaskError> {
        let targets = T::targets(&recipe.data, &records.training, records.held_out())?;
        Self::encode(recipe, vocabulary, targets, records)
    }

    fn encode(
        recipe: &RecipeOf<T>,
        vocabulary: TextVocabulary,
        targets: T::Targets,
        records: Parts<T::Record>,
    ) -> Result<Self, TaskError> {
        let encode = |file: &Path, records: &[T::Record]| {
            T::encode(&recipe.data, &targets, &vocabulary, (file, records), recipe.model.as_ref().max_seq_len)
        };
        let [training_file, validation_file] = &records.files;
        let training = encode(training_file, &records.training)?;
        let validation = encode(validation_file, &records.validation)?;
        Ok(Self { vocabulary, targets, records, training, validation })
    }

    fn plan(&self, recipe: &RecipeOf<T>) -> Result<BatchPlan, TaskError> {
        let lengths = self.training.iter().map(length::<T>);
        Ok(BatchPlan::new(T::source(&recipe.data).batching, recipe.training.batch_size, lengths)?)
    }

    /// The validation examples once each, from the short to the long.
    pub(crate) fn reading(&self, device: &Device) -> Result<Loader<BatchOf<T>>, TaskError> {
        let lengths: Vec<usize> = self.validation.iter().map(length::<T>).collect();
        let examples = InMemDataset::new(self.validation.clone());
        Ok(Arc::new(StepLoader::to_read(examples, T::Batcher::default(), &lengths, device)?))
    }
}

impl<T: RecordTask> DataModule<T> for RecordData<T> {
    fn read(recipe: &mut RecipeOf<T>, source: &Path, paths: &[PathBuf]) -> Result<Self, TaskError> {
        let records = records_of::<T>(&recipe.data, source, paths)?;
        let tokenizer = T::source(&recipe.data).tokenizer;
        let vocabulary = TextVocabulary::begin(&recipe.init, tokenizer, || T::text(&records.training))?;
        let data = Self::new(recipe, vocabulary, records)?;
        T::settle(recipe, &data)?;
        Ok(data)
    }

    fn recall(recipe: &mut RecipeOf<T>, stored: &RecipeOf<T>) {
        T::recall(recipe, stored);
    }

    fn save(&self, folder: &ModelFolder) -> Result<(), TaskError> {
        self.vocabulary.save(folder)?;
        write_json_lines(folder.training_pairs(), &self.records.training)?;
        Ok(write_json_lines(folder.validation_pairs(), &self.records.validation)?)
    }

    fn open(recipe: &RecipeOf<T>, folder: &ModelFolder) -> Result<Self, TaskError> {
        let files = [folder.training_pairs(), folder.validation_pairs()];
        let [training, validation] = files.each_ref().map(|file| T::read_stored(&recipe.data, file));
        // The folder does not keep where the records to validate on are from: those of a file of their own have no target that is new.
        let records = Parts { training: training?, validation: validation?, files, is_held_out: true };
        Self::new(recipe, TextVocabulary::load(folder)?, records)
    }

    fn is_of(&self, recipe: &RecipeOf<T>, paths: &[PathBuf]) -> Result<bool, TaskError> {
        let (other, own) = (records_of::<T>(&recipe.data, Path::new(""), paths)?, &self.records);
        Ok(are_same(&other.training, &own.training) && are_same(&other.validation, &own.validation))
    }

    fn sizes(&self) -> String {
        T::sizes(self)
    }

    fn batches_per_epoch(&self, recipe: &RecipeOf<T>) -> Result<usize, TaskError> {
        Ok(self.plan(recipe)?.num_batches())
    }

    fn training_loader(
        &self,
        recipe: &RecipeOf<T>,
        batches: Range<usize>,
        device: &Device,
    ) -> Result<Loader<BatchOf<T>>, TaskError> {
        let examples = InMemDataset::new(self.training.clone());
        let loader = StepLoader::planned(examples, T::Batcher::default(), self.plan(recipe)?, device);
        Ok(Arc::new(loader.shuffled(recipe.seed, batches).with_workers(T::source(&recipe.data).workers)))
    }

    fn validation_loader(&self, _recipe: &RecipeOf<T>, device: &Device) -> Result<Loader<BatchOf<T>>, TaskError> {
        self.reading(device)
    }

    fn loss_unit(&self) -> String {
        T::loss_unit(&self.targets)
    }
}

fn length<T: RecordTask>(example: &T::Example) -> usize {
    T::tokens(example).ids.len()
}

fn records_of<T: RecordTask>(data: &T::Data, source: &Path, paths: &[PathBuf]) -> Result<Parts<T::Record>, TaskError> {
    let [path] = paths else { return Err(no_data(source).into()) };
    let keys = T::source(data);
    let files = keys.split.files(path, T::ENDINGS)?;
    let (read, classes) = (|file: &Path| T::read_file(data, file), |records: &[T::Record]| T::classes(data, records));
    Parts::read(&files, keys.split, read, classes)
}

/// Whether records say the same, on whatever lines they stand.
fn are_same<R: Serialize>(some: &[R], others: &[R]) -> bool {
    let content = |record: &R| {
        let mut content = serde_json::to_value(record).unwrap_or_default();
        content.as_object_mut().map(|keys| keys.remove("line"));
        content
    };
    some.iter().map(content).eq(others.iter().map(content))
}
