//! `firelight embed`: texts or images in, vectors of length 1 out, or how similar each is to one text, as many and in the same order.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use firelight::classification::{LongText, PartPooling, cosine_similarities};
use firelight::data::Image;
use firelight::training::Precision;
use serde_json::json;

use super::embedder::AnyEmbedder;
use super::long_texts::LongTexts;
use super::precision;
use super::text_input::TextInput;
use super::trained_model::TrainedModel;
use crate::failure::Mistake;
use crate::{output, ranks};

const EXAMPLES: &str = "\
Examples:
  firelight embed runs/masked-1 --text \"a fine film\"
  firelight embed runs/masked-1 --file reviews.txt --json > vectors.jsonl
  firelight embed runs/masked-1 --file reviews.txt --similarity \"a fine film\" | paste - reviews.txt | sort -rn | head
  firelight embed runs/masked-1 --file articles.txt --long sentences --pool max
  firelight embed openai/clip-vit-base-patch32 --image cat.png --image dog.png --similarity \"a photo of a cat\"

What a model cannot read of a text is cut off. With --long windows the whole text is read in windows that overlap, with --long sentences \
by sentences, and their vectors are pooled: by their mean, weighted by their shares of the tokens, or by the largest value of each channel.";

/// Turn texts or images into vectors that can be compared; by default the lines of the standard input
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[command(mut_arg("text", |arg| arg.help("Text to turn into a vector")))]
pub(crate) struct Embed {
    #[command(flatten)]
    model: TrainedModel,
    #[command(flatten)]
    input: TextInput,
    /// Image to turn into a vector (PNG or JPEG), of a model of images; may be repeated
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "file"])]
    image: Vec<PathBuf>,
    /// Text to put in front of each text, such as "query: "
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["prompt_name", "image"])]
    prompt: Option<String>,
    /// Name of a prompt that the model comes with, to put in front of each text
    #[arg(long, value_name = "NAME", conflicts_with = "image")]
    prompt_name: Option<String>,
    #[command(flatten)]
    long_texts: LongTexts,
    /// With --long windows or sentences: how their vectors become one, mean or max [default: mean]
    #[arg(long, value_name = "HOW", value_parser = part_pooling)]
    pool: Option<PartPooling>,
    /// How matrices are multiplied: f32, or bf16x3 (nearly as exact, and faster on a CPU with AMX)
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = precision::parse_single)]
    precision: Precision,
    /// Print the cosine similarity of each text or image with TEXT, from -1 to 1, instead of vectors
    #[arg(long, value_name = "TEXT")]
    similarity: Option<String>,
    /// Print one line of JSON for each text or image: its text or file, and its vector or similarity
    #[arg(long)]
    json: bool,
}

fn part_pooling(text: &str) -> Result<PartPooling, String> {
    match text {
        "mean" => Ok(PartPooling::Mean),
        "max" => Ok(PartPooling::Max),
        _ => Err("expected mean or max".into()),
    }
}

impl Embed {
    pub(crate) fn run(self) -> Result<()> {
        self.model.is_for("embed")?;
        self.precision.matmul_precision().within(|| self.print())
    }

    fn print(&self) -> Result<()> {
        if !self.image.is_empty() {
            return self.images();
        }
        let mut texts = self.input.texts()?;
        let embedder = self.embedder()?;
        let other = self.other(&embedder)?;
        texts.answer(|before, some| {
            let found = embedder.texts(before, some)?;
            Ok(self.shown("text", some, &found, other.as_deref()))
        })
    }

    fn images(&self) -> Result<()> {
        ranks::refuse_unshared("images are read by one process")?;
        let images = self.image.iter().map(Image::open).collect::<Result<Vec<_>, _>>()?;
        let embedder = self.embedder()?;
        let other = self.other(&embedder)?;
        let found = embedder.images(&images)?;
        let names: Vec<String> = self.image.iter().map(|path| path.display().to_string()).collect();
        Ok(output::print(&self.shown("image", &names, &found, other.as_deref()))?)
    }

    fn embedder(&self) -> Result<AnyEmbedder> {
        let long_text = self.long_text()?;
        let embedder = AnyEmbedder::load(&self.model, !self.image.is_empty())?;
        let has_prompt = self.prompt.is_some() || self.prompt_name.is_some();
        Ok(match embedder {
            AnyEmbedder::Texts(embedder) => {
                let embedder = match (&self.prompt, &self.prompt_name) {
                    (Some(prompt), _) => embedder.with_prompt(prompt),
                    (None, Some(name)) => embedder.with_prompt_name(name)?,
                    (None, None) => embedder,
                };
                let pooling = self.pool.unwrap_or_default();
                AnyEmbedder::Texts(embedder.with_long_text(long_text)?.with_part_pooling(pooling))
            }
            other => {
                ensure!(!has_prompt, Mistake("--prompt and --prompt-name are for models of texts alone".into()));
                let is_long = self.long_texts.are_given() || self.pool.is_some();
                ensure!(!is_long, Mistake("--long, --stride and --pool are for models of texts alone".into()));
                other
            }
        })
    }

    /// How long texts are read; there is nothing to pool of those that are cut.
    fn long_text(&self) -> Result<LongText> {
        let long_text = self.long_texts.long_text()?;
        let is_whole = self.pool.is_none() || long_text != LongText::Truncate;
        ensure!(is_whole, Mistake("--pool is for --long windows and --long sentences: give one of them".into()));
        Ok(long_text)
    }

    /// The vector of the text that is compared with all.
    fn other(&self, embedder: &AnyEmbedder) -> Result<Option<Vec<Vec<f32>>>> {
        self.similarity.as_ref().map(|text| embedder.texts(0, &[text])).transpose()
    }

    /// Numbers with a space between them, or an object with what the vector is of, for each.
    fn shown(&self, kind: &str, names: &[String], vectors: &[Vec<f32>], other: Option<&[Vec<f32>]>) -> String {
        let lines = names.iter().zip(vectors).map(|(name, vector)| {
            let similarity = other.map(|other| cosine_similarities(std::slice::from_ref(vector), other)[0][0]);
            match (similarity, self.json) {
                (Some(similarity), true) => format!("{}\n", json!({kind: name, "similarity": similarity})),
                (Some(similarity), false) => format!("{similarity:.4}\n"),
                (None, true) => format!("{}\n", json!({kind: name, "embedding": vector})),
                (None, false) => {
                    let numbers: Vec<String> = vector.iter().map(|number| format!("{number:.6}")).collect();
                    format!("{}\n", numbers.join(" "))
                }
            }
        });
        lines.collect()
    }
}
