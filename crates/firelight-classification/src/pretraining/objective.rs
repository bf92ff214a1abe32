//! The loss of a pre-training, whatever its objective: every model reads the batches of its own.

use burn::tensor::Tensor;
use firelight_core::LossConfig;
use firelight_training::{Objective, Switches, TrainLoss, TrainingModule, ValidOutput};

use super::examples::PretrainingBatch;
use crate::objectives::PretrainingModel;

/// A pre-training with its loss.
pub type PretrainingTask = TrainingModule<PretrainingModel>;

/// The batches of a run are drawn for its own objective.
const OTHER: &str = "a batch of the model's own objective";

impl Objective for PretrainingModel {
    type Batch = PretrainingBatch;
    type Loss = LossConfig;
    /// The sums of which the scores of the objective are made, where it has some.
    type Answers = Option<Tensor<1>>;

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
    fn valid_step(&self, batch: PretrainingBatch, switches: Switches) -> ValidOutput<Option<Tensor<1>>> {
        let ValidOutput { losses, answers } = match (self, batch) {
            (Self::Masked(model), PretrainingBatch::Masked(batch)) => {
                return ValidOutput::new(model.valid_step(batch, switches).losses, None);
            }
            (Self::NextSentence(model), PretrainingBatch::NextSentence(batch)) => model.valid_step(batch, switches),
            (Self::Replaced(model), PretrainingBatch::Replaced(batch)) => model.valid_step(batch, switches),
            _ => panic!("{OTHER}"),
        };
        ValidOutput::new(losses, Some(answers))
    }
}
