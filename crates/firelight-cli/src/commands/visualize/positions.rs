//! `firelight visualize positions`: how tokens know their places, in a model or by a scheme.

use anyhow::{Result, ensure};
use firelight::inspect::{self, Figure};
use firelight::nn::{PositionConfig, PositionSizes};
use serde_json::json;

use crate::commands::drawing::Drawing;
use crate::commands::trained_model::TrainedModel;
use crate::failure::Mistake;

/// Positions, channels and heads of a scheme where nobody says.
const LENGTH: usize = 32;
const WIDTH: usize = 64;
const HEADS: usize = 8;

const EXAMPLES: &str = "\
Schemes: learned, sinusoidal, sinusoidal_halves, rotary, alibi, t5, shaw. Trained ones are shown as a new model has them, at random.

Examples:
  firelight visualize positions sinusoidal --length 64 --width 32 --out waves.svg
  firelight visualize positions rotary --length 200
  firelight visualize positions alibi --heads 4 --length 16
  firelight visualize positions gpt2 --length 256 --out learned.html

--out takes .html, .svg and .png. Added positions are shown with the cosine of every two, rotary ones with the mean product by distance, \
biases by distance. A model folder that is called rotary is given as ./rotary.";

/// Draw the positions of a model, or of a scheme by its name, and how similar they are
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Positions {
    #[command(flatten)]
    model: TrainedModel,
    /// Positions to draw; by default 32, or as many as a trained table has; of patches all, up to 1024
    #[arg(long, value_name = "N")]
    length: Option<usize>,
    /// Channels of a scheme; by default 64
    #[arg(long, value_name = "N")]
    width: Option<usize>,
    /// Heads of a scheme of biases; by default 8
    #[arg(long, value_name = "N")]
    heads: Option<usize>,
    #[command(flatten)]
    drawing: Drawing,
}

impl Positions {
    pub(super) fn run(self) -> Result<()> {
        self.drawing.show_figure(|| match self.scheme() {
            Some(scheme) => self.of_scheme(&scheme),
            None => self.of_model(),
        })
    }

    /// The scheme that the user calls by its name.
    fn scheme(&self) -> Option<PositionConfig> {
        serde_json::from_value(json!({"kind": self.model.called()?})).ok()
    }

    fn of_scheme(&self, scheme: &PositionConfig) -> Result<Figure> {
        self.model.has_no_weights()?;
        let has_heads = matches!(scheme, PositionConfig::Alibi | PositionConfig::T5 { .. });
        ensure!(has_heads || self.heads.is_none(), Mistake("--heads is for alibi and t5: leave it out".into()));
        let width = self.width.unwrap_or(WIDTH);
        let sizes = PositionSizes {
            d_model: width,
            n_heads: self.heads.unwrap_or(HEADS),
            d_head: width,
            max_seq_len: self.length.unwrap_or(LENGTH),
        };
        Ok(inspect::scheme_figure(scheme, sizes, &self.model.chosen_device()?)?)
    }

    fn of_model(&self) -> Result<Figure> {
        let is_plain = self.width.is_none() && self.heads.is_none();
        ensure!(is_plain, Mistake("--width and --heads are for a scheme: a model has its own".into()));
        self.model.load(|folder, checkpoint, device| {
            inspect::position_figure(&inspect::stacks(&folder, checkpoint, device)?, self.length, device)
        })
    }
}
