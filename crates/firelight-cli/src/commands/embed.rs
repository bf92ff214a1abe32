//! `firelight embed`: texts in, vectors of length 1 out, or how similar each is to one text, as many and in the same order.

use std::path::PathBuf;

use anyhow::Result;
use firelight::classification::{Embedder, cosine_similarities};
use serde_json::json;

use super::texts::Texts;
use super::trained_model::TrainedModel;

const EXAMPLES: &str = "\
Examples:
  firelight embed runs/masked-1 --text \"a fine film\"
  firelight embed runs/masked-1 --file reviews.txt --json > vectors.jsonl
  firelight embed runs/masked-1 --file reviews.txt --similarity \"a fine film\" | paste - reviews.txt | sort -rn | head";

/// Turn texts into vectors that can be compared; without --file and --text, the lines of the standard input
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Embed {
    #[command(flatten)]
    model: TrainedModel,
    /// File of texts, one per line
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    file: Option<PathBuf>,
    /// Text to turn into a vector
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Text to put in front of each text, such as "query: "
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_name")]
    prompt: Option<String>,
    /// Name of a prompt that the model comes with, to put in front of each text
    #[arg(long, value_name = "NAME")]
    prompt_name: Option<String>,
    /// Print the cosine similarity of each text with TEXT, from -1 to 1, instead of vectors
    #[arg(long, value_name = "TEXT")]
    similarity: Option<String>,
    /// Print one line of JSON for each text: the text and its vector or similarity
    #[arg(long)]
    json: bool,
}

impl Embed {
    pub(crate) fn run(self) -> Result<()> {
        self.model.is_for("embed")?;
        let mut texts = Texts::new(self.text.as_deref(), self.file.as_deref())?;
        let embedder = self.embedder()?;
        let other = self.similarity.as_ref().map(|text| embedder.embed(&[text])).transpose()?;
        texts.answer(|before, some| {
            let found = embedder.embed_after(before, some)?;
            Ok(match &other {
                Some(other) => {
                    let similar = cosine_similarities(&found, other);
                    some.iter().zip(&similar).map(|(text, row)| self.shown_similarity(text, row[0])).collect()
                }
                None => some.iter().zip(&found).map(|(text, vector)| self.shown(text, vector)).collect(),
            })
        })
    }

    fn embedder(&self) -> Result<Embedder> {
        let embedder = self.model.load(Embedder::load_from)?;
        Ok(match (&self.prompt, &self.prompt_name) {
            (Some(prompt), _) => embedder.with_prompt(prompt),
            (None, Some(name)) => embedder.with_prompt_name(name)?,
            (None, None) => embedder,
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

    fn shown_similarity(&self, text: &str, similarity: f64) -> String {
        match self.json {
            true => format!("{}\n", json!({"text": text, "similarity": similarity})),
            false => format!("{similarity:.4}\n"),
        }
    }
}
