//! What the validation of a pre-training measures beside its loss.

use burn::tensor::Tensor;
use firelight_training::{Communicator, Score, SharedEvaluator, TrainingError, ValidOutput};

use super::objective::PretrainingTask;
use super::{next_sentence, replaced};
use crate::objectives::PretrainingObjective;

/// The scores of an objective, of the sums that its models hand out.
#[derive(Debug)]
pub(super) struct PretrainingScores {
    objective: PretrainingObjective,
    sums: Vec<f64>,
}

impl PretrainingScores {
    pub(super) fn of(objective: PretrainingObjective) -> Self {
        Self { objective, sums: Vec::new() }
    }
}

impl SharedEvaluator<PretrainingTask> for PretrainingScores {
    fn scores(&self) -> Vec<Score> {
        match self.objective {
            PretrainingObjective::Masked => Vec::new(),
            PretrainingObjective::MaskedAndNextSentence => next_sentence::SCORES.to_vec(),
            PretrainingObjective::Replaced(_) => replaced::SCORES.to_vec(),
        }
    }

    /// The sums of the batch, where there are any.
    fn batch_statistics(&self, output: &ValidOutput<Option<Tensor<1>>>) -> Result<Vec<Vec<f64>>, TrainingError> {
        let sums = output.answers.clone().map(|sums| sums.try_into_vec_as::<f64>());
        let sums = sums.transpose().map_err(TrainingError::device("scores of the validation texts"))?;
        Ok(sums.into_iter().collect())
    }

    fn update(&mut self, statistics: Vec<Vec<f64>>) -> Result<(), TrainingError> {
        for sums in statistics {
            self.sums.resize(sums.len(), 0.0);
            self.sums.iter_mut().zip(sums).for_each(|(sum, more)| *sum += more);
        }
        Ok(())
    }

    fn finish(&mut self, _task: &PretrainingTask, _ranks: &dyn Communicator) -> Result<Vec<f64>, TrainingError> {
        let sums = std::mem::take(&mut self.sums);
        Ok(match self.objective {
            PretrainingObjective::Masked => Vec::new(),
            PretrainingObjective::MaskedAndNextSentence => next_sentence::scores(&sums),
            PretrainingObjective::Replaced(_) => replaced::scores(&sums),
        })
    }
}
