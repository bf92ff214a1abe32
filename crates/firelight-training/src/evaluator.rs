//! Scores of a task beside the loss, such as the accuracy of a classifier, from the outputs of the one pass over the validation data.
//! [`TrainingConfig::monitor`](crate::TrainingConfig::monitor) may name one of them.

use burn::train::InferenceStep;

use firelight_storage::{InputError, shortened};

use crate::TrainingError;
use crate::config::LOSS;

/// A number that tells how good a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// The name in `metrics.jsonl` and in recipes: `accuracy`.
    pub name: &'static str,
    /// Whether a higher value is a better one.
    pub higher_is_better: bool,
}

impl Score {
    /// A score of which more is better.
    pub const fn higher(name: &'static str) -> Self {
        Self { name, higher_is_better: true }
    }

    /// A score of which less is better.
    pub const fn lower(name: &'static str) -> Self {
        Self { name, higher_is_better: false }
    }
}

/// Makes scores from what a model answers in an evaluation. The same one serves every evaluation of a training, and the `evaluate`
/// commands.
///
/// ```
/// use burn::train::{ClassificationOutput, InferenceStep};
/// use firelight_training::{Evaluator, Score, TrainingError};
///
/// #[derive(Default)]
/// struct Accuracy {
///     right: f64,
///     all: f64,
/// }
///
/// impl<M: InferenceStep<Output = ClassificationOutput>> Evaluator<M> for Accuracy {
///     fn scores(&self) -> Vec<Score> {
///         vec![Score::higher("accuracy")]
///     }
///
///     fn observe(&mut self, output: &ClassificationOutput) -> Result<(), TrainingError> {
///         let found = output.output.clone().argmax(1).squeeze_dim::<1>(1);
///         self.right += found.equal(output.targets.clone()).int().sum().into_scalar::<i64>() as f64;
///         self.all += output.targets.dims()[0] as f64;
///         Ok(())
///     }
///
///     fn finish(&mut self, _model: &M) -> Result<Vec<f64>, TrainingError> {
///         let Self { right, all } = std::mem::take(self);
///         Ok(vec![right / all])
///     }
/// }
/// ```
pub trait Evaluator<M: InferenceStep>: Send {
    /// The scores, in their order.
    fn scores(&self) -> Vec<Score>;

    /// Takes up the output of the next batch; batches come in the order of the validation loader.
    ///
    /// # Errors
    /// What an evaluator returns stops the training.
    fn observe(&mut self, output: &M::Output) -> Result<(), TrainingError>;

    /// The values of the scores, in their order, and a fresh start. `model`, which has no gradients and no dropout, is there for what
    /// takes more than the outputs, such as generated text.
    ///
    /// # Errors
    /// What an evaluator returns stops the training.
    fn finish(&mut self, model: &M) -> Result<Vec<f64>, TrainingError>;
}

/// The loss alone.
impl<M: InferenceStep> Evaluator<M> for () {
    fn scores(&self) -> Vec<Score> {
        Vec::new()
    }

    fn observe(&mut self, _output: &M::Output) -> Result<(), TrainingError> {
        Ok(())
    }

    fn finish(&mut self, _model: &M) -> Result<Vec<f64>, TrainingError> {
        Ok(Vec::new())
    }
}

/// The score that decides which evaluation is the best; none is the loss.
///
/// # Errors
/// If `monitor` is the name of none.
pub(crate) fn deciding(scores: &[Score], monitor: &str) -> Result<Option<Score>, InputError> {
    let known = || [LOSS].into_iter().chain(scores.iter().map(|score| score.name)).collect::<Vec<_>>().join(", ");
    match scores.iter().find(|score| score.name == monitor) {
        None if monitor != LOSS => Err(InputError::new(format!(
            "`training.monitor` is `{}`, which this task does not measure: expected one of {}",
            shortened(monitor),
            known()
        ))),
        found => Ok(found.copied()),
    }
}
