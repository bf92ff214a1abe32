//! `firelight explain`: the numbers of attention step by step, those of a text in a model or those of worked examples.

use anyhow::{Result, ensure};
use firelight::inspect::{self, Explanation, TextModel};

use super::drawing::{Drawing, Format};
use super::trained_model::TrainedModel;
use crate::failure::Mistake;

/// What stands in the place of a model for the examples.
const DEMO: &str = "demo";

const EXAMPLES: &str = "\
Examples:
  firelight explain demo                                        worked examples that can be checked by hand
  firelight explain demo --out examples.html                    the same as a page, with a slider of the temperature
  firelight explain runs/stories-1 --text \"One day\" --head 0
  firelight explain bert-base-uncased --text \"the river bank\" --layer 3 --head 5 --out bank.html

A model folder that is called demo is given as ./demo.";

/// Show the numbers of attention step by step, for a text in a model or by worked examples
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Explain {
    #[command(flatten)]
    model: TrainedModel,
    /// Text to read; for encoders also two texts with a tab between them
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Layer to show, counted from 0, by default the first
    #[arg(long, value_name = "N")]
    layer: Option<usize>,
    /// Head to show, counted from 0; by default all
    #[arg(long, value_name = "N")]
    head: Option<usize>,
    #[command(flatten)]
    drawing: Drawing,
}

impl Explain {
    pub(crate) fn run(self) -> Result<()> {
        let format = self.drawing.format(&[Format::Page])?;
        let found = if self.model.is_called(DEMO) { self.demo()? } else { self.of_model()? };
        self.drawing.show(if format == Format::Text { found.to_text().into() } else { found.to_page().into() })
    }

    fn demo(&self) -> Result<Explanation> {
        let is_alone = self.text.is_none() && self.layer.is_none() && self.head.is_none();
        let problem = "the examples have texts, layers and heads of their own: leave out --text, --layer and --head, or name a model";
        ensure!(is_alone, Mistake(problem.into()));
        Ok(inspect::worked_examples(&self.model.chosen_device()?)?)
    }

    fn of_model(&self) -> Result<Explanation> {
        let Some(text) = &self.text else {
            return Err(Mistake(
                "a model explains a text: give it with --text, or see `firelight explain demo`".into(),
            )
            .into());
        };
        let model = self.model.load(|folder, checkpoint, device| TextModel::open(&folder, checkpoint, device))?;
        Ok(inspect::explain(&model, text, self.layer.unwrap_or(0), self.head)?)
    }
}
