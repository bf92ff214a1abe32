//! `firelight forward`: one pass of a model, with arguments and outputs as `transformers` calls them.

use std::path::PathBuf;

use anyhow::Result;
use firelight::pretrained::{Arrays, AutoModel, ForwardOptions, HubFolder, Structure, locate};

use super::place;
use super::trained_model::weights_in;
use crate::output;
use firelight::device;
use firelight::storage::Checkpoint;

const EXAMPLES: &str = "\
Example:
  firelight forward ~/models/gpt2 --inputs inputs.safetensors --output outputs.safetensors --greedy 16";

/// Run a model once: tensors in, tensors out, by the names of Hugging Face's `transformers`
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Forward {
    #[command(flatten)]
    model: AnyModel,
    /// File of the arguments, such as input_ids, attention_mask, position_ids, decoder_input_ids, pixel_values
    #[arg(long, value_name = "FILE")]
    inputs: PathBuf,
    /// File to write the outputs to: logits, last_hidden_state and so on
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Put out the vectors between the layers, as hidden_states.0 and so on
    #[arg(long)]
    hidden_states: bool,
    /// Put out the weights of attention, as attentions.0 and so on
    #[arg(long)]
    attentions: bool,
    /// Put out the first row and N tokens of its greedy continuation, as greedy
    #[arg(long, value_name = "N", default_value_t = 0)]
    greedy: usize,
}

/// A run folder or a folder of a published model, and where it computes.
#[derive(clap::Args)]
pub(super) struct AnyModel {
    /// Run folder, folder of a published model, its name on the hub of Hugging Face, or a GGUF file
    model: PathBuf,
    /// Weights of a run to use: last (the newest), best, average or the number of a step
    #[arg(long, value_name = "NAME", default_value = "last")]
    checkpoint: String,
    /// Device, such as cpu, wgpu or cuda:1; `firelight devices` lists those found
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

impl AnyModel {
    /// Runs the model, after saying where.
    pub(super) fn run(&self, inputs: &Arrays, options: ForwardOptions) -> Result<Arrays> {
        let checkpoint: Checkpoint = self.checkpoint.parse()?;
        let chosen = device::choose(self.device.as_deref())?;
        let folder = locate(&self.model, |told| output::note(format_args!("{told}")))?;
        let is_published = HubFolder::is_one(&folder);
        let read = match is_published {
            true => format!("model: {}", self.model.display()),
            false => format!("checkpoint: {checkpoint}, {}", weights_in(&folder, &checkpoint)?),
        };
        output::note(format_args!("{read}, device: {}", place(&chosen)));
        Structure::of_folder(&folder)?.check_padding(inputs)?;
        let model = AutoModel::open(folder, &checkpoint, &chosen.device)?;
        Ok(model.forward(inputs, options, &chosen.device)?)
    }
}

impl Forward {
    pub(crate) fn run(self) -> Result<()> {
        let Self { hidden_states, attentions, greedy, .. } = self;
        let options = ForwardOptions { hidden_states, attentions, greedy };
        let found = self.model.run(&Arrays::read(&self.inputs)?, options)?;
        Ok(found.write(&self.output)?)
    }
}
