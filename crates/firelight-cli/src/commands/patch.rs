//! `firelight patch`: activation patching between two texts.

use anyhow::Result;
use firelight::inspect::{PatchGrid, PatchQuestion, TextModel};
use firelight::storage::shortened;

use super::drawing::{Drawing, Format};
use super::trained_model::TrainedModel;

const EXAMPLES: &str = "\
Example:
  firelight patch gpt2 --clean \"Paris is in\" --corrupted \"Rome is in\" --answer \" France\" --wrong \" Italy\" --out grid.html

A number is the share of the logit difference that comes back when the residual stream of one token behind one layer is carried from the clean \
text into the corrupted one: 0 is nothing, 1 all of it. Both texts have as many tokens; the answers are single tokens.";

/// Find the token and layer that carry what makes a model answer one text differently from another
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Patch {
    #[command(flatten)]
    model: TrainedModel,
    /// Text that the answer follows
    #[arg(long, value_name = "TEXT")]
    clean: String,
    /// Text that differs from it in what matters, of as many tokens
    #[arg(long, value_name = "TEXT")]
    corrupted: String,
    /// Token that follows the clean text
    #[arg(long, value_name = "TOKEN")]
    answer: String,
    /// Token that follows the corrupted text
    #[arg(long, value_name = "TOKEN")]
    wrong: String,
    /// Print one line of JSON
    #[arg(long, conflicts_with = "out")]
    json: bool,
    #[command(flatten)]
    drawing: Drawing,
}

impl Patch {
    pub(crate) fn run(self) -> Result<()> {
        let format = self.drawing.format(&[Format::Page, Format::Svg])?;
        let model = self.model.load(|folder, checkpoint, device| TextModel::open(&folder, checkpoint, device))?;
        let Self { clean, corrupted, answer, wrong, .. } = &self;
        let grid = PatchGrid::measure(&model, &PatchQuestion { clean, corrupted, answer, wrong })?;
        self.drawing.show(match format {
            Format::Text if self.json => format!("{}\n", grid.to_json()).into(),
            Format::Svg => grid.to_svg().into(),
            Format::Page => grid.to_page(&format!("Activation patching: {}", shortened(clean))).into(),
            _ => grid.to_text().into(),
        })
    }
}
