//! `firelight train`: a recipe and its data become a run folder, and samples show what was learned. Here are the arguments;
//! `course.rs` follows a training of any task.

mod course;
mod on_devices;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use burn::tensor::Device;
use firelight::device;
use firelight::pretrained::HubFolder;
use firelight::storage::Existing;
use firelight::training::{InitConfig, RunRequest, read_new_recipe, read_recipe, task_of};

use super::recipes;
use super::tasks::{self, Shown, untrained, with_task};
use super::trained_model::converted_to_floats;
use crate::failure::Mistake;
use crate::{output, ranks};
use course::Course;

/// Why --source and --target are refused.
const PAIRS_ALONE: &str =
    "--source and --target are for pairs of texts: name a recipe of the task seq2seq, such as dates";

const EXAMPLES: &str = "\
Examples:
  firelight train --data input.txt
  firelight train recipes/shakespeare-char-cpu.toml --data input.txt --out runs/shakespeare --dry-run
  firelight train dates --set model.d_model=64 --steps 500 --seed 2
  firelight train recipes/multi30k-de-en.toml --source train.de --target train.en
  firelight train texts --data DIR --from runs/masked-1
  firelight train --resume --out runs/shakespeare --steps 4000
  firelight train dates --devices cuda:0,cuda:1 --set training.gradient_accumulation_steps=2
  firelight train dates --print-config > mine.toml

Data by the task of the recipe:";

/// The examples, with the data that each task takes.
fn examples() -> String {
    let line = |&name: &&str| format!("\n  {name:<21}{}", with_task!(name, |T| T::DATA, ""));
    EXAMPLES.to_string() + &tasks::NAMES.iter().map(line).collect::<String>()
}

/// Train a model by a recipe; without one, the model of --from, or a small GPT on generated stories
#[derive(clap::Args, Default)]
#[command(after_long_help = examples())]
pub(crate) struct Train {
    /// Recipe file (TOML), or an embedded one (`firelight recipes`); by default stories, or the first for the task of --from
    recipe: Option<PathBuf>,
    /// File or folder to train on, as the task of the recipe takes it; a language model takes several, each after a --data
    #[arg(long, value_name = "PATH")]
    data: Vec<PathBuf>,
    /// For seq2seq: file of the sources, one per line
    #[arg(long, value_name = "FILE", requires = "target", conflicts_with = "data")]
    source: Option<PathBuf>,
    /// For seq2seq: file of the targets, one per line
    #[arg(long, value_name = "FILE", requires = "source")]
    target: Option<PathBuf>,
    /// What the training begins from, with its structure and tokenizer: a run, a checkpoint, weights or a published model
    #[arg(long, value_name = "RUN")]
    from: Option<PathBuf>,
    /// Run folder to write; by default the next free runs/RECIPE-N
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Stop after N steps; the learning rate schedule stays the recipe's
    #[arg(long, value_name = "N")]
    steps: Option<usize>,
    /// Seed of the weights, the order of the data and dropout
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Device, such as cpu, wgpu or cuda:1; `firelight devices` lists those found
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Devices that train together, such as cuda:0,cuda:1: each computes its share of training.gradient_accumulation_steps
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "device")]
    devices: Vec<String>,
    /// Sum the gradients of --devices on NVIDIA GPUs by NCCL, rather than over the main memory
    #[arg(long, requires = "devices")]
    nccl: bool,
    /// Override a value of the recipe, such as model.d_model=64; may be repeated
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<(String, String)>,
    /// Replace an existing run folder
    #[arg(long, conflicts_with = "resume")]
    force: bool,
    /// Continue the run in --out from its newest checkpoint; with a recipe or data, begin it if there is none
    #[arg(long, requires = "out")]
    resume: bool,
    /// Check recipe and data, take a few steps in memory, print what the training costs and how long it takes
    #[arg(long)]
    dry_run: bool,
    /// Print the whole recipe as TOML, with defaults and overrides, and stop
    #[arg(long, conflicts_with_all = ["dry_run", "self_check", "tui", "tensorboard", "force"])]
    print_config: bool,
    /// First check causality, padding, the initial loss and that one batch can be overfitted
    #[arg(long)]
    self_check: bool,
    /// Show Burn's dashboard instead of the progress bar
    #[arg(long)]
    tui: bool,
    /// Write TensorBoard event files into the run folder too
    #[arg(long)]
    tensorboard: bool,
}

