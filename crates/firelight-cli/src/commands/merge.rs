//! `firelight merge`: the low-rank adapters of a run added into its weights, in a run folder of its own.

use std::path::PathBuf;

use anyhow::Result;
use firelight::classification::merge;

use super::trained_model::TrainedModel;
use crate::output;

/// Add the low-rank adapters of a classifier into its weights, in a new run folder that needs no adapters
#[derive(clap::Args)]
pub(crate) struct Merge {
    #[command(flatten)]
    model: TrainedModel,
    /// Run folder to write
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Merge {
    pub(crate) fn run(self) -> Result<()> {
        let write = |checkpoint: &_, device: &_| Ok(merge(&self.model.run_dir, checkpoint, &self.out, device)?);
        let merged = self.model.with(write)?;
        let path = merged.path().display();
        output::note(format_args!(
            "the model without adapters: {path}; ask it with: firelight classify {path} --text ..."
        ));
        Ok(())
    }
}
