//! `firelight merge`: the low-rank adapters of a run added into its weights, in a run folder of its own.

use std::path::PathBuf;

use anyhow::{Error, Result};
use firelight::classification::{ClassificationError, merge};
use firelight::storage::StorageError;

use super::trained_model::TrainedModel;
use crate::failure::Mistake;
use crate::output;

const EXAMPLES: &str = "\
Example:
  firelight merge runs/adapted-1 --checkpoint best --out runs/merged";

/// Merge the low-rank adapters of a classifier into its weights, in a new run folder
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
        let write =
            |checkpoint: &_, device: &_| merge(&self.model.run_dir, checkpoint, &self.out, device).map_err(in_words);
        let merged = self.model.with(write)?;
        let path = merged.path().display();
        output::note(format_args!(
            "the model without adapters: {path}; ask it with: firelight classify {path} --text ..."
        ));
        Ok(())
    }
}

/// A folder that is not empty can neither be resumed nor replaced here.
fn in_words(error: ClassificationError) -> Error {
    match error {
        ClassificationError::Storage(StorageError::FolderExists { path }) => {
            Mistake(format!("the folder `{}` is not empty: choose another one with --out", path.display())).into()
        }
        other => other.into(),
    }
}
