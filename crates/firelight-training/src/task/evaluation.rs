//! What a finished model is worth, whatever its task is.

use serde::{Serialize, Serializer};

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
    /// The score of this name.
    pub fn score(&self, name: &str) -> Option<f64> {
        self.scores.iter().find(|(found, _)| *found == name).map(|(_, value)| *value)
    }
}

fn fields<S: Serializer>(scores: &[(&'static str, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(scores.iter().copied())
}
