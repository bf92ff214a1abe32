//! What a finished model is worth, whatever its task is.

use std::sync::Arc;
use std::time::Instant;

use burn::data::dataloader::DataLoader;
use serde::{Serialize, Serializer};

use crate::{Alone, Communicator, Evaluator, Objective, TrainingError, TrainingModule, measure_on};

/// The loss and the scores of a model on a part of some data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskEvaluation {
    /// The mean loss without weights and smoothing.
    pub loss: f64,
    /// What it counts, as people read it behind the number: `nats per token`.
    #[serde(skip)]
    pub loss_unit: String,
    /// The scores by name, in their order: those that `training.monitor` may name, and in JSON fields beside the others. What the
    /// data does not define, such as the area under the curve of one class, is left out.
    #[serde(flatten, serialize_with = "fields")]
    pub scores: Vec<(&'static str, f64)>,
    /// Number of examples: texts, sentences, questions or images.
    pub examples: usize,
    /// How many targets the loss is the mean over, such as tokens.
    #[serde(skip)]
    pub targets: u64,
    /// Seconds from the data to the scores.
    pub seconds: f64,
}

impl TaskEvaluation {
    /// What one pass over `loader` finds, with the unit of the loss, the number of examples, and when reading them began.
    ///
    /// # Errors
    /// As [`measure`](crate::measure).
    pub fn of<M: Objective>(
        task: &TrainingModule<M>,
        loader: &dyn DataLoader<M::Batch>,
        evaluator: &mut dyn Evaluator<TrainingModule<M>>,
        about: (String, usize, Instant),
    ) -> Result<Self, TrainingError> {
        Self::on(task, loader, evaluator, about, Arc::new(Alone))
    }

    /// As [`of`](Self::of), on several ranks, which share the batches and find the same. Each rank calls it, after
    /// [`agree_on_examples`](crate::agree_on_examples).
    ///
    /// # Errors
    /// As [`measure_on`].
    pub fn on<M: Objective>(
        task: &TrainingModule<M>,
        loader: &dyn DataLoader<M::Batch>,
        evaluator: &mut dyn Evaluator<TrainingModule<M>>,
        (loss_unit, examples, began): (String, usize, Instant),
        communicator: Arc<dyn Communicator>,
    ) -> Result<Self, TrainingError> {
        let (found, values) = measure_on(task, loader, evaluator, communicator)?;
        let scores = evaluator.scores().iter().map(|score| score.name).zip(values).collect();
        let (targets, seconds) = (found.tokens, began.elapsed().as_secs_f64());
        Ok(Self { loss: found.loss, loss_unit, scores, examples, targets, seconds })
    }

    /// The score of this name.
    pub fn score(&self, name: &str) -> Option<f64> {
        self.scores.iter().find(|(found, _)| *found == name).map(|(_, value)| *value)
    }
}

fn fields<S: Serializer>(scores: &[(&'static str, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(scores.iter().copied())
}
