//! `firelight export`: a run folder in, a folder that `transformers` loads out.

use std::path::PathBuf;

use anyhow::Result;
use firelight::pretrained::export;

use crate::output;

const EXAMPLES: &str = "\
Example:
  firelight export runs/stories-1 --to stories
  python -c \"import transformers; print(transformers.AutoModelForCausalLM.from_pretrained('stories'))\"";

/// Write the model of a run, or its adapters alone, as Hugging Face and PEFT have them, with the tokenizer
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Export {
    /// Run folder of the model
    run_dir: PathBuf,
    /// Folder to write; it must be new or empty
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Weights to use: last (the newest), best, average or the number of a step
    #[arg(long, value_name = "NAME", default_value = "last")]
    checkpoint: String,
}

impl Export {
    pub(crate) fn run(self) -> Result<()> {
        export(&self.run_dir, &self.checkpoint.parse()?, &self.to)?;
        output::note(format_args!("written: {}", self.to.display()));
        Ok(())
    }
}
