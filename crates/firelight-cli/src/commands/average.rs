//! `firelight average`: the mean of the newest checkpoints of a run, as one more checkpoint of it.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use firelight::storage::{Checkpoint, ModelFolder, StorageError, average_weights};

use crate::failure::Mistake;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  firelight average runs/shakespeare --newest 3
  firelight evaluate runs/shakespeare --checkpoint average";

/// Average the weights of several checkpoints; other commands take them with --checkpoint average
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Average {
    /// Run folder of the model
    run_dir: PathBuf,
    /// Steps whose checkpoints are averaged, such as 1000,1500,2000; the newest ones by default
    #[arg(long, value_name = "STEPS", value_delimiter = ',', conflicts_with = "newest")]
    steps: Vec<usize>,
    /// How many of the newest checkpoints are averaged; all by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    newest: Option<u32>,
}

impl Average {
    pub(crate) fn run(self) -> Result<()> {
        let folder = ModelFolder::open(&self.run_dir)?;
        let steps = self.chosen(&folder)?;
        let files = steps.iter().map(|&step| folder.weights(&Checkpoint::Step(step))).collect::<Result<Vec<_>, _>>()?;
        folder.write_checkpoint(&Checkpoint::Average, |average| average_weights(&files, average.weights()))?;
        let listed = steps.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let path = folder.weights(&Checkpoint::Average)?;
        output::note(format_args!("averaged the checkpoints of steps {listed}: {}", path.display()));
        output::note(format_args!("use it with: firelight evaluate {} --checkpoint average", self.run_dir.display()));
        Ok(())
    }

    /// The steps to average, in order.
    fn chosen(&self, folder: &ModelFolder) -> Result<Vec<usize>> {
        if !self.steps.is_empty() {
            return Ok(self.steps.clone());
        }
        let there = steps_of(folder)?;
        let wanted = self.newest.map_or(there.len(), |newest| newest as usize);
        ensure!(!there.is_empty() && wanted <= there.len(), Mistake(too_few(&self.run_dir, wanted, &there)));
        Ok(there[there.len() - wanted..].to_vec())
    }
}

fn steps_of(folder: &ModelFolder) -> Result<Vec<usize>, StorageError> {
    let steps = folder.checkpoints()?.into_iter().filter_map(|checkpoint| match checkpoint {
        Checkpoint::Step(step) => Some(step),
        _ => None,
    });
    Ok(steps.collect())
}

fn too_few(run_dir: &Path, wanted: usize, there: &[usize]) -> String {
    format!(
        "`{}` has {} of the {} checkpoints that are wanted; train with --set training.keep_checkpoints={} or more",
        run_dir.display(),
        there.len(),
        wanted.max(1),
        wanted.max(2)
    )
}
