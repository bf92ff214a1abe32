//! `firelight embed`: texts in, vectors of length 1 out, as many and in the same order.

use std::path::PathBuf;

use anyhow::Result;
use firelight::classification::Embedder;
use serde_json::json;

use super::texts::Texts;
use super::trained_model::TrainedModel;
use crate::output;

/// Turn texts into vectors that can be compared; without --file and --text, the lines of the standard input
#[derive(clap::Args)]
pub(crate) struct Embed {
    #[command(flatten)]
    model: TrainedModel,
    /// File of texts, one a line
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    file: Option<PathBuf>,
    /// Text to turn into a vector
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Print one line of JSON for each text: the text and its vector
    #[arg(long)]
    json: bool,
}

impl Embed {
    pub(crate) fn run(self) -> Result<()> {
        let mut texts = Texts::new(self.text.as_deref(), self.file.as_deref())?;
        self.model.with(|checkpoint, device| {
            let embedder = Embedder::load_from(&self.model.run_dir, checkpoint, device)?;
            while let Some((before, some)) = texts.next_lines()? {
                let found = embedder.embed_after(before, &some)?;
                let lines = some.iter().zip(&found).map(|(text, vector)| self.shown(text, vector));
                output::print(&lines.collect::<String>())?;
            }
            Ok(())
        })
    }

    /// Numbers with a space between them, or an object.
    fn shown(&self, text: &str, vector: &[f32]) -> String {
        if self.json {
            return format!("{}\n", json!({"text": text, "embedding": vector}));
        }
        let numbers: Vec<String> = vector.iter().map(|number| format!("{number:.6}")).collect();
        format!("{}\n", numbers.join(" "))
    }
}
