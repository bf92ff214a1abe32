//! What a classifier is worth at an evaluation, such as its accuracy.

use firelight_training::ValidationMetric;

use super::LabelledCorpus;
use super::judge::scored;
use super::report::Report;
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
    let scores = best.scores().into_iter().map(|(score, _)| score);
    scored(scores, move |model| Ok(report(model, outcome, &examples)?.0))
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
