//! `firelight classify`: what a trained classifier says of texts or of images, by the task of its run. Texts in, labels with
//! their probabilities out, as many and in the same order; images are the business of `classify_images.rs`.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use firelight::classification::{Classifier, Prediction};
use firelight::storage::ModelFolder;
use firelight::training::task_of;
use firelight::vision;
use serde_json::{Map, Value, json};

use super::classify_images::ClassifyImages;
use super::texts::Texts;
use super::trained_model::TrainedModel;
use crate::failure::Mistake;
use crate::output;

/// Name the label of texts by a trained classifier, or of images by a trained vision transformer; without --file, --text and
/// --image, of the lines of the standard input
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
    #[command(flatten)]
    images: ClassifyImages,
    /// Print one line of JSON for each: what was given, its label and the probabilities of all labels
    #[arg(long)]
    json: bool,
}

impl Classify {
    pub(crate) fn run(self) -> Result<()> {
        let folder = ModelFolder::open(&self.model.run_dir)?;
        if task_of(&folder.recipe())? == vision::TASK {
            let is_text = self.text.is_some() || self.file.is_some();
            ensure!(!is_text, Mistake("--text and --file are for classifiers of texts: give --image".into()));
            return self.images.run(&self.model, self.json);
        }
        ensure!(
            self.images.is_empty(),
            Mistake("--image and --rollout are for vision transformers: give --text or --file".into())
        );
        self.texts()
    }

    fn texts(&self) -> Result<()> {
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
