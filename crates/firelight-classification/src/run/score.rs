//! What a classifier is worth at an evaluation: accuracy and macro F1 of the validation texts, which are read once for both.

use std::sync::{Arc, Mutex, PoisonError};

use firelight_training::metrics::classes::{ClassReport, class_report};
use firelight_training::{TrainingError, ValidationMetric};

use super::LabelledCorpus;
use crate::classifier::log_probabilities;
use crate::data::{EncodedText, Example};
use crate::error::ClassificationError;
use crate::model::TextClassifier;
use crate::training::ClassifierTask;

/// A number of a report.
type Score = fn(&ClassReport) -> f64;

/// The metrics of a run, in the order in which they are measured.
pub(super) fn metrics(corpus: &LabelledCorpus) -> Vec<Box<dyn ValidationMetric<ClassifierTask>>> {
    let predictions = Arc::new(Predictions { examples: corpus.validation().to_vec(), found: Mutex::default() });
    let named: [(&'static str, Score); 2] =
        [("accuracy", |report| report.accuracy), ("macro_f1", |report| report.macro_f1)];
    let metric = |(name, score)| {
        let predictions = predictions.clone();
        Box::new(Scored { name, score, predictions }) as Box<dyn ValidationMetric<ClassifierTask>>
    };
    named.into_iter().map(metric).collect()
}

/// How the examples are classified, with their mean cross-entropy in nats.
pub(super) fn report(model: &TextClassifier, examples: &[Example]) -> Result<(ClassReport, f64), ClassificationError> {
    let texts: Vec<EncodedText> = examples.iter().map(|example| example.text.clone()).collect();
    let rows = log_probabilities(model, &texts)?;
    let targets: Vec<usize> = examples.iter().map(|example| example.class).collect();
    let loss = -rows.iter().zip(&targets).map(|(row, &class)| row[class]).sum::<f64>() / targets.len() as f64;
    let probabilities: Vec<Vec<f64>> = rows.into_iter().map(|row| row.into_iter().map(f64::exp).collect()).collect();
    Ok((class_report(&probabilities, &targets), loss))
}

/// What is classified at every evaluation, once for all metrics.
struct Predictions {
    examples: Vec<Example>,
    /// What the first metric of an evaluation has left for the next.
    found: Mutex<Option<ClassReport>>,
}

impl Predictions {
    /// Classifies, or takes what was left.
    fn take(&self, task: &ClassifierTask) -> Result<ClassReport, ClassificationError> {
        let mut left = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match left.take() {
            Some(found) => Ok(found),
            None => {
                let (found, _) = report(&task.model, &self.examples)?;
                *left = Some(found.clone());
                Ok(found)
            }
        }
    }
}

/// A score of the validation texts.
struct Scored {
    name: &'static str,
    score: Score,
    predictions: Arc<Predictions>,
}

impl ValidationMetric<ClassifierTask> for Scored {
    fn name(&self) -> &str {
        self.name
    }

    fn higher_is_better(&self) -> bool {
        true
    }

    fn measure(&mut self, task: &ClassifierTask) -> Result<f64, TrainingError> {
        let found = self.predictions.take(task);
        let found = found.map_err(|error| TrainingError::Metric { name: self.name, reason: error.to_string() })?;
        Ok((self.score)(&found))
    }
}
