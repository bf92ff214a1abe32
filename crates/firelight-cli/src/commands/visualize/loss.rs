//! `firelight visualize loss`: how the losses of runs fell.

use std::path::{Path, PathBuf};

use anyhow::Result;
use firelight::storage::{ModelFolder, write_atomic};
use firelight::training::draw_losses;

use crate::commands::drawing::{Format, format_of};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  firelight visualize loss runs/stories-1
  firelight visualize loss runs/stories-1 runs/stories-2 --out both.svg

A run that is still training can be drawn, too. All other curves are in its report: firelight report.";

/// Draw the losses of training and validation by step, of one run or several
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Loss {
    /// Run folders
    #[arg(value_name = "RUN_DIR", required = true)]
    runs: Vec<PathBuf>,
    /// SVG file to write
    #[arg(long, value_name = "FILE", default_value = "loss.svg")]
    out: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

impl Loss {
    pub(super) fn run(self) -> Result<()> {
        format_of(&self.out, self.force, &[Format::Svg])?;
        let mut runs = Vec::new();
        for path in &self.runs {
            runs.push((name(path), ModelFolder::open(path)?));
        }
        write_atomic(&self.out, draw_losses(&runs)?)?;
        output::note(format_args!("wrote {}", self.out.display()));
        Ok(())
    }
}

/// The last part of a path.
fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
