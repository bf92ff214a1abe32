//! `firelight train`: a recipe and a text become a run folder, then a sample shows what was learned.

use std::path::PathBuf;

use anyhow::Result;
use firelight::device;
use firelight::generation::GenerationOptions;
use firelight::language::{self, TextGenerator, TrainRequest};
use firelight::storage::{Checkpoint, Existing};

use crate::output;

/// Characters of the sample after the training, in tokens of the model.
const SAMPLE_TOKENS: usize = 400;

/// Train a model by a recipe; without one, a small GPT on generated stories
#[derive(clap::Args, Default)]
pub(crate) struct Train {
    /// Recipe file (TOML); without one, the embedded recipe of small English stories
    recipe: Option<PathBuf>,
    /// Text file (UTF-8) to train on
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Run folder to write; without one, the next free runs/RECIPE-N
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Stop after N steps; the learning rate schedule stays the recipe's
    #[arg(long, value_name = "N")]
    steps: Option<usize>,
    /// Seed of the weights, the order of the data and dropout
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Device: flex, ndarray, wgpu, vulkan, metal, cuda or rocm, with an index such as cuda:1, or auto
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Override a value of the recipe, such as model.d_model=64; may be repeated
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<(String, String)>,
    /// Replace an existing run folder
    #[arg(long, conflicts_with = "resume")]
    force: bool,
    /// Continue the run in the folder from its newest checkpoint
    #[arg(long)]
    resume: bool,
}

impl Train {
    pub(crate) fn run(self) -> Result<()> {
        let chosen = device::choose(self.device.as_deref())?;
        output::note(format_args!("device: {}", chosen.name));
        let existing = self.existing();
        let overrides = self.overrides();
        let request = TrainRequest {
            recipe: self.recipe,
            overrides,
            data: self.data,
            out: self.out,
            existing,
            device: chosen.device.clone(),
        };
        let run = language::train(request)?;
        todo_report(run)
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
        let steps = self.steps.map(|steps| ("training.steps".to_string(), steps.to_string()));
        let seed = self.seed.map(|seed| ("seed".to_string(), seed.to_string()));
        self.overrides.iter().cloned().chain(steps).chain(seed).collect()
    }
}

fn parse_override(text: &str) -> Result<(String, String), String> {
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
    fn the_short_options_come_last() {
        let train =
            Train { steps: Some(5), seed: Some(7), overrides: vec![("seed".into(), "1".into())], ..Train::default() };
        let expected = [("seed", "1"), ("training.steps", "5"), ("seed", "7")];
        assert_eq!(train.overrides(), expected.map(|(key, value)| (key.to_string(), value.to_string())));
    }
}
