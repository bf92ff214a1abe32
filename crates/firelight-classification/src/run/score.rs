//! What a classifier is worth at an evaluation, such as its accuracy: the validation texts are read once for all scores.

use std::sync::{Arc, Mutex, PoisonError};

use firelight_training::{TrainingError, ValidationMetric};

use super::LabelledCorpus;
use super::report::{Report, Score};
use crate::classifier::answers;
use crate::data::{EncodedText, Example, Target};
use crate::error::ClassificationError;
use crate::loss::Outcome;
use crate::model::TextClassifier;
use crate::training::ClassifierTask;

/// How the examples are answered, with their mean loss.
pub(super) fn report(
    model: &TextClassifier,
    outcome: Outcome,
    examples: &[Example],
) -> Result<(Report, f64), ClassificationError> {
    let texts: Vec<EncodedText> = examples.iter().map(|example| example.text.clone()).collect();
    Ok(Report::of(outcome, &answers(model, outcome, &texts)?, examples))
}

/// The metrics of a run, in the order in which they are measured: the scores that its best model would have.
pub(super) fn metrics(corpus: &LabelledCorpus) -> Vec<Box<dyn ValidationMetric<ClassifierTask>>> {
    let (examples, outcome) = (corpus.validation().to_vec(), corpus.outcome());
    let (best, _) = Report::of(outcome, &right_answers(corpus), &examples);
    let predictions = Arc::new(Predictions { examples, outcome, found: Mutex::default() });
    let metric = |(index, (score, _))| {
        let predictions = predictions.clone();
        Box::new(Scored { score, is_first: index == 0, predictions }) as Box<dyn ValidationMetric<ClassifierTask>>
    };
    best.scores().into_iter().enumerate().map(metric).collect()
}

/// Rows as those of [`answers`], of a model that knows what is true of the validation texts.
fn right_answers(corpus: &LabelledCorpus) -> Vec<Vec<f64>> {
    let certain = |is_true: bool| if is_true { 0.0 } else { f64::NEG_INFINITY };
    let row = |example: &Example| match &example.target {
        Target::Class(class) => (0..corpus.labels().len()).map(|other| certain(other == *class)).collect(),
        Target::Classes(flags) => flags.iter().map(|&flag| certain(flag)).collect(),
        Target::Number(number) => vec![*number],
    };
    corpus.validation().iter().map(row).collect()
}

/// What is answered at every evaluation, once for all metrics.
struct Predictions {
    examples: Vec<Example>,
    outcome: Outcome,
    /// What the first metric of an evaluation has left for the others.
    found: Mutex<Option<Report>>,
}

impl Predictions {
    /// What is left of this evaluation; the first metric answers anew.
    fn report(&self, task: &ClassifierTask, is_first: bool) -> Result<Report, ClassificationError> {
        let mut left = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match left.as_ref() {
            Some(found) if !is_first => Ok(found.clone()),
            _ => {
                let (found, _) = report(&task.model, self.outcome, &self.examples)?;
                Ok(left.insert(found).clone())
            }
        }
    }
}

/// A score of the validation texts.
struct Scored {
    score: Score,
    is_first: bool,
    predictions: Arc<Predictions>,
}

impl ValidationMetric<ClassifierTask> for Scored {
    fn name(&self) -> &str {
        self.score.name
    }

    fn higher_is_better(&self) -> bool {
        self.score.higher_is_better
    }

    fn measure(&mut self, task: &ClassifierTask) -> Result<f64, TrainingError> {
        let failed = |reason| TrainingError::Metric { name: self.score.name, reason };
        let found = self.predictions.report(task, self.is_first).map_err(|error| failed(error.to_string()))?;
        (self.score.of)(&found).ok_or_else(|| failed("the validation texts do not define it".into()))
    }
}
