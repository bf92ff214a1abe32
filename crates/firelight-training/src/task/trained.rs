//! What a training leaves behind, and the page that tells of it.

use std::fmt;

use firelight_storage::ModelFolder;

use super::Task;
use crate::{Report, ValidationLoss};

/// What a training leaves behind.
pub struct TrainedRun<T: Task> {
    /// The run folder.
    pub folder: ModelFolder,
    /// The model after the last step.
    pub model: T::Net,
    /// What it was trained and validated on.
    pub corpus: T::Corpus,
    /// Steps done, earlier runs included.
    pub steps: usize,
    /// The last evaluation.
    pub evaluation: Option<ValidationLoss>,
    /// The best evaluation by `best_by`.
    pub best: Option<ValidationLoss>,
    /// What decides which evaluation is the best: `training.best_by`.
    pub best_by: String,
    /// Whether the run was stopped before its last step.
    pub interrupted: bool,
}

impl<T: Task> TrainedRun<T> {
    /// Writes `report.html` into the run folder: curves, the task's figures, recipe, parameters, `device` in words, and samples,
    /// each under its heading.
    ///
    /// # Errors
    /// If the run's metrics cannot be read, the task cannot draw, or the page cannot be written.
    pub fn write_report(&self, device: &str, samples: Vec<(String, String)>) -> Result<(), T::Error> {
        let name = self.folder.path().file_name().unwrap_or_default().to_string_lossy();
        let report = Report {
            title: format!("Training of {name}"),
            target: T::TARGET,
            loss_unit: T::loss_unit(&self.corpus),
            facts: self.facts(device),
            parameters: T::parameters(&self.model),
            figures: T::figures(&self.model, &self.corpus)?,
            samples,
        };
        Ok(report.write(&self.folder)?)
    }

    fn facts(&self, device: &str) -> Vec<(String, String)> {
        let mut facts = vec![("device", device.to_string()), ("steps", self.steps.to_string())];
        if let Some(last) = &self.evaluation {
            facts.push(("validation loss", format!("{:.4} {}", last.loss, T::loss_unit(&self.corpus))));
        }
        if let Some(best) = &self.best {
            facts.push(("best", best.in_words(&self.best_by)));
        }
        facts.push(("data", T::sizes(&self.corpus)));
        facts.push(("written by", concat!("firelight ", env!("CARGO_PKG_VERSION")).to_string()));
        facts.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }
}

impl<T: Task> fmt::Debug for TrainedRun<T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("TrainedRun").field("folder", &self.folder).field("steps", &self.steps).finish_non_exhaustive()
    }
}
