//! `firelight fill-mask`: texts with masks in, the likeliest tokens behind them out.

use std::num::NonZeroUsize;

use anyhow::Result;
use firelight::classification::{FilledMask, MaskFiller};
use serde_json::json;

use super::text_input::TextInput;
use super::trained_model::TrainedModel;

const EXAMPLES: &str = "\
Examples:
  firelight fill-mask runs/masked-1 --text \"the [MASK] of the river\"
  firelight fill-mask runs/masked-1 --file texts.txt --top-k 3 --json > filled.jsonl";

/// Find what stands behind the masks of texts; without --file and --text, the lines of the standard input
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[command(mut_arg("file", |arg| arg.help("File of texts with masks, one per line")))]
#[command(mut_arg("text", |arg| arg.help("Text in which [MASK] stands for every token to find")))]
pub(crate) struct FillMask {
    #[command(flatten)]
    model: TrainedModel,
    #[command(flatten)]
    input: TextInput,
    /// How many of the likeliest tokens to show for each mask
    #[arg(long, value_name = "N", default_value = "5")]
    top_k: NonZeroUsize,
    /// Print one line of JSON for each text: the text and, for each of its masks, tokens with their probabilities
    #[arg(long)]
    json: bool,
}

impl FillMask {
    pub(crate) fn run(self) -> Result<()> {
        self.model.is_for("fill-mask")?;
        let mut texts = self.input.texts()?;
        let filler = self.model.load(MaskFiller::load_from)?;
        texts.answer(|before, some| {
            let found = filler.fill_after(before, some, self.top_k.get())?;
            Ok(some.iter().zip(&found).map(|(text, masks)| self.shown(text, masks)).collect())
        })
    }

    /// An object, or the text with a line for each token below it.
    fn shown(&self, text: &str, masks: &[Vec<FilledMask>]) -> String {
        if self.json {
            let token =
                |found: &FilledMask| json!({"token": found.token, "id": found.id, "probability": found.probability});
            let masks: Vec<Vec<_>> = masks.iter().map(|mask| mask.iter().map(token).collect()).collect();
            return format!("{}\n", json!({"text": text, "masks": masks}));
        }
        let line = |found: &FilledMask| format!("  {:5.1} %  {}\n", 100.0 * found.probability, found.token.trim());
        let mask = |(number, found): (usize, &Vec<FilledMask>)| {
            let heading = if masks.len() > 1 { format!("mask {}:\n", number + 1) } else { String::new() };
            heading + &found.iter().map(line).collect::<String>()
        };
        format!("{text}\n{}", masks.iter().enumerate().map(mask).collect::<String>())
    }
}
