//! `firelight evaluate`: the loss of a trained model over the whole validation part of a text.

use std::path::PathBuf;

use anyhow::Result;
use firelight::data;
use firelight::language::{self, Evaluation};
use serde_json::json;

use super::trained_model::TrainedModel;
use crate::output;

/// Measure a trained model on the validation part of a text
#[derive(clap::Args)]
pub(crate) struct Evaluate {
    #[command(flatten)]
    model: TrainedModel,
    /// Text file (UTF-8); its validation part is measured, split off as in training
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

impl Evaluate {
    pub(crate) fn run(self) -> Result<()> {
        let text = data::read_text(&self.data)?;
        let measure =
            |checkpoint: &_, device: &_| Ok(language::evaluate(&self.model.run_dir, checkpoint, &text, device)?);
        let evaluation = self.model.with(measure)?;
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
