//! `firelight patch`: activation patching between two texts.

use std::path::PathBuf;

use anyhow::Result;
use firelight::inspect::{PatchGrid, PatchQuestion, TextModel};
use firelight::storage::{shortened, write_atomic};

use super::out_file;
use super::trained_model::TrainedModel;
use crate::output;

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
    /// File to write, which ends in .html or .svg; without it, text is printed
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

impl Patch {
    pub(crate) fn run(self) -> Result<()> {
        let ending = self.out.as_deref().map(|out| out_file::ending(out, self.force, &["html", "svg"])).transpose()?;
        let model = self.model.load(|folder, checkpoint, device| TextModel::open(&folder, checkpoint, device))?;
        let Self { clean, corrupted, answer, wrong, .. } = &self;
        let grid = PatchGrid::measure(&model, &PatchQuestion { clean, corrupted, answer, wrong })?;
        let Some(out) = &self.out else {
            let shown = if self.json { format!("{}\n", grid.to_json()) } else { grid.to_text() };
            return Ok(output::print(&shown)?);
        };
        let title = format!("Activation patching: {}", shortened(clean));
        let drawn = if ending.as_deref() == Some("svg") { grid.to_svg() } else { grid.to_page(&title) };
        write_atomic(out, drawn)?;
        output::note(format_args!("wrote {}", out.display()));
        Ok(())
    }
}
