//! What a model is worth beside its loss: how many target tokens it predicts, and what the targets that it writes by itself are worth
//! beside the true ones. The same at the evaluations of a training, whose targets are few and greedy, and of a finished model.

use std::time::Instant;

use firelight_storage::{InputError, TaskError};
use firelight_training::metrics::text::TextMetric;
use firelight_training::{Evaluator, Objective, Score, TrainingError, TrainingModule, ValidOutput};

use crate::training::TargetAnswers;

/// Scores of predicted tokens and of written targets.
pub(crate) struct TargetScores<M> {
    /// Tokens that were predicted, and all.
    predicted: [i64; 2],
    /// None writes nothing.
    written: Option<Written<M>>,
    /// How long the newest targets took.
    pub(crate) seconds: f64,
}

/// What is written at every evaluation.
pub(crate) struct Written<M> {
    /// Writes a target for each of some sources.
    pub(crate) write: Writer<M>,
    /// The true ones.
    pub(crate) targets: Vec<String>,
    pub(crate) metrics: Vec<TextMetric>,
}

type Writer<M> = Box<dyn Fn(&M) -> Result<Vec<String>, TaskError> + Send>;

impl<M> TargetScores<M> {
    pub(crate) fn new(written: Option<Written<M>>) -> Self {
        Self { predicted: [0, 0], written, seconds: 0.0 }
    }
}

impl<M: Objective<Answers = TargetAnswers>> Evaluator<TrainingModule<M>> for TargetScores<M> {
    fn scores(&self) -> Vec<Score> {
        let written = self.written.iter().flat_map(|written| &written.metrics);
        let names = ["token_accuracy"].into_iter().chain(written.map(|metric| metric.name()));
        names.map(Score::higher).collect()
    }

    fn observe(&mut self, output: &ValidOutput<TargetAnswers>) -> Result<(), TrainingError> {
        let counts = output.answers.predicted.clone().try_into_vec_as::<i64>();
        let counts = counts.map_err(TrainingError::device("token accuracy"))?;
        self.predicted.iter_mut().zip(counts).for_each(|(sum, more)| *sum += more);
        Ok(())
    }

    fn finish(&mut self, task: &TrainingModule<M>) -> Result<Vec<f64>, TrainingError> {
        let [right, all] = std::mem::take(&mut self.predicted);
        let mut scores = vec![right as f64 / all as f64];
        if let Some(Written { write, targets, metrics }) = &self.written {
            let began = Instant::now();
            let failed = |error| InputError::new(format!("cannot measure `written targets`: {error}"));
            let found = write(&task.model).map_err(failed)?;
            self.seconds = began.elapsed().as_secs_f64();
            for metric in metrics {
                scores.push(metric.corpus(&found, targets)?);
            }
        }
        Ok(scores)
    }
}
