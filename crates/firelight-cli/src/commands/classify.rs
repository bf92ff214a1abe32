//! `firelight classify`: texts in, labels with their probabilities out, as many and in the same order.

use std::path::PathBuf;

use anyhow::Result;
use firelight::classification::{Classifier, Prediction};
use serde_json::{Map, Value, json};

use super::texts::Texts;
use super::trained_model::TrainedModel;
use crate::output;

/// Name the label of texts by a trained classifier; without --file and --text, of the lines of the standard input
#[derive(clap::Args)]
pub(crate) struct Classify {
    #[command(flatten)]
    model: TrainedModel,
    /// File of texts, one a line; of pairs, a tab parts the two
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    file: Option<PathBuf>,
    /// Text to classify
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Print one line of JSON for each text: the text, its label and the probabilities of all labels
    #[arg(long)]
    json: bool,
}

impl Classify {
    pub(crate) fn run(self) -> Result<()> {
        let mut texts = Texts::new(self.text.as_deref(), self.file.as_deref())?;
        self.model.with(|checkpoint, device| {
            let classifier = Classifier::load_from(&self.model.run_dir, checkpoint, device)?;
            while let Some((before, some)) = texts.next_lines()? {
                let found = classifier.classify_after(before, &some)?;
                let lines = some.iter().zip(&found).map(|(text, found)| self.shown(text, found));
                output::print(&lines.collect::<String>())?;
            }
            Ok(())
        })
    }

    fn shown(&self, text: &str, found: &Prediction) -> String {
        if self.json {
            let probabilities: Map<String, Value> =
                found.probabilities.iter().map(|(label, value)| (label.clone(), json!(value))).collect();
            return format!("{}\n", json!({"text": text, "label": found.label, "probabilities": probabilities}));
        }
        let best = found.probabilities.iter().find(|(label, _)| *label == found.label);
        format!("{}\t{:.4}\n", found.label, best.map_or(0.0, |(_, probability)| *probability))
    }
}
