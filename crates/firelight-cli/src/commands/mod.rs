//! The commands, one file each: an argument type with a `run` method that calls the library and prints.

mod average;
mod bench;
mod cache_type;
mod caption;
mod chat;
mod classify;
mod classify_images;
mod completions;
mod compressing;
mod contrasting;
mod devices;
mod drawing;
mod embed;
mod embedder;
mod ending;
mod evaluate;
mod experiments;
mod explain;
mod export;
mod fill_mask;
mod forward;
mod generate;
mod guessing;
mod heads;
mod import;
mod inspect;
mod long_texts;
mod man;
mod merge;
mod overflowing;
mod patch;
mod pattern;
mod precision;
mod probe;
mod prune_heads;
mod quantize;
mod recipes;
mod repeating;
mod report;
mod restricting;
mod sampling;
mod score;
mod searching;
mod sheet;
mod tasks;
mod text_input;
mod texts;
mod train;
mod trained_model;
mod translate;
mod verify;
mod visualize;

use anyhow::Result;
use burn::tensor::DType;
use clap::Subcommand;
use firelight::data::Tokenizer;
use firelight::device::NamedDevice;
use firelight::kernels::kernel_path;

use crate::{output, ranks};

/// What the user asks for.
#[derive(Subcommand)]
pub(crate) enum Command {
    Train(train::Train),
    Ablate(experiments::Ablate),
    Sweep(experiments::Sweep),
    Scale(experiments::Scale),
    Generate(Box<generate::Generate>),
    Chat(chat::Chat),
    Translate(translate::Translate),
    Caption(caption::Caption),
    Classify(classify::Classify),
    Embed(embed::Embed),
    FillMask(fill_mask::FillMask),
    Score(score::Score),
    Evaluate(evaluate::Evaluate),
    Inspect(inspect::Inspect),
    Report(report::Report),
    Import(import::Import),
    Export(export::Export),
    Forward(forward::Forward),
    Verify(verify::Verify),
    Average(average::Average),
    Merge(merge::Merge),
    Quantize(quantize::Quantize),
    Bench(bench::Bench),
    Visualize(visualize::Visualize),
    Explain(explain::Explain),
    Heads(heads::Heads),
    PruneHeads(prune_heads::PruneHeads),
    Patch(patch::Patch),
    Probe(probe::Probe),
    Devices(devices::Devices),
    Recipes(recipes::Recipes),
    Completions(completions::Completions),
    Man(man::Manual),
}

impl Command {
    /// What a bare `firelight` does: train on the embedded default.
    pub(crate) fn main_job() -> Self {
        output::note(format_args!(
            "no command given: running `firelight train` (`firelight --help` lists the commands)"
        ));
        Self::Train(train::Train::default())
    }

    /// How many threads are asked for; 0 where nobody asks.
    pub(crate) fn threads(&self) -> usize {
        if let Self::Bench(bench) = self { bench.threads() } else { 0 }
    }

    /// Whether the main thread computes, rather than wait for others that do.
    pub(crate) fn computes_itself(&self) -> bool {
        !matches!(self, Self::Train(train) if train.has_several_devices())
    }

    /// Joins the other ranks, if there are any and they share this work. A training joins them itself, when it is about to begin.
    fn join_ranks(&self) -> Result<()> {
        match self {
            Self::Train(_) => Ok(()),
            Self::Translate(_)
            | Self::Classify(_)
            | Self::Embed(_)
            | Self::FillMask(_)
            | Self::Score(_)
            | Self::Evaluate(_) => ranks::join(),
            _ => ranks::refuse(),
        }
    }

    pub(crate) fn run(self) -> Result<()> {
        self.join_ranks()?;
        match self {
            Self::Train(command) => command.run(),
            Self::Ablate(command) => command.run(),
            Self::Sweep(command) => command.run(),
            Self::Scale(command) => command.run(),
            Self::Generate(command) => command.run(),
            Self::Chat(command) => command.run(),
            Self::Translate(command) => command.run(),
            Self::Caption(command) => command.run(),
            Self::Classify(command) => command.run(),
            Self::Embed(command) => command.run(),
            Self::FillMask(command) => command.run(),
            Self::Score(command) => command.run(),
            Self::Evaluate(command) => command.run(),
            Self::Inspect(command) => command.run(),
            Self::Report(command) => command.run(),
            Self::Import(command) => command.run(),
            Self::Export(command) => command.run(),
            Self::Forward(command) => command.run(),
            Self::Verify(command) => command.run(),
            Self::Average(command) => command.run(),
            Self::Merge(command) => command.run(),
            Self::Quantize(command) => command.run(),
            Self::Bench(command) => command.run(),
            Self::Visualize(command) => command.run(),
            Self::Explain(command) => command.run(),
            Self::Heads(command) => command.run(),
            Self::PruneHeads(command) => command.run(),
            Self::Patch(command) => command.run(),
            Self::Probe(command) => command.run(),
            Self::Devices(command) => command.run(),
            Self::Recipes(command) => command.run(),
            Self::Completions(command) => command.run(),
            Self::Man(command) => command.run(),
        }
    }
}

/// A device and the way its operations are computed, as a user reads it: `flex, fused kernels`.
fn place(chosen: &NamedDevice) -> String {
    format!("{}, {}", chosen.name, kernel_path(&chosen.device, DType::F32))
}

/// What a text begins with when nobody says: a new paragraph, or what comes nearest in the vocabulary.
fn opening(tokenizer: &Tokenizer) -> String {
    let known = ["\n\n", " "].into_iter().find(|text| tokenizer.encode(text).is_ok());
    known.map_or_else(|| tokenizer.decode(&[0]), str::to_string)
}
