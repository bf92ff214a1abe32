//! `firelight report`: the report of a run, made again from what lies in its folder.

use std::path::PathBuf;

use anyhow::{Result, bail};
use firelight::device;
use firelight::storage::{Checkpoint, ModelFolder};
use firelight::training::{TrainedRun, task_of};

use super::place;
use super::tasks::{Shown, with_task};
use crate::failure::Mistake;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  firelight report runs/stories-1
  firelight report runs/stories-1 --no-samples

The report is RUN_DIR/report.html: one page with the curves, samples of the newest weights, the recipe, the wall time and the \
commands of the run. A run that was interrupted, or that is still training, has one too.";

/// Write the report of a run again, finished or not, from its folder
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Report {
    /// Run folder
    run_dir: PathBuf,
    /// Leave out samples and figures, for which the model is loaded
    #[arg(long, conflicts_with = "device")]
    no_samples: bool,
    /// Device, such as cpu, wgpu or cuda:1; `firelight devices` lists those found
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

impl Report {
    pub(crate) fn run(self) -> Result<()> {
        let folder = ModelFolder::open(&self.run_dir)?;
        let task = task_of(&folder.recipe())?;
        let unknown = || Mistake(format!("`{}` is a run of the unknown task `{task}`", folder.path().display()));
        with_task!(task.as_str(), |T| self.write::<T>(folder), bail!(unknown()))
    }

    fn write<T: Shown>(&self, folder: ModelFolder) -> Result<()> {
        let report = folder.report();
        match folder.find(&Checkpoint::Last) {
            Ok(_) if !self.no_samples => self.write_with_samples::<T>(folder)?,
            Err(error) if !self.no_samples => {
                output::note(format_args!("without samples: {error}"));
                TrainedRun::<T>::write_bare_report(&folder)?;
            }
            _ => TrainedRun::<T>::write_bare_report(&folder)?,
        }
        output::note(format_args!("report: {}", report.display()));
        Ok(())
    }

    fn write_with_samples<T: Shown>(&self, folder: ModelFolder) -> Result<()> {
        let chosen = device::choose(self.device.as_deref())?;
        let run = TrainedRun::<T>::open(folder, &chosen.device)?;
        output::note(format_args!(
            "checkpoint: last, step {} of {}, device: {}",
            run.steps,
            run.planned,
            place(&chosen)
        ));
        let samples = T::samples(&run, &chosen)?;
        Ok(run.write_report(samples)?)
    }
}
