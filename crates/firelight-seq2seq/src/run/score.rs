//! What a model is worth beside its loss: how many target tokens it predicts, and what the targets that it writes by itself are worth
//! beside the true ones. The same at the evaluations of a training, whose targets are few and greedy, and of a finished model.

use burn::train::ValidLoader;
use firelight_core::LossConfig;
use firelight_storage::{InputError, TaskError};
use firelight_training::metrics::text::TextMetric;
use firelight_training::{
    Communicator, ExampleDigest, Measurement, Objective, Score, Shared, SharedEvaluator, Task, TrainingError,
    TrainingModule, ValidOutput,
};

use crate::training::TargetAnswers;

/// Scores of predicted tokens and of written targets.
pub(crate) struct TargetScores<M> {
    /// Tokens that were predicted, and all.
    predicted: [i64; 2],
    /// None writes nothing.
    written: Option<Written<M>>,
}

/// What is written at every evaluation.
pub(crate) struct Written<M> {
    /// Writes a target for each of some sources, on every rank all of them.
    write: Writer<M>,
    /// The true ones.
    targets: Vec<String>,
    metrics: Vec<TextMetric>,
}

type Writer<M> = Box<dyn Fn(&M, &dyn Communicator) -> Result<Vec<String>, TaskError> + Send>;

impl<M> Written<M> {
    /// What `write` writes, beside the true targets.
    pub(crate) fn new(
        targets: Vec<String>,
        metrics: Vec<TextMetric>,
        write: impl Fn(&M, &dyn Communicator) -> Result<Vec<String>, TaskError> + Send + 'static,
    ) -> Self {
        Self { write: Box::new(write), targets, metrics }
    }
}

impl<M> TargetScores<M> {
    pub(crate) fn new(written: Option<Written<M>>) -> Self {
        Self { predicted: [0, 0], written }
    }
}

/// What an evaluation of a finished model takes, which writes a target for each of the examples; `loader` reads them once each, and
/// `examples` gives them to a digest.
pub(crate) fn measurement<T, M>(
    model: &M,
    loader: ValidLoader<TrainingModule<M>>,
    written: Written<M>,
    examples: impl FnOnce(&mut ExampleDigest) + 'static,
) -> Measurement<T>
where
    T: Task<Net = M, Loss = LossConfig>,
    M: Objective<Loss = LossConfig, Answers = TargetAnswers>,
{
    Measurement {
        task: TrainingModule::new(model.clone(), LossConfig::default()),
        loader,
        loss_unit: format!("nats per {}", T::TARGET),
        count: written.targets.len(),
        evaluator: Box::new(Shared(TargetScores::new(Some(written)))),
        examples: Box::new(examples),
    }
}

impl<M: Objective<Answers = TargetAnswers>> SharedEvaluator<TrainingModule<M>> for TargetScores<M> {
    fn scores(&self) -> Vec<Score> {
        let written = self.written.iter().flat_map(|written| &written.metrics);
        let names = ["token_accuracy"].into_iter().chain(written.map(|metric| metric.name()));
        names.map(Score::higher).collect()
    }

    /// The counts of the batch.
    fn batch_statistics(&self, output: &ValidOutput<TargetAnswers>) -> Result<Vec<Vec<f64>>, TrainingError> {
        let counts = output.answers.predicted.clone().try_into_vec_as::<i64>();
        let counts = counts.map_err(TrainingError::device("token accuracy"))?;
        Ok(vec![counts.into_iter().map(|count| count as f64).collect()])
    }

    fn update(&mut self, statistics: Vec<Vec<f64>>) -> Result<(), TrainingError> {
        let counts = statistics.into_iter().flatten();
        self.predicted.iter_mut().zip(counts).for_each(|(sum, more)| *sum += more as i64);
        Ok(())
    }

    fn finish(&mut self, task: &TrainingModule<M>, ranks: &dyn Communicator) -> Result<Vec<f64>, TrainingError> {
        let [right, all] = std::mem::take(&mut self.predicted);
        let mut scores = vec![right as f64 / all as f64];
        if let Some(Written { write, targets, metrics }) = &self.written {
            let failed = |error| InputError::new(format!("cannot measure `written targets`: {error}"));
            let found = write(&task.model, ranks).map_err(failed)?;
            for metric in metrics {
                scores.push(metric.corpus(&found, targets)?);
            }
        }
        Ok(scores)
    }
}
