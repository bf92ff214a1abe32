//! `firelight verify`: whether a model computes what another program has computed.

use std::path::PathBuf;

use anyhow::{Result, bail};
use firelight::pretrained::{Arrays, Comparison, ForwardOptions, compare_outputs};

use super::forward::AnyModel;
use crate::failure::Mistake;
use crate::output;

const EXAMPLES: &str = "\
Example:
  firelight verify ~/models/gpt2 --inputs inputs.safetensors --expected outputs.safetensors

Allowed is the tolerance, or a tenth of it times the largest number of the output, whichever is more. Tokens that \
attention_mask or decoder_attention_mask hides are not compared; ids must be the same. Fails with 2 if something differs.";

/// Compare the outputs of a model with those that another program computed
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Verify {
    #[command(flatten)]
    model: AnyModel,
    /// File of the arguments, as for `firelight forward`
    #[arg(long, value_name = "FILE")]
    inputs: PathBuf,
    /// File of the outputs to agree with, by the names of `firelight forward`
    #[arg(long, value_name = "FILE")]
    expected: PathBuf,
    /// Largest difference that is allowed
    #[arg(long, value_name = "X", default_value_t = 1e-4)]
    tolerance: f64,
}

impl Verify {
    pub(crate) fn run(self) -> Result<()> {
        let (inputs, expected) = (Arrays::read(&self.inputs)?, Arrays::read(&self.expected)?);
        let found = self.model.run(&inputs, wanted(&inputs, &expected))?;
        let compared = compare_outputs(&found, &expected, &inputs, self.tolerance);
        output::print(&compared.iter().map(line).collect::<String>())?;
        let differing = compared.iter().filter(|output| !output.agrees()).count();
        match differing {
            0 if compared.is_empty() => bail!(Mistake(format!("`{}` holds no outputs", self.expected.display()))),
            0 => Ok(()),
            _ => bail!(Mistake(format!("{differing} of {} outputs differ", compared.len()))),
        }
    }
}

/// What the expected outputs need.
fn wanted(inputs: &Arrays, expected: &Arrays) -> ForwardOptions {
    let has = |part: &str| expected.iter().any(|(name, _)| name.contains(part));
    let read =
        |arrays: &Arrays, name: &str| arrays.get(name).map_or(0, |array| array.shape.last().copied().unwrap_or(0));
    let prompt = inputs.first_row_length();
    ForwardOptions {
        hidden_states: has("hidden_states"),
        attentions: has("attentions"),
        greedy: read(expected, "greedy").saturating_sub(prompt),
    }
}

fn line(output: &Comparison) -> String {
    let Comparison { name, largest, allowed } = output;
    let verdict = if output.agrees() { "agrees" } else { "differs" };
    format!("{name:24} {verdict:8} largest difference {largest:.2e}, allowed {allowed:.2e}\n")
}
