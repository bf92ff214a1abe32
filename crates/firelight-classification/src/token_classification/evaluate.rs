//! How well a trained model tags the sentences of a split.

use firelight_data::labelled::Labels;
use firelight_storage::TaskError;
use firelight_training::{AskedData, MeasuredTask, Measurement, OpenedRun, TaskEvaluation};

use super::{TaggedRecipe, TokenClassification};
use crate::model::TokenClassifierConfig;
use crate::records::measurement;

impl MeasuredTask for TokenClassification {
    type Options = ();
    type Report = TaskEvaluation;

    /// The file `DIR/split.conll` (or `.txt`, `.tsv`, `.jsonl`); the scheme, the tags and the tokenizer are those of the training. Which
    /// sentences are measured without a split, [`Classification`](crate::Classification) says.
    ///
    /// # Errors
    /// If the folder is no run of this task, there is no such split, a file is to have splits, or a word has a tag that the training did
    /// not have.
    fn measured(run: &OpenedRun<'_, Self>, asked: AskedData<'_>, (): &()) -> Result<Measurement<Self>, TaskError> {
        measurement(run, asked, |config: TokenClassifierConfig, _: &TaggedRecipe| Labels::new(config.labels))
    }
}
