//! What a classifier is worth, from what it says of texts: at the evaluations of a training and of a finished model.

use burn::tensor::activation::log_softmax;
use firelight_training::metrics::classes::{ClassReport, draw_confusion};
use firelight_training::{Communicator, Score, SharedEvaluator, TrainingError, ValidOutput};

use super::report::Report;
use crate::data::{Example, Target};
use crate::loss::ProblemType;
use crate::records::{Judged, scores, values};
use crate::training::{ClassifierTask, TextAnswers};

/// The scores that texts define.
#[derive(Debug)]
pub(super) struct TextScores {
    problem_type: ProblemType,
    labels: Vec<String>,
    table: Vec<Judged<Report>>,
    /// As those of [`answers`](crate::classifier::answers).
    rows: Vec<Vec<f64>>,
    truths: Vec<Vec<f64>>,
    /// Of the newest evaluation.
    report: Option<Report>,
}

impl TextScores {
    /// What these examples, with labels of these names, define: the scores that a model without a mistake would have.
    pub(super) fn on(problem_type: ProblemType, examples: &[Example], labels: &[String]) -> Self {
        let truths: Vec<Vec<f64>> = examples.iter().map(|example| example.target.numbers()).collect();
        let rows: Vec<Vec<f64>> = examples.iter().map(|example| right_answer(&example.target, labels.len())).collect();
        let table = Report::of(problem_type, &rows, &truths).table();
        let labels = labels.to_vec();
        Self { problem_type, labels, table, rows: Vec::new(), truths: Vec::new(), report: None }
    }
}

/// A row of a model that knows what is true of a text.
fn right_answer(target: &Target, classes: usize) -> Vec<f64> {
    let certain = |is_true: bool| if is_true { 0.0 } else { f64::NEG_INFINITY };
    match target {
        Target::Class(class) => (0..classes).map(|other| certain(other == *class)).collect(),
        Target::Classes(flags) => flags.iter().map(|&flag| certain(flag)).collect(),
        Target::Number(number) => vec![*number],
    }
}

impl SharedEvaluator<ClassifierTask> for TextScores {
    fn scores(&self) -> Vec<Score> {
        scores(&self.table)
    }

    /// Two rows for each text: what the model says, and what is true.
    fn batch_statistics(&self, output: &ValidOutput<TextAnswers>) -> Result<Vec<Vec<f64>>, TrainingError> {
        let TextAnswers { outputs, targets } = output.answers.clone();
        let width = outputs.dims()[1];
        let outputs = if self.problem_type == ProblemType::SingleLabel { log_softmax(outputs, 1) } else { outputs };
        let rows: Vec<f64> = outputs.try_into_vec_as().map_err(TrainingError::device("answers"))?;
        let truths = targets.numbers().map_err(TrainingError::device("targets"))?;
        Ok(rows.chunks(width).zip(truths).flat_map(|(row, truth)| [row.to_vec(), truth]).collect())
    }

    fn update(&mut self, statistics: Vec<Vec<f64>>) -> Result<(), TrainingError> {
        let mut statistics = statistics.into_iter();
        while let (Some(row), Some(truth)) = (statistics.next(), statistics.next()) {
            self.rows.push(row);
            self.truths.push(truth);
        }
        Ok(())
    }

    fn finish(&mut self, _task: &ClassifierTask, _ranks: &dyn Communicator) -> Result<Vec<f64>, TrainingError> {
        let [rows, truths] = [&mut self.rows, &mut self.truths].map(std::mem::take);
        let report = self.report.insert(Report::of(self.problem_type, &rows, &truths));
        Ok(values(&self.table, report))
    }

    /// Where each text has one label.
    fn figures(&self) -> Option<Vec<(String, String)>> {
        let heading = "Confusion matrix of the validation texts: a row for each true label";
        let drawn = |report: &ClassReport| (heading.to_string(), draw_confusion(&report.confusion, &self.labels));
        let report = self.report.as_ref().and_then(Report::class);
        (self.problem_type == ProblemType::SingleLabel).then(|| report.map(drawn).into_iter().collect())
    }
}
