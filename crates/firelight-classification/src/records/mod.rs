//! Tasks that put a text encoder on records, such as labelled texts, tagged sentences or questions: a task says through
//! [`RecordTask`] what a record is and what the model reads of it. How records are split, kept in a run folder, batched and
//! measured stands here once.

mod data;
mod evaluate;
mod files;
mod judged;
mod parts;
mod self_check;

use std::fmt::Debug;
use std::path::Path;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::Tensor;
use firelight_core::{ConfigError, TransformerConfig};
use firelight_data::{Batching, DataError, SplitConfig, TokenizerConfig, check_workers};
use firelight_storage::TaskError;
use firelight_training::{Objective, RecipeOf, Task};
use serde::Serialize;

pub use data::RecordData;

pub(crate) use evaluate::{measured, measurement};
pub(crate) use files::{Measured, no_data};
pub(crate) use judged::{Judged, scores, values};
pub(crate) use parts::{Parts, classes_of, name_of, read_all};
pub(crate) use self_check::{EXAMPLES, checks, first_row, self_check};

use crate::data::EncodedText;
use crate::encoder::TextInput;
use crate::vocabulary::TextVocabulary;

/// What one step of a task reads.
pub(crate) type BatchOf<T> = <<T as Task>::Net as Objective>::Batch;

/// A task with a text encoder on records.
pub trait RecordTask:
    Task<DataModule = RecordData<Self>, Error = TaskError, Model: AsRef<TransformerConfig>, Loss: Default>
{
    /// The endings of files, in the order in which they are looked for.
    const ENDINGS: &'static [&'static str];

    /// A record, as files have it and a run folder keeps it.
    type Record: Clone + Debug + PartialEq + Serialize;
    /// What the model reads of a record, or of a part of it: a row of a batch.
    type Example: Clone + Debug + Send + Sync + 'static;
    /// What the training records say of all of them, such as their classes.
    type Targets: Clone + Debug;
    /// Stacks examples.
    type Batcher: Batcher<Self::Example, BatchOf<Self>> + Default + 'static;

    /// The keys of `[data]` that all these tasks have.
    fn source(data: &Self::Data) -> Source<'_>;

    /// Takes over into the recipe what the training data decides.
    ///
    /// # Errors
    /// If the recipe does not fit the data.
    fn settle(_recipe: &mut RecipeOf<Self>, _data: &RecordData<Self>) -> Result<(), TaskError> {
        Ok(())
    }

    /// Takes over into the recipe of a resumed run what [`settle`](Self::settle) decided.
    fn recall(_recipe: &mut RecipeOf<Self>, _stored: &RecipeOf<Self>) {}

    /// The records of a file.
    ///
    /// # Errors
    /// If the file cannot be read, or a line is no record.
    fn read_file(data: &Self::Data, file: &Path) -> Result<Vec<Self::Record>, DataError>;

    /// The records that a run folder keeps.
    ///
    /// # Errors
    /// If the file cannot be read, or a line is no record.
    fn read_stored(data: &Self::Data, file: &Path) -> Result<Vec<Self::Record>, DataError> {
        Self::read_file(data, file)
    }

    /// The class of each record, of which as large a share is held out as all have.
    fn classes(_data: &Self::Data, records: &[Self::Record]) -> Vec<usize> {
        vec![0; records.len()]
    }

    /// What a tokenizer learns from.
    fn text(records: &[Self::Record]) -> String;

    /// What the records to train on say of all of them; `held_out` are those that were read from the same file.
    ///
    /// # Errors
    /// If they do not say it, as with a single class.
    fn targets(
        data: &Self::Data,
        training: &[Self::Record],
        held_out: &[Self::Record],
    ) -> Result<Self::Targets, DataError>;

    /// What a model reads of the records of a file, in their order.
    ///
    /// # Errors
    /// If the tokenizer does not know a character, a record is too long, or has another target than those of the training.
    fn encode(
        data: &Self::Data,
        targets: &Self::Targets,
        vocabulary: &TextVocabulary,
        records: (&Path, &[Self::Record]),
        max_seq_len: usize,
    ) -> Result<Vec<Self::Example>, TaskError>;

    /// The tokens of an example.
    fn tokens(example: &Self::Example) -> &EncodedText;

    /// How much there is to train and validate on, in words.
    fn sizes(data: &RecordData<Self>) -> String;

    /// What the loss counts.
    fn loss_unit(_targets: &Self::Targets) -> String {
        format!("nats per {}", Self::TARGET)
    }

    /// The same structure without dropout and adapters.
    fn quiet(config: &Self::Config) -> Self::Config;

    /// Among how many a guess chooses; none where nothing can be guessed.
    fn choices(config: &Self::Config) -> Option<usize>;

    /// What the model says of the first of some texts, whose first tokens, so many, are not padding.
    fn first_answer(model: &Self::Net, texts: &TextInput, tokens: usize) -> Tensor<1>;
}

