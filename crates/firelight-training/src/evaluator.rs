//! Scores of a task beside the loss, such as the accuracy of a classifier, from the outputs of the one pass over the validation data.
//! [`TrainingConfig::monitor`](crate::TrainingConfig::monitor) may name one of them.

mod proof;

use burn::train::InferenceStep;

use firelight_storage::{InputError, shortened};

use crate::config::LOSS;
use crate::{Alone, Communicator, TrainingError};

pub use proof::assert_shared;

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
/// On several ranks each of them evaluates all batches for such an evaluator. [`Shared`] is one for which they share the
/// batches.
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

    /// What the outputs of the last pass look like, such as a confusion matrix: headings and SVG elements, which are empty before the first
    /// [`finish`](Self::finish). None, which is the default, says that it draws nothing, so that nobody makes a pass for it.
    fn figures(&self) -> Option<Vec<(String, String)>> {
        None
    }

    /// What it makes its scores with, where ranks share the batches ([`Shared`]). Default: nothing.
    fn shared(&mut self) -> Option<&mut dyn SharedEvaluator<M>> {
        None
    }
}

/// Makes scores of no more than some numbers of each batch, so that several ranks share the batches: each rank computes its own,
/// and all of them take up the numbers of all, in the order of the batches. One process makes the scores of the same numbers. A test of
/// it may call [`assert_shared`]. [`Shared`] makes it an [`Evaluator`].
///
/// ```
/// use burn::train::{ClassificationOutput, InferenceStep};
/// use firelight_training::{Communicator, Evaluator, Score, Shared, SharedEvaluator, TrainingError};
///
/// #[derive(Default)]
/// struct Accuracy {
///     right: f64,
///     all: f64,
/// }
///
/// impl<M: InferenceStep<Output = ClassificationOutput>> SharedEvaluator<M> for Accuracy {
///     fn scores(&self) -> Vec<Score> {
///         vec![Score::higher("accuracy")]
///     }
///
///     fn batch_statistics(&self, output: &ClassificationOutput) -> Result<Vec<Vec<f64>>, TrainingError> {
///         let found = output.output.clone().argmax(1).squeeze_dim::<1>(1);
///         let right = found.equal(output.targets.clone()).int().sum().into_scalar::<i64>() as f64;
///         Ok(vec![vec![right, output.targets.dims()[0] as f64]])
///     }
///
///     fn update(&mut self, statistics: Vec<Vec<f64>>) -> Result<(), TrainingError> {
///         for row in statistics {
///             self.right += row[0];
///             self.all += row[1];
///         }
///         Ok(())
///     }
///
///     fn finish(&mut self, _model: &M, _ranks: &dyn Communicator) -> Result<Vec<f64>, TrainingError> {
///         let Self { right, all } = std::mem::take(self);
///         Ok(vec![right / all])
///     }
/// }
///
/// fn evaluator<M: InferenceStep<Output = ClassificationOutput>>() -> Box<dyn Evaluator<M>> {
///     Box::new(Shared(Accuracy::default()))
/// }
/// ```
pub trait SharedEvaluator<M: InferenceStep>: Send {
    /// The scores, in their order.
    fn scores(&self) -> Vec<Score>;

    /// What the scores need of the output of a batch, as rows of numbers, which may be of different lengths: for example counts of right
    /// and of all answers, or the truth and the logits of each item. They come to [`update`](Self::update) with the same bits. Whole numbers
    /// up to 2^53 are exact.
    ///
    /// # Errors
    /// What an evaluator returns stops the training.
    #[doc(alias = "sufficient statistics")]
    fn batch_statistics(&self, output: &M::Output) -> Result<Vec<Vec<f64>>, TrainingError>;

    /// Takes up the [statistics](Self::batch_statistics) of the next batch; batches come in the order of the validation loader, on every
    /// rank all of them.
    ///
    /// # Errors
    /// What an evaluator returns stops the training.
    fn update(&mut self, statistics: Vec<Vec<f64>>) -> Result<(), TrainingError>;

    /// The values of the scores, in their order and the same on every rank, and a fresh start. `model`, which has no gradients and no
    /// dropout, is there for what takes more than the outputs, such as generated text, and `ranks` for sharing that work
    /// ([`deal_to_all`](crate::deal_to_all)).
    ///
    /// # Errors
    /// What an evaluator returns stops the training.
    fn finish(&mut self, model: &M, ranks: &dyn Communicator) -> Result<Vec<f64>, TrainingError>;

    /// As [`Evaluator::figures`].
    fn figures(&self) -> Option<Vec<(String, String)>> {
        None
    }
}

/// The [`Evaluator`] that a [`SharedEvaluator`] is: `Box::new(Shared(evaluator))` is what a training takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shared<E>(pub E);

impl<M: InferenceStep, E: SharedEvaluator<M>> Evaluator<M> for Shared<E> {
    fn scores(&self) -> Vec<Score> {
        self.0.scores()
    }

    fn observe(&mut self, output: &M::Output) -> Result<(), TrainingError> {
        let statistics = self.0.batch_statistics(output)?;
        self.0.update(statistics)
    }

    fn finish(&mut self, model: &M) -> Result<Vec<f64>, TrainingError> {
        self.0.finish(model, &Alone)
    }

    fn figures(&self) -> Option<Vec<(String, String)>> {
        self.0.figures()
    }

    fn shared(&mut self) -> Option<&mut dyn SharedEvaluator<M>> {
        Some(&mut self.0)
    }
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
