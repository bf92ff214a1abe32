//! What the validation of a pre-training measures beside its loss.

use burn::tensor::Tensor;
use firelight_training::{Evaluator, Score, TrainingError, ValidOutput};

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

impl Evaluator<PretrainingTask> for PretrainingScores {
    fn scores(&self) -> Vec<Score> {
        match self.objective {
            PretrainingObjective::Masked => Vec::new(),
            PretrainingObjective::MaskedAndNextSentence => next_sentence::SCORES.to_vec(),
            PretrainingObjective::Replaced(_) => replaced::SCORES.to_vec(),
        }
    }

    fn observe(&mut self, output: &ValidOutput<Option<Tensor<1>>>) -> Result<(), TrainingError> {
        let Some(sums) = output.answers.clone() else { return Ok(()) };
        let sums: Vec<f64> = sums.try_into_vec_as().map_err(TrainingError::device("scores of the validation texts"))?;
        self.sums.resize(sums.len(), 0.0);
        self.sums.iter_mut().zip(sums).for_each(|(sum, more)| *sum += more);
        Ok(())
    }

    fn finish(&mut self, _task: &PretrainingTask) -> Result<Vec<f64>, TrainingError> {
        let sums = std::mem::take(&mut self.sums);
        Ok(match self.objective {
            PretrainingObjective::Masked => Vec::new(),
            PretrainingObjective::MaskedAndNextSentence => next_sentence::scores(&sums),
            PretrainingObjective::Replaced(_) => replaced::scores(&sums),
        })
    }
}
