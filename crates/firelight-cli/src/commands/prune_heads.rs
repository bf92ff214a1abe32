//! `firelight prune-heads`: a language model without some of its heads, in a run folder of its own.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use firelight::inspect;
use firelight::storage::{Existing, ModelFolder, StorageError};

use super::heads::Ranking;
use super::text_input::TextInput;
use super::trained_model::TrainedModel;
use crate::failure::Mistake;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  firelight prune-heads runs/stories-1 --heads 0:1,0:3,2:0 --out runs/fewer-heads
  firelight prune-heads gpt2 --keep-top 100 --by gradient --file texts.txt --out models/gpt2-100
  firelight train --data text.txt --from runs/fewer-heads

With --keep-top heads are ordered as `firelight heads` does it; of each layer the best one stays. The matrices are smaller, the outputs are \
those of the model with zeros in the place of the heads. The folder is asked and measured as any run is, and trained further by \
firelight train --from DIR.";

/// Take heads out of a language model for good, in a new run folder with smaller matrices
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct PruneHeads {
    #[command(flatten)]
    model: TrainedModel,
    /// Heads to take out, each as layer:head counted from 0, separated by commas
    #[arg(long, value_name = "L:H", value_delimiter = ',', value_parser = place, conflicts_with = "keep_top")]
    heads: Vec<[usize; 2]>,
    /// Keep so many heads, the first by a score on the texts, and of each layer at least one
    #[arg(long, value_name = "N")]
    keep_top: Option<usize>,
    #[command(flatten)]
    input: TextInput,
    #[command(flatten)]
    ranking: Ranking,
    /// Run folder to write; it must be new or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl PruneHeads {
    pub(crate) fn run(self) -> Result<()> {
        match ModelFolder::check(&self.out, Existing::Refuse) {
            Err(StorageError::FolderExists { path }) => {
                bail!(Mistake(format!("`{}` is not an empty folder: choose another one with --out", path.display())))
            }
            checked => checked?,
        }
        let heads = self.chosen()?;
        let run = ModelFolder::open(self.model.run_dir()?)?;
        let write = |checkpoint: &_, device: &_| Ok(inspect::prune_heads(&run, checkpoint, &heads, &self.out, device)?);
        let path = self.model.with(write)?.path().display().to_string();
        let count = heads.len();
        output::note(format_args!(
            "{count} heads pruned: {path}; continue a text with: firelight generate {path} --prompt TEXT"
        ));
        Ok(())
    }

    /// The heads that go.
    fn chosen(&self) -> Result<Vec<[usize; 2]>> {
        let Some(kept) = self.keep_top else {
            let missing = "no head is named: give --heads 0:1,2:0, or --keep-top N with a text";
            ensure!(!self.heads.is_empty(), Mistake(missing.into()));
            return Ok(self.heads.clone());
        };
        let has_text = self.input.is_given() || self.ranking.has_file();
        ensure!(
            has_text,
            Mistake("--keep-top orders heads by a text: give --text, --file, --conllu or --pairs".into())
        );
        Ok(self.ranking.table(&self.model, &self.input)?.all_but_first(kept)?)
    }
}

/// Reads a head: `2:0`.
fn place(text: &str) -> Result<[usize; 2], String> {
    let parts =
        text.split_once(':').and_then(|(layer, head)| Some([layer.trim().parse().ok()?, head.trim().parse().ok()?]));
    parts.ok_or_else(|| "expected layer:head, such as 2:0".into())
}
