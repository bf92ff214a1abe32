//! How well a trained model answers for the texts of a split.

use firelight_storage::TaskError;
use firelight_training::{AskedData, MeasuredTask, Measurement, OpenedRun, TaskEvaluation};

use super::targets::Targets;
use super::{Classification, LabelledRecipe};
use crate::model::TextClassifierConfig;
use crate::records::measurement;

impl MeasuredTask for Classification {
    type Options = ();
    type Report = TaskEvaluation;

    /// The file `DIR/split.tsv` (or `.csv`, `.jsonl`); columns, labels and tokenizer are those of the training. Without a split it is the
    /// file that the run validates on, or a file in the place of `DIR`. Where a run held back some of its training texts, and the data
    /// is these texts, it is those that were held back. Without data it is what the run validates on, as its folder keeps it.
    ///
    /// # Errors
    /// If the folder is no run of this task, or keeps no texts where no data is given, there is no such split, a file is to have splits, or
    /// a text has a label that the training did not have, or no number in a regression.
    fn measured(run: &OpenedRun<'_, Self>, asked: AskedData<'_>, (): &()) -> Result<Measurement<Self>, TaskError> {
        let targets =
            |config: TextClassifierConfig, data: &LabelledRecipe| Targets::named(&data.problem_type, config.labels);
        measurement(run, asked, targets)
    }
}
