//! The loss of a pre-training, whatever its objective: every model reads the batches of its own.

use firelight_core::LossConfig;
use firelight_training::{LossOutput, Objective, Switches, TrainLoss, Trainee};

use super::examples::PretrainingBatch;
use crate::objectives::PretrainingModel;

/// A pre-training with its loss.
pub type PretrainingTask = Trainee<PretrainingModel>;

/// The batches of a run are drawn for its own objective.
const OTHER: &str = "a batch of the model's own objective";

impl Objective for PretrainingModel {
    type Batch = PretrainingBatch;
    type Loss = LossConfig;

    /// # Panics
    /// If the batch is for another objective.
    fn train_loss(&self, batch: PretrainingBatch, loss: &LossConfig, switches: Switches) -> TrainLoss {
        match (self, batch) {
            (Self::Masked(model), PretrainingBatch::Masked(batch)) => model.train_loss(batch, loss, switches),
            (Self::NextSentence(model), PretrainingBatch::NextSentence(batch)) => {
                model.train_loss(batch, loss, switches)
            }
            (Self::Replaced(model), PretrainingBatch::Replaced(batch)) => model.train_loss(batch, loss, switches),
            _ => panic!("{OTHER}"),
        }
    }

    /// # Panics
    /// If the batch is for another objective.
    fn valid_loss(&self, batch: PretrainingBatch, switches: Switches) -> LossOutput {
        match (self, batch) {
            (Self::Masked(model), PretrainingBatch::Masked(batch)) => model.valid_loss(batch, switches),
            (Self::NextSentence(model), PretrainingBatch::NextSentence(batch)) => model.valid_loss(batch, switches),
            (Self::Replaced(model), PretrainingBatch::Replaced(batch)) => model.valid_loss(batch, switches),
            _ => panic!("{OTHER}"),
        }
    }
}
