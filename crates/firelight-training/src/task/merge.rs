//! The adapters of a run added into the weights beside them: a run folder of its own, whose model has no adapters and computes the
//! same.
//!
//! Source: Hu et al. 2021, LoRA, section 4.1, on no additional inference latency (<https://arxiv.org/abs/2106.09685>).

use std::path::Path;

use burn::tensor::Device;
use firelight_storage::{Checkpoint, InputError, ModelFolder, save_base};

use super::start::structure_of;
use super::{Task, blocks};
use crate::TrainingError;

/// Writes the model of a checkpoint of `run` into the new folder `out`, with its adapters merged into its weights. The scale of
/// the adapters is that of `config.json`, by which they were trained. Weights in blocks of few bits become floats.
///
/// Recipe, tokenizer and data are handed on, so that the folder is asked, measured and begun from as any run is. It cannot be
/// resumed: its model is not the one that its recipe trains.
///
/// # Errors
/// If `run` is no run of the task, has no such checkpoint or no adapters, or `out` is there already and not empty.
pub fn merge<T: Task>(
    run: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    out: impl AsRef<Path>,
    device: &Device,
) -> Result<ModelFolder, T::Error> {
    let run = ModelFolder::open(run)?;
    let config = structure_of::<T>(&run)?;
    if !T::has_adapters(&config) {
        let problem = "describes a model without adapters: its weights are whole already, use the run as it is";
        return Err(TrainingError::from(InputError::in_file(&run.config(), problem)).into());
    }
    let model = blocks::load::<T>(&run, (&config, 0), &run.weights(checkpoint)?, device)?;
    let (config, merged) = T::merged(&config, model);
    ModelFolder::create_whole(out, |folder| {
        run.hand_on(folder)?;
        save_base(&merged, folder.weights_path(&Checkpoint::Last))?;
        Ok(folder.write_config(T::NAME, &config)?)
    })
}
