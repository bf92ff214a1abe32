//! How well a trained reader answers the questions of a split.

use firelight_storage::TaskError;
use firelight_training::{AskedData, MeasuredTask, Measurement, OpenedRun, TaskEvaluation};

use super::{QuestionAnswering, QuestionsRecipe};
use crate::model::SpanReaderConfig;
use crate::records::measurement;

impl MeasuredTask for QuestionAnswering {
    type Options = ();
    type Report = TaskEvaluation;

    /// The file `DIR/split.jsonl`; the tokenizer and the windows are those of the training. Which questions are measured without a split,
    /// [`Classification`](crate::Classification) says.
    ///
    /// # Errors
    /// If the folder is no run of this task, there is no such split, a file is to have splits, or an answer does not stand where its line
    /// says.
    fn measured(run: &OpenedRun<'_, Self>, asked: AskedData<'_>, (): &()) -> Result<Measurement<Self>, TaskError> {
        measurement(run, asked, |config: SpanReaderConfig, _: &QuestionsRecipe| Ok(config.reading))
    }
}
