//! What a reader is worth: the questions whose answer is exactly right, and the words that answers share with the true ones.
//!
//! Source: Rajpurkar et al. 2016, §6.1 (<https://arxiv.org/abs/1606.05250>).

use burn::tensor::Tensor;
use firelight_data::questions::Question;
use firelight_training::metrics::text::AnswerScore;
use firelight_training::{Communicator, Score, SharedEvaluator, TrainingError, ValidOutput};

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

impl SharedEvaluator<SpanTask> for AnswerScores {
    fn scores(&self) -> Vec<Score> {
        vec![Score::higher("exact_match"), Score::higher("f1")]
    }

    /// A row for each window: its number, and the scores of all tokens as the first and as the last of an answer.
    fn batch_statistics(&self, output: &ValidOutput<SpanAnswers>) -> Result<Vec<Vec<f64>>, TrainingError> {
        let SpanAnswers { numbers, logits } = output.answers.clone();
        let length = logits.start.dims()[1];
        let values = |logits: Tensor<2>| logits.try_into_vec_as::<f64>().map_err(TrainingError::device("answers"));
        let (start, end) = (values(logits.start)?, values(logits.end)?);
        let sides = start.chunks(length).zip(end.chunks(length));
        let row = |(&number, (start, end)): (&usize, (&[f64], &[f64]))| [&[number as f64][..], start, end].concat();
        Ok(numbers.iter().zip(sides).map(row).collect())
    }

    fn update(&mut self, statistics: Vec<Vec<f64>>) -> Result<(), TrainingError> {
        for row in statistics {
            let (number, logits) = (row[0] as usize, &row[1..]);
            let (start, end) = logits.split_at(logits.len() / 2);
            self.logits[number] = [start.to_vec(), end.to_vec()];
        }
        Ok(())
    }

    /// Means over the questions.
    fn finish(&mut self, _task: &SpanTask, _ranks: &dyn Communicator) -> Result<Vec<f64>, TrainingError> {
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
