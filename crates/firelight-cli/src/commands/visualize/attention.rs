//! `firelight visualize attention`: what each token reads, as a page, a picture or text.

use std::path::PathBuf;

use anyhow::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use firelight::data::Image;
use firelight::inspect::{self, Asked, AttentionKind, AttentionMaps, Selection};
use firelight::storage::shortened;

use crate::commands::classify_images::check_picture;
use crate::commands::drawing::{Drawing, Format};
use crate::commands::trained_model::TrainedModel;

const EXAMPLES: &str = "\
Examples:
  firelight visualize attention runs/stories-1 --text \"Once upon a time\" --out maps.html
  firelight visualize attention gpt2 --text \"The cat sat\" --generate 8 --out maps.html
  firelight visualize attention runs/dates-1 --text \"3rd of March 1997\" --kind cross --out cross.svg
  firelight visualize attention bert-base-uncased --text \"the river bank\" --layer 3 --head 5
  firelight visualize attention runs/images-1 --image seven.png --out where.png
  firelight visualize attention openai/clip-vit-base-patch32 --image cat.png --text \"a photo of a cat\" --out clip.html

--out takes .html, .svg and .png; text has the last layer alone. A page holds all layers and heads, needs no network and answers pointer \
and arrow keys. A PNG has no room for tokens. Weights are no proof of what a model relies on.";

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
    #[command(flatten)]
    drawing: Drawing,
}

impl Attention {
    pub(super) fn run(self) -> Result<()> {
        let format = self.drawing.format(&[Format::Page, Format::Svg, Format::Png])?;
        if let Some(image) = &self.image {
            check_picture("--out", self.drawing.out(), std::slice::from_ref(image))?;
        }
        let maps = self.maps()?;
        self.drawing.show(match format {
            Format::Text => inspect::text(&maps).into(),
            Format::Page => inspect::page(&self.title(), &maps).into(),
            Format::Svg => inspect::svg(&maps).into(),
            Format::Png => inspect::picture(&maps).into(),
        })
    }

    fn maps(&self) -> Result<Vec<AttentionMaps>> {
        let image = self.image.as_ref().map(Image::open).transpose()?;
        let asked = Asked { text: self.text.clone(), target: self.target.clone(), image, generate: self.generate };
        let model = self.model.load(|folder, checkpoint, device| inspect::open(&folder, checkpoint, device))?;
        let selection = Selection { kind: self.kind, layer: self.layer, head: self.head };
        Ok(selection.of(model.attention(&asked)?)?)
    }

    fn title(&self) -> String {
        let image = self.image.as_ref().map(|path| path.display().to_string());
        let what = self.text.clone().or(image).unwrap_or_default();
        format!("Attention: {}", shortened(&what))
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
