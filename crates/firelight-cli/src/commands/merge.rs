//! `firelight merge`: the low-rank adapters of a run added into its weights, in a run folder of its own.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use firelight::training::merge;

use super::tasks::{Shown, with_task};
use super::trained_model::TrainedModel;
use crate::failure::Mistake;
use crate::output;

const EXAMPLES: &str = "\
Example:
  firelight merge runs/adapted-1 --checkpoint best --out runs/merged";

/// Merge the low-rank adapters of a run into its weights, in a new run folder
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Merge {
    #[command(flatten)]
    model: TrainedModel,
    /// Run folder to write; it must be new or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Merge {
    pub(crate) fn run(self) -> Result<()> {
        let task = self.model.task()?.unwrap_or_default();
        let run_dir = self.model.run_dir()?.to_path_buf();
        let unknown = || Mistake(format!("`{}` is of the unknown task `{task}`", run_dir.display()));
        with_task!(task.as_str(), |T| self.merge::<T>(), bail!(unknown()))
    }

    fn merge<T: Shown>(self) -> Result<()> {
        // A folder that is not empty can neither be resumed nor replaced here.
        let is_empty = fs::read_dir(&self.out).map_or(true, |mut files| files.next().is_none());
        let full = format!("the folder `{}` is not empty: choose another one with --out", self.out.display());
        ensure!(is_empty, Mistake(full));
        let run_dir = self.model.run_dir()?;
        let write = |checkpoint: &_, device: &_| Ok(merge::<T>(run_dir, checkpoint, &self.out, device)?);
        let path = self.model.with(write)?.path().display().to_string();
        output::note(format_args!("the model without adapters: {path}; {}", T::next(&path)));
        Ok(())
    }
}
