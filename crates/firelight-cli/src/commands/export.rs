//! `firelight export`: a run folder in, a folder that `transformers` loads or a GGUF file out.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use firelight::pretrained::{export, export_gguf};
use firelight::storage::Checkpoint;

use super::trained_model::{converted_to_floats, weights_in};
use crate::failure::Mistake;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  firelight export runs/stories-1 --to stories
  firelight export runs/stories-1 --to stories.gguf --dtype q8_0
  python -c \"import transformers; print(transformers.AutoModelForCausalLM.from_pretrained('stories'))\"";

/// Write the model of a run as Hugging Face has it, its adapters alone as PEFT has them, or all as one GGUF file
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Export {
    /// Run folder of the model, folder of a published model, its name on the hub of Hugging Face, or a GGUF file
    run_dir: PathBuf,
    /// Folder to write, which must be new or empty, or a new file with the ending .gguf
    #[arg(long, value_name = "PATH")]
    to: PathBuf,
    /// Type of the matrices in a GGUF file: f32, f16, bf16, q8_0, q4_0, q4_k or q6_k [default: f32]
    #[arg(long, value_name = "TYPE")]
    dtype: Option<String>,
    /// Weights to use: last (the newest), best, average or the number of a step
    #[arg(long, value_name = "NAME", default_value = "last")]
    checkpoint: String,
}

impl Export {
    pub(crate) fn run(self) -> Result<()> {
        let run = converted_to_floats(&self.run_dir)?;
        let checkpoint: Checkpoint = self.checkpoint.parse()?;
        output::note(format_args!("checkpoint: {checkpoint}, {}", weights_in(&run, &checkpoint)?));
        let notes = if self.to.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf")) {
            export_gguf(&run, &checkpoint, &self.to, self.dtype.as_deref().unwrap_or("f32"))?
        } else {
            let refused = || Mistake("--dtype is for GGUF files: end --to in .gguf".into());
            ensure!(self.dtype.is_none(), refused());
            export(&run, &checkpoint, &self.to)?
        };
        notes.iter().for_each(|note| output::note(format_args!("{note}")));
        output::note(format_args!("written: {}", self.to.display()));
        Ok(())
    }
}
