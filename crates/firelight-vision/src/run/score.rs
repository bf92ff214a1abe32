//! What a model is worth, from what it says of images: at the evaluations of a training and of a finished model.

use firelight_training::metrics::classes::{class_report, draw_confusion};
use firelight_training::{Communicator, Score, SharedEvaluator, TrainingError, ValidOutput};

use crate::inference::softmax;
use crate::training::{ImageAnswers, VisionTask};

/// Of all classes that occur, the accuracy and the mean of their F1.
#[derive(Debug)]
pub(super) struct ClassScores {
    classes: Vec<String>,
    /// Image by image.
    probabilities: Vec<Vec<f64>>,
    targets: Vec<usize>,
    /// Of the last evaluation: how often each true class (row) was given each class.
    confusion: Option<Vec<Vec<usize>>>,
}

impl ClassScores {
    /// Of images of these classes.
    pub(super) fn of(classes: &[String]) -> Self {
        Self { classes: classes.to_vec(), probabilities: Vec::new(), targets: Vec::new(), confusion: None }
    }
}

impl SharedEvaluator<VisionTask> for ClassScores {
    fn scores(&self) -> Vec<Score> {
        vec![Score::higher("accuracy"), Score::higher("macro_f1")]
    }

    /// A row for each image: its class, and the probabilities of all classes.
    fn batch_statistics(&self, output: &ValidOutput<ImageAnswers>) -> Result<Vec<Vec<f64>>, TrainingError> {
        let ImageAnswers { logits, targets } = output.answers.clone();
        let classes = logits.dims()[1];
        let logits: Vec<f64> = logits.try_into_vec_as().map_err(TrainingError::device("logits of images"))?;
        let targets: Vec<i64> = targets.try_into_vec_as().map_err(TrainingError::device("classes of images"))?;
        let row = |(class, logits): (i64, &[f64])| [vec![class as f64], softmax(logits)].concat();
        Ok(targets.into_iter().zip(logits.chunks(classes)).map(row).collect())
    }

    fn update(&mut self, statistics: Vec<Vec<f64>>) -> Result<(), TrainingError> {
        for row in statistics {
            self.targets.push(row[0] as usize);
            self.probabilities.push(row[1..].to_vec());
        }
        Ok(())
    }

    fn finish(&mut self, _task: &VisionTask, _ranks: &dyn Communicator) -> Result<Vec<f64>, TrainingError> {
        let (probabilities, targets) = (std::mem::take(&mut self.probabilities), std::mem::take(&mut self.targets));
        let report = class_report(&probabilities, &targets);
        self.confusion = Some(report.confusion);
        Ok(vec![report.accuracy, report.macro_f1])
    }

    fn figures(&self) -> Option<Vec<(String, String)>> {
        let heading = "Confusion matrix of the validation images: a row for each true class";
        let drawn = |confusion: &Vec<Vec<usize>>| (heading.to_string(), draw_confusion(confusion, &self.classes));
        Some(self.confusion.iter().map(drawn).collect())
    }
}
