//! `firelight evaluate`: the loss of a trained model over the whole validation part of a text.

use std::path::PathBuf;

use anyhow::Result;
use firelight::language::{self, Evaluation};
use firelight::storage::Checkpoint;
use firelight::{data, device};
use serde_json::json;

use crate::output;

/// Measure a trained model on the validation part of a text
#[derive(clap::Args)]
pub(crate) struct Evaluate {
    /// Run folder of the model
    run_dir: PathBuf,
    /// Text file (UTF-8); its validation part is measured, split off as in training
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Weights to use: last, best or the number of a step
    #[arg(long, value_name = "NAME", default_value = "last")]
    checkpoint: String,
    /// Device: flex, ndarray, wgpu, vulkan, metal, cuda or rocm, with an index such as cuda:1, or auto
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

impl Evaluate {
    pub(crate) fn run(self) -> Result<()> {
        let checkpoint: Checkpoint = self.checkpoint.parse()?;
        let chosen = device::choose(self.device.as_deref())?;
        let text = data::read_text(&self.data)?;
        output::note(format_args!("checkpoint: {checkpoint} of {}, device: {}", self.run_dir.display(), chosen.name));
        let evaluation = language::evaluate(&self.run_dir, &checkpoint, &text, &chosen.device)?;
        let report = if self.json { to_json(&evaluation) } else { to_text(&evaluation) };
        output::print(&report)?;
        Ok(())
    }
}

fn to_json(evaluation: &Evaluation) -> String {
    let line = json!({
        "loss": evaluation.loss,
        "perplexity": evaluation.perplexity,
        "bits_per_character": evaluation.bits_per_character,
        "tokens": evaluation.tokens,
    });
    format!("{line}\n")
}

fn to_text(evaluation: &Evaluation) -> String {
    format!(
        "loss                {:.4} nats per token\nperplexity          {:.3}\nbits per character  {:.4}\ntokens              {}\n",
        evaluation.loss, evaluation.perplexity, evaluation.bits_per_character, evaluation.tokens
    )
}
