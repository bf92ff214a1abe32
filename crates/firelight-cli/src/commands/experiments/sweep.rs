//! `firelight sweep`: which values of some keys are the best.

use anyhow::Result;
use firelight::training::experiments::{Results, Summary};

use super::options::GridOptions;

const EXAMPLES: &str = "\
Examples:
  firelight sweep dates --vary optimizer.learning_rate=1e-4..1e-2:5 --out rates
  firelight sweep recipe.toml --data a.txt --vary model.dropout=0..0.3:4:linear --vary model.n_layers=2,4 --out sweep
  firelight sweep texts --data DIR --vary optimizer.learning_rate=1e-5..1e-3:7 --metric accuracy --seeds 2 --out rates

A range FROM..TO:COUNT has equal ratios, and with :linear behind it equal differences. Everything else is as with `firelight ablate`; \
below the table stands the best point.";

/// Train a recipe over ranges of values and name the best point
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Sweep {
    #[command(flatten)]
    grid: GridOptions,
}

impl Sweep {
    pub(crate) fn run(self) -> Result<()> {
        let Some(finished) = self.grid.train(false)? else { return Ok(()) };
        let results = finished.results();
        finished.write_picture(&results.to_svg())?;
        let best = results.best().map(|best| named(&results, &best)).unwrap_or_default();
        finished.print(false, &best, &[])?;
        finished.end()
    }
}

/// The best point in words.
fn named(results: &Results, best: &Summary) -> String {
    let mean = best.mean.map_or_else(String::new, |mean| format!("{mean:.4}"));
    let deviation = best.deviation.map_or_else(String::new, |deviation| {
        format!(", standard deviation {deviation:.4} of {} seeds", best.values.len())
    });
    format!("\nbest: {} ({} {mean}{deviation})\n", best.name, results.metric_in_words())
}
