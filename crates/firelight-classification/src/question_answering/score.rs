//! What a reader is worth: the questions whose answer is exactly right, and the words that answers share with the true ones.
//!
//! Source: Rajpurkar et al. 2016, §6.1 (<https://arxiv.org/abs/1606.05250>).

use firelight_data::questions::Question;
use firelight_training::metrics::text::AnswerScore;
use firelight_training::{Evaluator, Score, TrainingError, ValidOutput};

use super::batch::{SpanAnswers, SpanExample, SpanTask};
use crate::data::QuestionWindow;
use crate::model::ReadingConfig;
use crate::question_answerer::best_answer;

/// The scores of questions: at the evaluations of a training and of a finished model.
#[derive(Debug)]
pub(super) struct AnswerScores {
    reading: ReadingConfig,
    questions: Vec<Question>,
    /// Of every question its windows.
    windows: Vec<Vec<QuestionWindow>>,
    /// The scores of all tokens of each window as the first and as the last of an answer.
    logits: Vec<[Vec<f64>; 2]>,
}

impl AnswerScores {
    pub(super) fn on(reading: ReadingConfig, examples: &[SpanExample], questions: &[Question]) -> Self {
        let mut windows = vec![Vec::new(); questions.len()];
        examples.iter().for_each(|example| windows[example.question].push(example.window.clone()));
        let logits = vec![Default::default(); examples.len()];
        Self { reading, questions: questions.to_vec(), windows, logits }
    }
}

impl Evaluator<SpanTask> for AnswerScores {
    fn scores(&self) -> Vec<Score> {
        vec![Score::higher("exact_match"), Score::higher("f1")]
    }

    fn observe(&mut self, output: &ValidOutput<SpanAnswers>) -> Result<(), TrainingError> {
        let SpanAnswers { numbers, logits } = output.answers.clone();
        let length = logits.start.dims()[1];
        for (side, logits) in [logits.start, logits.end].into_iter().enumerate() {
            let values: Vec<f64> = logits.try_into_vec_as().map_err(TrainingError::device("answers"))?;
            for (&number, row) in numbers.iter().zip(values.chunks(length)) {
                self.logits[number][side] = row.to_vec();
            }
        }
        Ok(())
    }

    /// Means over the questions.
    fn finish(&mut self, _task: &SpanTask) -> Result<Vec<f64>, TrainingError> {
        let (mut left, mut sums) = (self.logits.as_slice(), [0.0; 2]);
        for (question, windows) in self.questions.iter().zip(&self.windows) {
            let (own, rest) = left.split_at(windows.len());
            let found = best_answer(&question.context, windows, own, self.reading);
            let AnswerScore { exact_match, f1 } = AnswerScore::of(&found.answer, &question.answers.text);
            (sums, left) = ([sums[0] + exact_match, sums[1] + f1], rest);
        }
        Ok(sums.map(|sum| sum / self.questions.len() as f64).to_vec())
    }
}