impl Train {
    pub(crate) fn run(self) -> Result<()> {
        if !self.print_config {
            ranks::join()?;
        }
        self.check_nccl()?;
        if self.has_several_devices() {
            ranks::refuse_unshared("--devices are ranks of one process")?;
        }
        let task = self.task()?;
        let takes_pairs = with_task!(task.as_str(), |T| T::TAKES_PAIRS, false);
        ensure!(self.source.is_none() || takes_pairs, Mistake(PAIRS_ALONE.into()));
        let unknown = || {
            let source = self.source_of_recipe().unwrap_or_default();
            let expected = tasks::NAMES.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            Mistake(format!("`{}`: there is no task `{task}`: expected {expected}", source.display()))
        };
        with_task!(task.as_str(), |T| self.follow::<T>(), bail!(unknown()))
    }

    /// The task of the recipe, of the run that is resumed, or of the run that the training begins from. The name of an embedded recipe
    /// gives way to a file.
    fn task(&self) -> Result<String> {
        if let Some(embedded) = self.recipe.as_deref().map(recipes::named).transpose()?.flatten() {
            return Ok(embedded.task.to_string());
        }
        match self.source_of_recipe() {
            Some(path) => Ok(task_of(&path)?),
            None => Ok(self.begun_task()?.unwrap_or_else(|| tasks::USUAL.to_string())),
        }
    }

    /// The task of the run that the training begins from, where there is one.
    fn begun_task(&self) -> Result<Option<String>> {
        let from = self.begun_from()?;
        let task = InitConfig { from, ..InitConfig::default() }.run()?.and_then(|run| run.task());
        let is_trained = |task: &str| tasks::NAMES.contains(&task);
        match task {
            Some(task) if !is_trained(&task) => {
                let recipe = untrained::recipe(&task);
                bail!(Mistake(format!(
                    "--from names a model of the task `{task}`, which is not trained itself: name a recipe, such as {recipe}; \
                     `firelight recipes` lists them"
                )))
            }
            task => Ok(task),
        }
    }

    /// What the training begins from; a published model is converted first, by the first rank.
    fn begun_from(&self) -> Result<Option<PathBuf>> {
        let Some(from) = &self.from else { return Ok(None) };
        ranks::first(|| begun_from(from)).map(Some)
    }

    /// The recipe that is named, or that of the run that is resumed.
    fn source_of_recipe(&self) -> Option<PathBuf> {
        let kept = |folder: &Path| Some(folder.join("recipe.toml")).filter(|path| self.resume && path.is_file());
        self.recipe.clone().or_else(|| self.out.as_deref().and_then(kept))
    }

    fn follow<T: Shown>(mut self) -> Result<()> {
        self.from = self.begun_from()?;
        if self.print_config {
            let (source, overrides) = (self.source_of_recipe(), self.overrides());
            // A run that is resumed has its whole recipe, and needs no other run.
            let recipe = match self.resume {
                true => read_recipe::<T>(source.as_deref(), &overrides)?,
                false => read_new_recipe::<T>(source.as_deref(), &overrides)?,
            };
            return Ok(output::print(&recipe.to_toml()?)?);
        }
        let course =
            Course { dry_run: self.dry_run, self_check: self.self_check, tui: self.tui, tensorboard: self.tensorboard };
        if self.has_several_devices() {
            let (devices, nccl) = (device::choose_several(&self.devices)?, self.nccl);
            return on_devices::follow::<T>(course, &self.request(&devices[0].device), &devices, nccl);
        }
        let name = self.device.as_deref().or_else(|| self.devices.first().map(String::as_str));
        let chosen = device::choose_in_turn(name, ranks::local())?;
        course.follow::<T>(&self.request(&chosen.device), &chosen)
    }

