//! The page that a finished training leaves in its folder.

use firelight_training::Report;

use super::TrainedRun;
use crate::error::LanguageError;

impl TrainedRun {
    /// Writes `report.html` into the run folder: curves, recipe, parameters, `device` in words, and samples, each with the
    /// prompt that it continues.
    ///
    /// # Errors
    /// If the run's metrics cannot be read or the page cannot be written.
    pub fn write_report(&self, device: &str, samples: &[(&str, &str)]) -> Result<(), LanguageError> {
        let name = self.folder.path().file_name().unwrap_or_default().to_string_lossy();
        let heading =
            |prompt: &str| if prompt.trim().is_empty() { "from nothing".into() } else { format!("after \"{prompt}\"") };
        let report = Report {
            title: format!("Training of {name}"),
            facts: self.facts(device),
            parameters: self.model.report().parts(),
            samples: samples.iter().map(|(prompt, text)| (heading(prompt), text.to_string())).collect(),
        };
        Ok(report.write(&self.folder)?)
    }

    fn facts(&self, device: &str) -> Vec<(String, String)> {
        let mut facts = vec![("device", device.to_string()), ("steps", self.steps.to_string())];
        if let Some(last) = &self.evaluation {
            facts.push(("validation loss", format!("{:.4} nats per token", last.loss)));
        }
        if let Some(best) = &self.best {
            facts.push(("best", format!("{:.4} nats per token at step {}", best.loss, best.step)));
        }
        facts.push(("vocabulary", format!("{} tokens", self.tokenizer.vocab_size())));
        facts.push(("written by", concat!("firelight ", env!("CARGO_PKG_VERSION")).to_string()));
        facts.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }
}
