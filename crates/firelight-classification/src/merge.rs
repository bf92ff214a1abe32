//! The adapters of a run added into the weights beside them: a run folder of its own, whose model has no adapters and computes the
//! same.
//!
//! Source: Hu et al. 2021, LoRA, section 4.1, on no additional inference latency (<https://arxiv.org/abs/2106.09685>).

use std::path::Path;

use burn::tensor::Device;
use firelight_storage::{Checkpoint, Existing, ModelFolder, load_weights, save_base};

use crate::error::ClassificationError;
use crate::model::TextClassifierConfig;

/// Writes the classifier of a checkpoint of `run` into the new folder `out`, with its adapters merged into its weights. The scale of
/// the adapters is that of `config.json`, by which they were trained.
///
/// Recipe, tokenizer and texts are handed on, so that the folder is asked, measured and begun from as any run is. It cannot be
/// resumed: its model is not the one that its recipe trains.
///
/// # Errors
/// If `run` is no run of a classifier, has no such checkpoint or no adapters, or `out` is there already and not empty.
pub fn merge(
    run: impl AsRef<Path>,
    checkpoint: &Checkpoint,
    out: impl AsRef<Path>,
    device: &Device,
) -> Result<ModelFolder, ClassificationError> {
    let run = ModelFolder::open(run)?;
    let mut config: TextClassifierConfig = run.read_config(crate::TASK)?;
    config.validate().map_err(|error| ClassificationError::Config { path: run.config(), error })?;
    if config.encoder.adapters.is_none() {
        return Err(ClassificationError::NoAdapters { path: run.config() });
    }
    let mut model = config.init(device);
    load_weights(&mut model, run.weights(checkpoint)?)?;
    let merged = config.encoder.merge(model);
    config.encoder.adapters = None;
    let folder = ModelFolder::create(out, Existing::Refuse)?;
    run.hand_on(&folder)?;
    save_base(&merged, folder.weights_path(&Checkpoint::Last))?;
    folder.write_config(crate::TASK, &config)?; // goes last and makes it a model
    Ok(folder)
}