    /// Whether the training has a thread for each of several devices.
    pub(crate) fn has_several_devices(&self) -> bool {
        self.devices.len() > 1
    }

    /// Refuses sums of gradients among devices where there is but one.
    fn check_nccl(&self) -> Result<()> {
        let [name] = self.devices.as_slice() else { return Ok(()) };
        ensure!(
            !self.nccl,
            Mistake(format!(
                "--nccl sums the gradients of several devices, and --devices names one, `{name}`: name two or more, such as \
                 --devices cuda:0,cuda:1, or leave --nccl out"
            ))
        );
        Ok(())
    }

    fn request(self, device: &Device) -> RunRequest {
        let (existing, overrides) = (self.existing(), self.overrides());
        let data = self.data.into_iter().chain(self.source).chain(self.target).collect();
        let (recipe, out, version) = (self.recipe, self.out, ranks::VERSION.to_string());
        RunRequest { recipe, overrides, data, out, existing, device: device.clone(), version }
    }

    fn existing(&self) -> Existing {
        match (self.force, self.resume) {
            (true, _) => Existing::Force,
            (_, true) => Existing::Resume,
            _ => Existing::Refuse,
        }
    }

    /// All overrides in the order of their weight: the short options are the last word.
    fn overrides(&self) -> Vec<(String, String)> {
        // Steps are the last word against epochs, too.
        let steps = self.steps.into_iter().flat_map(|steps| [("training.epochs", 0), ("training.steps", steps)]);
        let steps = steps.map(|(key, number)| (key.to_string(), number.to_string()));
        let seed = self.seed.map(|seed| ("seed".to_string(), seed.to_string()));
        let from = self.from.iter().map(|path| ("init.from".to_string(), format!("{:?}", path.display().to_string())));
        self.overrides.iter().cloned().chain(from).chain(steps).chain(seed).collect()
    }
}

/// What a training begins from; a published model is converted first.
fn begun_from(model: &Path) -> Result<PathBuf> {
    if model.exists() && !HubFolder::is_one(model) { Ok(model.into()) } else { converted_to_floats(model) }
}

pub(super) fn parse_override(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected SECTION.KEY=VALUE, such as model.d_model=64")?;
    Ok((key.trim().to_string(), value.trim().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_split_at_the_first_equals_sign() {
        let parsed = parse_override("optimizer.kind = adamw=x").unwrap();
        assert_eq!(parsed, ("optimizer.kind".to_string(), "adamw=x".to_string()));
        assert!(parse_override("model.d_model").is_err());
    }

    #[test]
    fn gradients_of_a_single_device_are_not_summed() {
        let train = |names: &str, nccl| Train {
            devices: names.split(',').map(str::to_string).collect(),
            nccl,
            ..Train::default()
        };
        let error = train("cuda:1", true).check_nccl().unwrap_err().to_string();
        assert!(error.contains("--devices names one, `cuda:1`: name two or more"), "{error}");
        train("cuda:1", false).check_nccl().unwrap();
        train("cuda:0,cuda:1", true).check_nccl().unwrap();
    }

    #[test]
    fn a_request_names_the_commit() {
        let request = Train::default().request(&Device::flex());
        assert!(request.version.contains(env!("FIRELIGHT_COMMIT")), "{}", request.version);
    }

    #[test]
    fn the_short_options_come_last() {
        let overrides = vec![("seed".into(), "1".into())];
        let train = Train { steps: Some(5), seed: Some(7), overrides, ..Train::default() };
        let expected = [("seed", "1"), ("training.epochs", "0"), ("training.steps", "5"), ("seed", "7")];
        assert_eq!(train.overrides(), expected.map(|(key, value)| (key.to_string(), value.to_string())));
    }
}
