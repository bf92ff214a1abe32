//! Which trained model a command works on, and where: the arguments that every such command shares.

use std::path::PathBuf;

use anyhow::Result;
use firelight::device;
use firelight::storage::Checkpoint;

use super::place;
use crate::output;

#[derive(clap::Args)]
pub(super) struct TrainedModel {
    /// Run folder of the model
    pub(super) run_dir: PathBuf,
    /// Weights to use: last, best, average or the number of a step
    #[arg(long, value_name = "NAME", default_value = "last")]
    pub(super) checkpoint: String,
    /// Device: cpu, flex, ndarray, wgpu, vulkan, metal, cuda or rocm, with an index such as cuda:1, or auto
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

impl TrainedModel {
    /// Checkpoint and device; says which they are once `use_them` has succeeded.
    pub(super) fn with<T>(&self, use_them: impl FnOnce(&Checkpoint, &burn::tensor::Device) -> Result<T>) -> Result<T> {
        let checkpoint: Checkpoint = self.checkpoint.parse()?;
        let chosen = device::choose(self.device.as_deref())?;
        let used = use_them(&checkpoint, &chosen.device)?;
        output::note(format_args!(
            "checkpoint: {checkpoint} of {}, device: {}",
            self.run_dir.display(),
            place(&chosen)
        ));
        Ok(used)
    }
}
