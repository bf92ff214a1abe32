//! `firelight caption`: images in, texts that describe them out, and a picture of where every word looked.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::Result;
use firelight::data::Image;
use firelight::seq2seq::{self, CaptionWord, Captioner};
use serde_json::{Value, json};

use super::classify_images::check_picture;
use super::trained_model::TrainedModel;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  firelight caption runs/captions-1 --image photo.png
  firelight caption runs/captions-1 --image photo.png --attention words.png
  firelight caption runs/captions-1 --image a.png --image b.png --json > captions.jsonl";

/// Describe images in words
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Caption {
    #[command(flatten)]
    model: TrainedModel,
    /// Image to describe (PNG or JPEG), resized to what the model takes; may be repeated
    #[arg(long, value_name = "FILE", required = true)]
    image: Vec<PathBuf>,
    /// Write a PNG of the image and, behind it, of where each word of the caption looked, in rows of six
    #[arg(long, value_name = "FILE")]
    attention: Option<PathBuf>,
    /// Width of the beam search; 1 is greedy
    #[arg(long, value_name = "N", default_value = "1")]
    beams: NonZeroUsize,
    /// Print one line of JSON for each image, with each word's attention to the patches, row by row
    #[arg(long)]
    json: bool,
}

/// What stands in the rows of the picture.
fn rows(words: &[CaptionWord]) -> String {
    let tiles: Vec<&str> = std::iter::once("(image)").chain(words.iter().map(|word| word.text.as_str())).collect();
    tiles.chunks(Captioner::COLUMNS).map(|row| row.join(" ")).collect::<Vec<_>>().join(" | ")
}

impl Caption {
    pub(crate) fn run(self) -> Result<()> {
        self.model.is_for("caption")?;
        check_picture("--attention", self.attention.as_deref(), &self.image)?;
        let images = self.image.iter().map(Image::open).collect::<Result<Vec<_>, _>>()?;
        let captioner = self.model.load(Captioner::load_from)?;
        let batches = self.image.chunks(Captioner::BATCH).zip(images.chunks(Captioner::BATCH));
        for (paths, images) in batches {
            let found = captioner.caption(images, self.beams.get())?; // Where it fails, those before are printed.
            for ((path, image), caption) in paths.iter().zip(images).zip(&found) {
                self.show(&captioner, (path.as_path(), image), caption)?;
            }
        }
        Ok(())
    }

    /// Prints a caption, and writes the picture that is asked for.
    fn show(&self, captioner: &Captioner, (path, image): (&Path, &Image), caption: &seq2seq::Caption) -> Result<()> {
        let words = captioner.words(image, caption)?;
        if let Some(picture) = &self.attention {
            captioner.picture(image, &words).write_png(picture)?;
            output::note(format_args!("wrote {}, row by row: {}", picture.display(), rows(&words)));
        }
        Ok(output::print(&self.shown(&path.display().to_string(), caption, &words))?)
    }

    /// An object, or the path and the caption.
    fn shown(&self, path: &str, caption: &seq2seq::Caption, words: &[CaptionWord]) -> String {
        if !self.json {
            return format!("{path}\t{}\n", caption.text);
        }
        let word = |word: &CaptionWord| json!({"word": word.text, "attention": word.shares});
        let words: Vec<Value> = words.iter().map(word).collect();
        format!("{}\n", json!({"image": path, "caption": caption.text, "score": caption.score, "words": words}))
    }
}
