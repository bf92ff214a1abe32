//! `firelight import`: a folder as Hugging Face writes it in, an ordinary run folder out.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use firelight::pretrained::{PublishedModel, locate};

use crate::failure::Mistake;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  firelight import ~/models/gpt2 --out runs/gpt2
  firelight import ~/models/gpt2 --report | less
  firelight import ~/models/qwen2-q8_0.gguf --floats --out runs/qwen2
  firelight import openai-community/gpt2@main --out runs/gpt2
  firelight generate runs/gpt2 --prompt \"The meaning of life is\"";

/// Convert a published model, a folder with config.json, weights and tokenizer.json, to a run folder
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Import {
    /// Folder of the published model, its name on the hub of Hugging Face, or a GGUF file
    model: PathBuf,
    /// Run folder to write; it must be new or empty
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print every tensor, its place in the model and what is done to it
    #[arg(long)]
    report: bool,
    /// Write numbers that a GGUF file has in blocks as 32-bit floats, which can be trained and converted
    #[arg(long)]
    floats: bool,
}

impl Import {
    pub(crate) fn run(self) -> Result<()> {
        ensure!(self.out.is_some() || self.report, Mistake("name the run folder to write: --out DIR".into()));
        let folder = locate(&self.model, |told| output::note(format_args!("{told}")))?;
        let model = PublishedModel::open(folder)?;
        if self.report {
            output::print(&(model.report().join("\n") + "\n"))?;
        }
        if let Some(out) = self.out {
            let run = if self.floats { model.import_floats(out)? } else { model.import(out)? };
            let notes = if self.floats { Vec::new() } else { model.import_notes() };
            notes.iter().for_each(|note| output::note(format_args!("{note}")));
            let (task, path) = (model.structure().task(), run.path().display());
            output::note(format_args!(
                "a run folder of the task `{task}`: {path}; look at it: firelight inspect {path}"
            ));
        }
        Ok(())
    }
}
