//! The type that a model computes in.

use anyhow::Result;
use firelight::generation::Autoregressive;
use firelight::language::TextGenerator;
use firelight::training::Precision;

use super::trained_model::TrainedModel;

#[derive(clap::Args)]
pub(super) struct ComputeIn {
    /// Type of the weights and of what is computed: f32, bf16 or f16; the last two take half the memory
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = parse)]
    precision: Precision,
}

impl ComputeIn {
    /// Loads a language model that computes in this type.
    pub(super) fn load(&self, model: &TrainedModel) -> Result<TextGenerator> {
        let generator = model.load(TextGenerator::load_from)?;
        self.precision.check(&generator.model().device())?;
        Ok(self.precision.dtype().into_iter().fold(generator, TextGenerator::with_precision))
    }
}

/// # Errors
/// Lists the names.
pub(super) fn parse(name: &str) -> Result<Precision, String> {
    let known = [Precision::F32, Precision::Bf16, Precision::F16];
    known.into_iter().find(|known| known.to_string() == name).ok_or_else(|| "expected f32, bf16 or f16".into())
}
