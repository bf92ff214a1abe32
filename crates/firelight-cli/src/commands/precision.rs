//! The type that models compute in.

use std::path::Path;

use anyhow::Result;
use burn::tensor::{Device, FloatDType};
use firelight::language::TextGenerator;
use firelight::storage::{Checkpoint, InputError, TaskError};
use firelight::training::Precision;

use super::trained_model::{TrainedModel, beside};

#[derive(clap::Args)]
pub(super) struct ComputeIn {
    /// Type of weights and of what is computed: f32, bf16 or f16 (half the memory), or bf16x3 (f32 by AMX)
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = parse)]
    precision: Precision,
}

impl ComputeIn {
    /// Loads a language model that computes in this type.
    pub(super) fn load(&self, model: &TrainedModel) -> Result<TextGenerator> {
        model.load(|folder, checkpoint, device| {
            self.check(device)?;
            self.open(folder, checkpoint, device)
        })
    }

    /// Runs `work`, whose models form their products as this type asks for.
    pub(super) fn within<R>(&self, work: impl FnOnce() -> R) -> R {
        self.precision.matmul_precision().within(work)
    }

    /// Loads another one onto the device of the first.
    pub(super) fn load_beside(&self, model: &Path, device: &Device) -> Result<TextGenerator> {
        beside(model, device, |folder, checkpoint, device| self.open(folder, checkpoint, device))
    }

    fn open(
        &self,
        folder: impl AsRef<Path>,
        checkpoint: &Checkpoint,
        device: &Device,
    ) -> Result<TextGenerator, TaskError> {
        TextGenerator::load_in(folder, checkpoint, device, self.precision.dtype().unwrap_or(FloatDType::F32))
    }

    fn check(&self, device: &Device) -> Result<(), InputError> {
        match self.precision.dtype().is_none_or(|dtype| device.supports_dtype(dtype)) {
            true => Ok(()),
            false => Err(InputError::new(format!(
                "the device {device:?} cannot compute in {}, which --precision asks for; remove --precision, or choose another --device",
                self.precision
            ))),
        }
    }
}

/// # Errors
/// Lists the names.
pub(super) fn parse(name: &str) -> Result<Precision, String> {
    let known = [Precision::F32, Precision::Bf16x3, Precision::Bf16, Precision::F16];
    known.into_iter().find(|known| known.to_string() == name).ok_or_else(|| "expected f32, bf16x3, bf16 or f16".into())
}

/// The same for a model whose weights stay in single precision.
///
/// # Errors
/// Lists the names.
pub(super) fn parse_single(name: &str) -> Result<Precision, String> {
    let known = parse(name).ok().filter(|precision| precision.dtype().is_none());
    known.ok_or_else(|| "expected f32 or bf16x3".into())
}
