//! What a reader is worth: the questions whose answer is exactly right, and the words that answers share with the true ones.
//!
//! Source: Rajpurkar et al. 2016, §6.1 (<https://arxiv.org/abs/1606.05250>).

use firelight_data::questions::Question;
use firelight_training::ValidationMetric;
use firelight_training::metrics::text::AnswerScore;

use super::batch::{SpanExample, SpanTask};
use super::corpus::QuestionCorpus;
use crate::data::QuestionWindow;
use crate::error::ClassificationError;
use crate::model::{ReadingConfig, SpanReader};
use crate::reader::{best_answer, log_softmax, span_answers};
use crate::run::{Score, scored};

/// All scores, as means over the questions.
const SCORES: [Score<AnswerScore>; 2] =
    [Score::higher("exact_match", |report| Some(report.exact_match)), Score::higher("f1", |report| Some(report.f1))];

/// The metrics of a run, in the order in which they are measured.
pub(super) fn metrics(corpus: &QuestionCorpus) -> Vec<Box<dyn ValidationMetric<SpanTask>>> {
    let (examples, questions) = (corpus.validation().to_vec(), corpus.validation_questions().to_vec());
    let reading = corpus.reading();
    scored(SCORES, move |model| Ok(report(model, reading, (&examples, &questions))?.0))
}

/// The scores of a report by name, in their order.
pub(super) fn scores(report: &AnswerScore) -> Vec<(&'static str, f64)> {
    SCORES.iter().filter_map(|score| Some((score.name, (score.of)(report)?))).collect()
}

/// How some questions are answered, with the mean loss of their windows.
pub(super) fn report(
    model: &SpanReader,
    reading: ReadingConfig,
    (examples, questions): (&[Vec<SpanExample>], &[Question]),
) -> Result<(AnswerScore, f64), ClassificationError> {
    let windows: Vec<QuestionWindow> = examples.iter().flatten().map(|example| example.window.clone()).collect();
    let logits = span_answers(model, &windows)?;
    let losses = examples.iter().flatten().zip(&logits).map(|(example, logits)| surprise(logits, example.target));
    let loss = losses.sum::<f64>() / windows.len() as f64;
    let (mut all, mut total) = (logits.as_slice(), AnswerScore { exact_match: 0.0, f1: 0.0 });
    for (question, examples) in questions.iter().zip(examples) {
        let (own, rest) = all.split_at(examples.len());
        let windows: Vec<QuestionWindow> = examples.iter().map(|example| example.window.clone()).collect();
        let found = best_answer(&question.context, &windows, own, reading);
        let score = AnswerScore::of(&found.answer, &question.answers.text);
        total = AnswerScore { exact_match: total.exact_match + score.exact_match, f1: total.f1 + score.f1 };
        all = rest;
    }
    let count = questions.len() as f64;
    Ok((AnswerScore { exact_match: total.exact_match / count, f1: total.f1 / count }, loss))
}

/// The mean of the cross-entropies of first and last token, as [`SpanLogits::loss`](crate::SpanLogits::loss) has it.
fn surprise(logits: &[Vec<f64>; 2], target: [usize; 2]) -> f64 {
    let sides = logits.iter().zip(target).map(|(logits, place)| -log_softmax(logits)[place]);
    sides.sum::<f64>() / 2.0
}
