//! What a model is worth, from what it says of images: at the evaluations of a training and of a finished model.

use firelight_training::metrics::classes::class_report;
use firelight_training::{Evaluator, Score, TrainingError, ValidOutput};

use crate::inference::softmax;
use crate::training::{ImageAnswers, VisionTask};

/// Of all classes that occur, the accuracy and the mean of their F1.
#[derive(Debug, Default)]
pub(super) struct ClassScores {
    /// Image by image.
    probabilities: Vec<Vec<f64>>,
    targets: Vec<usize>,
    /// Of the last evaluation: how often each true class (row) was given each class.
    pub(super) confusion: Vec<Vec<usize>>,
}

impl Evaluator<VisionTask> for ClassScores {
    fn scores(&self) -> Vec<Score> {
        vec![Score::higher("accuracy"), Score::higher("macro_f1")]
    }

    fn observe(&mut self, output: &ValidOutput<ImageAnswers>) -> Result<(), TrainingError> {
        let ImageAnswers { logits, targets } = output.answers.clone();
        let classes = logits.dims()[1];
        let logits: Vec<f64> = logits.try_into_vec_as().map_err(TrainingError::device("logits of images"))?;
        let targets: Vec<i64> = targets.try_into_vec_as().map_err(TrainingError::device("classes of images"))?;
        self.probabilities.extend(logits.chunks(classes).map(softmax));
        self.targets.extend(targets.into_iter().map(|class| class as usize));
        Ok(())
    }

    fn finish(&mut self, _task: &VisionTask) -> Result<Vec<f64>, TrainingError> {
        let Self { probabilities, targets, .. } = std::mem::take(self);
        let report = class_report(&probabilities, &targets);
        self.confusion = report.confusion;
        Ok(vec![report.accuracy, report.macro_f1])
    }
}
