//! `firelight ablate`: which choice makes which difference.

use anyhow::Result;

use super::options::GridOptions;

const EXAMPLES: &str = "\
Examples:
  firelight ablate recipe.toml --data input.txt --vary model.n_heads=1,4,8 --vary model.norm=rms,layer --seeds 3 --out heads
  firelight ablate dates --vary model.dropout=0,0.1 --vary training.ema_decay=0,0.999 --one-at-a-time --out parts
  firelight ablate dates --vary model.n_layers=1,2 --set training.steps=500 --out depth --dry-run

Every combination is trained with every seed, in a run folder of its own below DIR. The same command again goes on where it was stopped: \
what is finished is not trained again, what was interrupted resumes, and what failed is tried again.

The table on the standard output has the mean and the standard deviation over the seeds. results.csv has every training, results.svg \
the picture. The exit code is 1 if a training failed; the others are trained all the same.";

/// Train every combination of choices of a recipe and compare them
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Ablate {
    #[command(flatten)]
    grid: GridOptions,
}

impl Ablate {
    pub(crate) fn run(self) -> Result<()> {
        let Some(finished) = self.grid.train(false)? else { return Ok(()) };
        let results = finished.results();
        finished.write_picture(&results.to_svg())?;
        finished.print(false, "", &[])?;
        finished.end()
    }
}
