//! Which trained model a command works on, and where: the arguments that every such command shares.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use burn::tensor::Device;
use firelight::device;
use firelight::pretrained::{import_cache, run_folder, run_folder_of_floats};
use firelight::storage::{Checkpoint, ModelFolder, TaskError};

use super::place;
use super::tasks::{Shown, with_task};
use crate::failure::Mistake;
use crate::{output, ranks};

/// The weights where nobody says.
const LAST: &str = "last";

#[derive(clap::Args)]
pub(super) struct TrainedModel {
    /// Run folder of the model, folder of a published model, its name on the hub of Hugging Face, or a GGUF file
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    #[arg(skip)]
    run_dir: OnceCell<PathBuf>,
    /// Weights to use: last (the newest), best, average or the number of a step
    #[arg(long, value_name = "NAME", default_value = LAST)]
    pub(super) checkpoint: String,
    /// Device, such as cpu, wgpu or cuda:1; `firelight devices` lists those found
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

impl TrainedModel {
    /// The run folder of the model; a published one is converted first, once.
    pub(super) fn run_dir(&self) -> Result<&Path> {
        if let Some(found) = self.run_dir.get() {
            return Ok(found);
        }
        let found = ranks::first(|| converted(&self.model))?;
        Ok(self.run_dir.get_or_init(|| found))
    }

    /// Whether the user called the model so.
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.model.as_os_str() == name
    }

    /// What the user called it, where that is text: it may name something else than a model.
    pub(super) fn called(&self) -> Option<&str> {
        self.model.to_str()
    }

    /// Refuses a checkpoint where the user calls something else than a model.
    pub(super) fn has_no_weights(&self) -> Result<()> {
        let refused =
            || format!("--checkpoint and its weights are for a model, and `{}` is none", self.model.display());
        ensure!(self.checkpoint == LAST, Mistake(refused() + ": leave it out"));
        Ok(())
    }

    /// The device that was asked for, of a command without a model.
    pub(super) fn chosen_device(&self) -> Result<Device> {
        Ok(device::choose_in_turn(self.device.as_deref(), ranks::local())?.device)
    }

    /// Takes the floats of a GGUF file from now on, as a command does that cannot read blocks.
    pub(super) fn of_floats(&self) -> Result<&Self> {
        let found = ranks::first(|| converted_to_floats(&self.model))?;
        self.run_dir.get_or_init(|| found);
        Ok(self)
    }

    /// Works with a checkpoint on a device, after saying which they are.
    pub(super) fn with<T>(&self, use_them: impl FnOnce(&Checkpoint, &Device) -> Result<T>) -> Result<T> {
        let checkpoint: Checkpoint = self.checkpoint.parse()?;
        let chosen = device::choose_in_turn(self.device.as_deref(), ranks::local())?;
        same_on_ranks(self.run_dir()?, &checkpoint)?;
        let weights = weights_in(self.run_dir()?, &checkpoint)?;
        output::note(format_args!("checkpoint: {checkpoint}, {weights}, device: {}", place(&chosen)));
        use_them(&checkpoint, &chosen.device)
    }

    /// Loads a checkpoint onto a device, after saying which they are.
    pub(super) fn load<M>(
        &self,
        load: impl FnOnce(PathBuf, &Checkpoint, &Device) -> Result<M, TaskError>,
    ) -> Result<M> {
        let run_dir = self.run_dir()?.to_path_buf();
        self.with(|checkpoint, device| Ok(load(run_dir, checkpoint, device)?))
    }

    /// Refuses a model that another command is for, and names that one.
    pub(super) fn is_for(&self, command: &str) -> Result<()> {
        let Some(task) = self.task()? else { return Ok(()) };
        match with_task!(task.as_str(), |T| T::COMMANDS, &[]) {
            others @ [_, ..] if !others.contains(&command) => bail!(Mistake(format!(
                "`{run}` is a model of the task `{task}`, which `firelight {command}` does not support: use `firelight {} \
                 {run}`",
                others[0],
                run = self.model.display()
            ))),
            _ => Ok(()),
        }
    }

    /// The task of the model; none where its configuration does not say, which is for its reader to tell.
    pub(super) fn task(&self) -> Result<Option<String>> {
        Ok(ModelFolder::open(self.run_dir()?)?.task())
    }
}

/// Loads the newest weights of another model, as a user calls it, beside one that is on this device, after saying which they are.
pub(super) fn beside<M>(
    model: &Path,
    device: &Device,
    load: impl FnOnce(PathBuf, &Checkpoint, &Device) -> Result<M, TaskError>,
) -> Result<M> {
    let run_dir = ranks::first(|| converted(model))?;
    same_on_ranks(&run_dir, &Checkpoint::Last)?;
    output::note(format_args!("beside: {}", weights_in(&run_dir, &Checkpoint::Last)?));
    Ok(load(run_dir, &Checkpoint::Last, device)?)
}

/// The run folder of what a user calls a model; a published one is converted first, once.
pub(super) fn converted(model: &Path) -> Result<PathBuf> {
    Ok(run_folder(model, &import_cache(), |told| output::note(format_args!("{told}")))?)
}

/// As [`converted`]; what a GGUF file has in blocks becomes floats.
pub(super) fn converted_to_floats(model: &Path) -> Result<PathBuf> {
    Ok(run_folder_of_floats(model, &import_cache(), |told| output::note(format_args!("{told}")))?)
}

/// Refuses ranks that have other files of a model.
fn same_on_ranks(run_dir: &Path, checkpoint: &Checkpoint) -> Result<()> {
    match ranks::several() {
        Some(_) => ranks::agree_on(&files_of(run_dir, checkpoint)?),
        None => Ok(()),
    }
}

/// What special tokens are for, where the file of a tokenizer does not say it.
const SPECIAL_TOKENS: [&str; 2] = ["special_tokens_map.json", "source_special_tokens_map.json"];

/// The files of a model that its answers depend on. How sentences are pooled and prompted stands in `config.json`; a task may ask the recipe
/// how its model reads.
fn files_of(run_dir: &Path, checkpoint: &Checkpoint) -> Result<Vec<PathBuf>> {
    let folder = ModelFolder::open(run_dir)?;
    let described = [folder.config(), folder.recipe(), folder.generation(), folder.quantization()];
    let tokenizers = [folder.tokenizer(), folder.source_tokenizer()];
    let special = SPECIAL_TOKENS.map(|name| run_dir.join(name));
    let weights = folder.find(checkpoint)?.path;
    Ok(described.into_iter().chain(tokenizers).chain(special).chain([weights]).collect())
}

/// The step and the file of a checkpoint, in words.
pub(super) fn weights_in(run_dir: &Path, checkpoint: &Checkpoint) -> Result<String> {
    let found = ModelFolder::open(run_dir)?.find(checkpoint)?;
    let step = found.step.map_or(String::new(), |step| format!("step {step}, "));
    Ok(format!("{step}{}", found.path.display()))
}
