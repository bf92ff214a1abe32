//! What the validation of a pre-training measures beside its loss, in one pass over the validation texts for all scores.

use std::sync::{Arc, Mutex, PoisonError};

use burn::module::Module;
use burn::tensor::Tensor;
use firelight_training::{TrainingError, ValidationMetric};

use super::corpus::validation_loader;
use super::examples::{Examples, PretrainingBatch};
use super::objective::PretrainingTask;
use super::{next_sentence, replaced};
use crate::error::ClassificationError;
use crate::objectives::{PretrainingModel, PretrainingObjective};

/// The scores of an objective, and whether a higher one is better.
fn names(objective: PretrainingObjective) -> &'static [(&'static str, bool)] {
    match objective {
        PretrainingObjective::Masked => &[],
        PretrainingObjective::MaskedAndNextSentence => &next_sentence::SCORES,
        PretrainingObjective::Replaced(_) => &replaced::SCORES,
    }
}

/// The metrics of a run.
pub(super) fn metrics(
    objective: PretrainingObjective,
    validation: &Examples,
) -> Vec<Box<dyn ValidationMetric<PretrainingTask>>> {
    let measured = Arc::new(Measured { examples: validation.clone(), found: Mutex::default() });
    let metric = |(place, &(name, higher_is_better))| {
        let measured = measured.clone();
        Box::new(Scored { name, higher_is_better, place, measured }) as Box<dyn ValidationMetric<PretrainingTask>>
    };
    names(objective).iter().enumerate().map(metric).collect()
}

/// The scores of a model, in their order.
fn scores(model: &PretrainingModel, examples: &Examples) -> Result<Vec<f64>, ClassificationError> {
    let device = model.devices().into_iter().next().unwrap_or_default();
    let mut sums: Vec<f64> = Vec::new();
    for batch in validation_loader(examples, &device)?.iter() {
        let batch = batch.map_err(|cause| TrainingError::Data { part: "validation", cause })?;
        let of_batch = sums_of(model, batch).try_into_vec_as::<f64>();
        let of_batch = of_batch.map_err(ClassificationError::device("the scores of the validation texts"))?;
        sums.resize(of_batch.len(), 0.0);
        sums.iter_mut().zip(of_batch).for_each(|(sum, more)| *sum += more);
    }
    Ok(scores_of(model, &sums))
}

fn sums_of(model: &PretrainingModel, batch: PretrainingBatch) -> Tensor<1> {
    match (model, batch) {
        (PretrainingModel::NextSentence(model), PretrainingBatch::NextSentence(batch)) => {
            next_sentence::sums(model, batch)
        }
        (PretrainingModel::Replaced(model), PretrainingBatch::Replaced(batch)) => replaced::sums(model, batch),
        _ => panic!("only objectives with scores are measured, on their own batches"),
    }
}

fn scores_of(model: &PretrainingModel, sums: &[f64]) -> Vec<f64> {
    match model {
        PretrainingModel::NextSentence(_) => next_sentence::scores(sums),
        PretrainingModel::Replaced(_) => replaced::scores(sums),
        PretrainingModel::Masked(_) => Vec::new(),
    }
}

/// What is measured at every evaluation, once for all scores.
struct Measured {
    examples: Examples,
    /// What the first score of an evaluation has left for the others.
    found: Mutex<Vec<f64>>,
}

impl Measured {
    fn score(&self, model: &PretrainingModel, place: usize) -> Result<f64, ClassificationError> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if place == 0 {
            *found = scores(model, &self.examples)?;
        }
        Ok(found[place])
    }
}

/// One score.
struct Scored {
    name: &'static str,
    higher_is_better: bool,
    place: usize,
    measured: Arc<Measured>,
}

impl ValidationMetric<PretrainingTask> for Scored {
    fn name(&self) -> &str {
        self.name
    }

    fn higher_is_better(&self) -> bool {
        self.higher_is_better
    }

    fn measure(&mut self, task: &PretrainingTask) -> Result<f64, TrainingError> {
        let failed = |error: ClassificationError| TrainingError::Metric { name: self.name, reason: error.to_string() };
        self.measured.score(&task.model, self.place).map_err(failed)
    }
}