/// The keys of `[data]` that all tasks on records have.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// What is trained on, and what is only validated on.
    pub split: &'a SplitConfig,
    /// How texts become tokens.
    pub tokenizer: &'a TokenizerConfig,
    /// How many examples a batch has.
    pub batching: Batching,
    /// Threads that read batches ahead.
    pub workers: usize,
}

impl Source<'_> {
    /// # Errors
    /// Lists every key that does not fit, these and the `own` of a task.
    pub(crate) fn validate(&self, own: impl IntoIterator<Item = Option<String>>) -> Result<(), ConfigError> {
        let shared = [
            self.split.problem(),
            self.batching.validate().err().map(|error| format!("data: {error}")),
            check_workers(self.workers),
        ];
        ConfigError::collect([], shared.into_iter().chain(own))
    }
}

/// The [`Source`] of a `[data]` section: serde cannot refuse unknown keys of a section that is flattened into another, so each has the
/// fields itself.
macro_rules! source {
    ($data:expr) => {
        $crate::records::Source {
            split: &$data.split,
            tokenizer: &$data.tokenizer,
            batching: $data.batching,
            workers: $data.workers,
        }
    };
}
pub(crate) use source;

/// The defaults of a `[data]` section that has the keys of a [`Source`], and beside them its own.
macro_rules! source_defaults {
    ($data:ident { $($own:ident: $value:expr),* $(,)? }) => {
        impl Default for $data {
            fn default() -> Self {
                Self {
                    split: firelight_data::SplitConfig::default(),
                    tokenizer: firelight_data::TokenizerConfig::Word { min_frequency: 2 },
                    batching: firelight_data::Batching::Buckets { buckets: 16 },
                    workers: 0,
                    $($own: $value,)*
                }
            }
        }
    };
}
pub(crate) use source_defaults;

/// The parts of a [`Task`] on records: what a batch costs whose logits are hardly any, and what its model must be able to do.
macro_rules! on_records {
    () => {
        fn batch_cost(
            recipe: &firelight_training::RecipeOf<Self>,
            config: &Self::Config,
            _device: &burn::tensor::Device,
        ) -> firelight_training::BatchCost {
            let length = config.encoder.transformer.max_seq_len;
            let cost = config.init_with(&firelight_core::ParamBuilder::counting()).cost(length);
            let tokens = recipe.data.batching.max_batch_tokens(recipe.training.batch_size, length);
            firelight_tasks::cost_of(&cost, 0, tokens)
        }

        fn self_check(run: &firelight_training::Run<Self>) -> Result<Vec<firelight_training::Check>, Self::Error> {
            $crate::records::self_check(run)
        }
    };
}
pub(crate) use on_records;

#[cfg(test)]
pub(crate) mod block_tests;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use burn::data::dataloader::DataLoader;
    use burn::data::dataset::InMemDataset;
    use burn::tensor::Device;
    use firelight_data::StepLoader;
    use firelight_training::{Run, TrainingModule, assert_shared};
    use std::sync::Arc;

    /// The scores of the model that a run begins with, which ranks share, in batches of three examples.
    pub(crate) fn shared_scores<T: RecordTask>(run: &Run<T>) -> Vec<f64> {
        let needed = || {
            let examples = InMemDataset::new(run.corpus.validation().to_vec());
            let batcher = T::Batcher::default();
            let loader = StepLoader::<T::Example, BatchOf<T>>::new(examples, batcher, 3, &Device::default());
            let loader: Arc<dyn DataLoader<BatchOf<T>>> = Arc::new(loader);
            let task = TrainingModule::new(run.model().clone(), T::Loss::default());
            (task, loader, T::evaluator(&run.corpus, &run.recipe))
        };
        assert_shared::<TrainingModule<T::Net>>(needed).1
    }
}
