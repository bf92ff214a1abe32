//! `firelight visualize attention`: what each token reads, as a page, a picture or text.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use firelight::data::Image;
use firelight::inspect::{self, Asked, AttentionKind, AttentionMaps, Selection};
use firelight::storage::{shortened, write_atomic};

use super::classify_images::check_picture;
use super::out_file;
use super::trained_model::TrainedModel;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  firelight visualize attention runs/stories-1 --text \"Once upon a time\" --out maps.html
  firelight visualize attention gpt2 --text \"The cat sat\" --generate 8 --out maps.html
  firelight visualize attention runs/dates-1 --text \"3rd of March 1997\" --kind cross --out cross.svg
  firelight visualize attention bert-base-uncased --text \"the river bank\" --layer 3 --head 5
  firelight visualize attention runs/images-1 --image seven.png --out where.png
  firelight visualize attention openai/clip-vit-base-patch32 --image cat.png --text \"a photo of a cat\" --out clip.html

A page holds all layers and heads, needs no network and answers pointer and arrow keys. A PNG has no room for tokens. Weights are no \
proof of what a model relies on.";

/// Draw what each token of a text, or patch of an image, reads: the weights of attention
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Attention {
    #[command(flatten)]
    model: TrainedModel,
    /// Text to read: a prompt, a source, or two texts with a tab between them
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// What an encoder-decoder writes; by default its greedy output
    #[arg(long, value_name = "TEXT")]
    target: Option<String>,
    /// Image to look at (PNG or JPEG), resized to what the model takes
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Let a language model add N tokens, and show what those read
    #[arg(long, value_name = "N", default_value_t = 0)]
    generate: usize,
    /// Kind of attention to show; by default all that the model has
    #[arg(long, value_name = "KIND", value_parser = kind())]
    kind: Option<AttentionKind>,
    /// Layer to show, counted from 0; by default all
    #[arg(long, value_name = "N")]
    layer: Option<usize>,
    /// Head to show, counted from 0; by default all
    #[arg(long, value_name = "N")]
    head: Option<usize>,
    /// File to write, which ends in .html, .svg or .png; without it, the last layer is printed as text
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

impl Attention {
    pub(super) fn run(self) -> Result<()> {
        let format = self.out.as_deref().map(|out| self.format(out)).transpose()?;
        let maps = self.maps()?;
        match (&self.out, format) {
            (Some(out), Some(format)) => self.write(out, format, &maps),
            _ => Ok(output::print(&inspect::text(&maps))?),
        }
    }

    /// The format of a file that may be written, before anything is loaded.
    fn format(&self, out: &Path) -> Result<Format> {
        let format = Format::of(&out_file::ending(out, self.force, &["html", "svg", "png"])?);
        if let Some(image) = &self.image {
            check_picture("--out", Some(out), std::slice::from_ref(image))?;
        }
        Ok(format)
    }

    fn maps(&self) -> Result<Vec<AttentionMaps>> {
        let image = self.image.as_ref().map(Image::open).transpose()?;
        let asked = Asked { text: self.text.clone(), target: self.target.clone(), image, generate: self.generate };
        let model = self.model.load(|folder, checkpoint, device| inspect::open(&folder, checkpoint, device))?;
        let selection = Selection { kind: self.kind, layer: self.layer, head: self.head };
        Ok(selection.of(model.attention(&asked)?)?)
    }

    fn write(&self, out: &Path, format: Format, maps: &[AttentionMaps]) -> Result<()> {
        match format {
            Format::Page => write_atomic(out, inspect::page(&self.title(), maps))?,
            Format::Svg => write_atomic(out, inspect::svg(maps))?,
            Format::Png => inspect::picture(maps).write_png(out)?,
        }
        output::note(format_args!("wrote {}", out.display()));
        Ok(())
    }

    fn title(&self) -> String {
        let image = self.image.as_ref().map(|path| path.display().to_string());
        let what = self.text.clone().or(image).unwrap_or_default();
        format!("Attention: {}", shortened(&what))
    }
}

/// What a file holds.
#[derive(Clone, Copy)]
enum Format {
    Page,
    Svg,
    Png,
}

impl Format {
    /// As its ending says.
    fn of(ending: &str) -> Self {
        match ending {
            "html" => Self::Page,
            "svg" => Self::Svg,
            _ => Self::Png,
        }
    }
}

/// Reads the name of a kind.
fn kind() -> impl TypedValueParser<Value = AttentionKind> {
    let named = |name: String| {
        let found = AttentionKind::ALL.into_iter().find(|kind| kind.name() == name);
        found.unwrap_or(AttentionKind::SelfAttention)
    };
    PossibleValuesParser::new(AttentionKind::ALL.map(AttentionKind::name)).map(named)
}
