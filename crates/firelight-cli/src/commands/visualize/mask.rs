//! `firelight visualize mask`: which tokens see which, in one layer and through several.

use std::path::Path;

use anyhow::{Result, ensure};
use firelight::inspect::{self, Figure, ModelStack};
use firelight::storage::shortened;

use crate::commands::drawing::Drawing;
use crate::commands::pattern::Pattern;
use crate::commands::trained_model::TrainedModel;
use crate::failure::Mistake;

/// Layers of a pattern where nobody says, and the most there can be.
const LAYERS: usize = 3;
const MOST: usize = 1000;

const EXAMPLES: &str = "\
Patterns: causal, window:N, around:N, chunks:N, strided:N, local_global:N,G and bigbird:N,G,R, as in firelight bench attention.

Examples:
  firelight visualize mask window:2 --length 16 --layers 3
  firelight visualize mask bigbird:3,2,1 --length 256 --layers 2 --out mask.svg
  firelight visualize mask runs/stories-1 --length 64 --out mask.html

--out takes .html, .svg and .png. The last map counts the layers until a token knows of another one, through the tokens between them; of a \
model each layer has its own pattern. Padding and cross-attention are left out. A model folder that is called causal is given as ./causal.";

/// Draw which tokens see which, and what a token reaches through several layers
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Mask {
    #[command(flatten)]
    model: TrainedModel,
    /// Tokens of the text
    #[arg(long, value_name = "N", default_value_t = 32)]
    length: usize,
    /// Layers to go through; by default all of a model, and 3 of a pattern
    #[arg(long, value_name = "N")]
    layers: Option<usize>,
    #[command(flatten)]
    drawing: Drawing,
}

impl Mask {
    pub(super) fn run(self) -> Result<()> {
        self.drawing.show_figure(|| match self.pattern()? {
            Some(pattern) => self.of_pattern(&pattern),
            None => self.of_model(),
        })
    }

    /// The pattern that the user calls by its name; none where it is a model.
    fn pattern(&self) -> Result<Option<Pattern>> {
        let Some(name) = self.model.called() else { return Ok(None) };
        match name.parse::<Pattern>() {
            Ok(pattern) => Ok(Some(pattern)),
            Err(expected) if name.contains(':') && !Path::new(name).exists() => {
                Err(Mistake(format!("`{}` is no pattern: {expected}", shortened(name))).into())
            }
            Err(_) => Ok(None),
        }
    }

    fn of_pattern(&self, pattern: &Pattern) -> Result<Figure> {
        self.model.has_no_weights()?;
        let layers = self.layers.unwrap_or(LAYERS);
        ensure!(layers <= MOST, Mistake(format!("--layers = {layers} is more than {MOST}: give fewer")));
        Ok(inspect::mask_figure("", &vec![pattern.rule.clone(); layers], self.length)?)
    }

    fn of_model(&self) -> Result<Figure> {
        let stacks = self.model.load(|folder, checkpoint, device| inspect::stacks(&folder, checkpoint, device))?;
        let several = stacks.len() > 1;
        let figures = stacks.iter().map(|stack| self.of_stack(stack, several)).collect::<Result<Vec<_>>>()?;
        Ok(Figure::joined("Attention pattern", figures))
    }

    fn of_stack(&self, stack: &ModelStack, several: bool) -> Result<Figure> {
        let (all, name) = (stack.n_layers(), if several { stack.name } else { "" });
        let layers = self.layers.unwrap_or(all);
        let fits = (1..=all).contains(&layers);
        ensure!(
            fits,
            Mistake(format!("--layers = {layers} does not fit the {} of {all} layers: give 1 to {all}", stack.name))
        );
        let rules: Vec<_> = (0..layers).map(|layer| stack.transformer.rule(layer)).collect();
        Ok(inspect::mask_figure(name, &rules, self.length)?)
    }
}
