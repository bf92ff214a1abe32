//! `firelight bench`: how fast this machine trains, reads, writes and attends, and how much memory that takes. Random weights
//! and ids; the shapes, the loss, the clipping and the optimiser are those of the field's usual small references, so that
//! another framework can be measured beside it. Compare only figures of one run on one machine, the programs in turn.

mod compare;
mod dtype;
mod inference;
mod keep;
mod kind;
mod measure;
mod repeat;
mod shape;
mod workload;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use burn::tensor::DType;
use clap::ValueEnum;
use firelight::device::{self, Backend, NamedDevice};
use firelight::kernels::kernel_path;
use firelight::training::{Precision, Recompute};
use serde_json::json;

use super::pattern::Pattern;
use crate::failure::Mistake;
use crate::output;
use dtype::Dtype;
use kind::Kind;
use measure::{Measurement, measure};
use repeat::repeat;
use shape::Shape;
use workload::Workload;

/// Tokens of `attention` where nobody says.
const LENGTH: u32 = 2048;

/// Query heads of `attention`.
const HEADS: usize = 8;

/// All threads.
const ALL: u32 = 0;

/// The type where nobody says.
const FLOATS: Dtype = Dtype::Floats(Precision::F32);

/// The pattern where nobody says.
const CAUSAL: &str = "causal";

const EXAMPLES: &str = "\
Patterns of attention:
  causal               itself and all before it
  window:N             itself and N tokens before it
  around:N             N tokens on either side
  chunks:N             its own chunk of N tokens
  strided:N            N tokens on either side and every N-th token
  local_global:N,G     N tokens on either side; the first G tokens see all and are seen by all
  bigbird:N,G,R        the same, and R random blocks of 64 tokens

Kinds of layers, of width 512 with 8 heads, all of which read no later token:
  softmax              attention to all tokens before, with its projections
  window:N             the same to N tokens before
  reference            softmax whose scores are all in memory at once
  linear               linear attention
  gated-delta          Gated DeltaNet
  feed-forward         a network for each token by itself, of inner width 2048: the control
  lstm                 Burn's LSTM

Examples:
  firelight bench train --config char6
  firelight bench decode --dtype bf16 --device cuda
  firelight bench decode --config llama110m --dtype q8_0 --threads 1,2,4
  firelight bench prefill --config llama110m --dtype q8_0 --keep model.gguf
  firelight bench attention --lengths 1024,4096,16384 --pattern window:256 --json
  firelight bench attention --lengths 256,512,1024 --kinds softmax,linear,feed-forward,lstm --out growth.svg
  firelight bench gated-delta --lengths 1024,4096,16384";

/// Measure speed and memory on random weights and ids
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Bench {
    /// What to measure
    what: What,
    /// Shape of the model; by default baby for train and gpt2 for the rest
    #[arg(long, value_name = "NAME")]
    config: Option<Shape>,
    /// Tokens of `attention` and `gated-delta`; several numbers are measured in turn, each in a process of its own
    #[arg(long, visible_alias = "lengths", value_name = "N", value_delimiter = ',', default_values_t = [LENGTH],
        value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    length: Vec<u32>,
    /// What a query of `attention` sees: causal, window:N (the N tokens before it) or a pattern listed below
    #[arg(long, value_name = "PATTERN", default_value = CAUSAL)]
    pattern: Pattern,
    /// Whole layers that `attention` compares: how time and memory grow over --lengths; kinds as listed below
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    kinds: Vec<Kind>,
    /// The layer that this process measures, one of several kinds
    #[arg(long, hide = true)]
    kind: Option<Kind>,
    /// New SVG file for time and memory of --kinds over the length, on logarithmic axes
    #[arg(long, value_name = "FILE", requires = "kinds")]
    out: Option<PathBuf>,
    /// Replace the file of --out
    #[arg(long, requires = "out")]
    force: bool,
    /// Key heads of `attention`, shared by its 8 query heads: 1, 2, 4 or 8
    #[arg(long, value_name = "N", default_value_t = HEADS, value_parser = kv_heads)]
    kv_heads: usize,
    /// Measured runs after one to warm up; the median counts
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: u32,
    /// Threads of the CPU backends; 0 takes all; several numbers are measured in turn, each in a process of its own
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [ALL],
        value_parser = clap::value_parser!(u32).range(0..=1024))]
    threads: Vec<u32>,
    /// Device, such as cpu, wgpu or cuda:1; `firelight devices` lists those found
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// What a step of `train` computes twice to save memory: none, blocks or burn
    #[arg(long, value_name = "WHAT", default_value = "none", value_parser = recompute)]
    recompute: Recompute,
    /// Type to compute in: f32, bf16x3, bf16, f16 (parameters too, but in training); or blocks: q8_0, q4_0, q4_k, q6_k
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    dtype: Dtype,
    /// New GGUF file for the model that prefill or decode measures, with its matrices in the type that is measured
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    /// Leave the headings out, which an earlier process has printed
    #[arg(long, hide = true)]
    no_headings: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Steps of a training: forward, backward, clipping, AdamW
    Train,
    /// A prompt of 512 tokens, or as many as the shape holds, in one pass, the logits of its last
    Prefill,
    /// A prompt of 128 tokens and 64 greedy tokens with a cache
    Decode,
    /// One attention of 8 heads of 64, forward and backward
    Attention,
    /// One Gated DeltaNet of width 512, 8 heads of 64, forward and backward
    GatedDelta,
    /// One token of it with the state of a text
    GatedDeltaStep,
}

impl What {
    /// Whether it is measured at each of several lengths.
    fn has_lengths(self) -> bool {
        matches!(self, Self::Attention | Self::GatedDelta | Self::GatedDeltaStep)
    }

    /// Whether a language model reads or writes.
    fn is_inference(self) -> bool {
        matches!(self, Self::Prefill | Self::Decode)
    }
}

fn recompute(text: &str) -> Result<Recompute, String> {
    let known = [Recompute::None, Recompute::Blocks, Recompute::Burn];
    known.into_iter().find(|known| known.to_string() == text).ok_or_else(|| "expected none, blocks or burn".into())
}

fn kv_heads(text: &str) -> Result<usize, String> {
    let heads = text.parse().ok().filter(|&heads| heads > 0 && HEADS.is_multiple_of(heads));
    heads.ok_or_else(|| format!("expected a divisor of {HEADS}"))
}

impl Bench {
    pub(crate) fn run(self) -> Result<()> {
        self.check()?;
        self.check_blocks_and_file()?;
        compare::check(&self)?;
        if self.threads.len() > 1 {
            return repeat("--threads", &self.threads);
        }
        if !self.kinds.is_empty() {
            return compare::run(&self);
        }
        if self.what.has_lengths() && self.length.len() > 1 {
            return repeat("--length", &self.length);
        }
        let chosen = device::choose(self.device.as_deref())?;
        self.dtype.check(&chosen)?;
        let mut workload = Workload::new(&self, &chosen.device)?;
        let found = measure(&mut workload, self.runs)?;
        let found = if is_cpu(&chosen.name) { found } else { found.without_memory() };
        let report = match (self.json, self.no_headings) {
            (true, _) => self.to_json(&workload, &found, &chosen),
            (false, true) => to_text(&workload, &found),
            (false, false) => headings() + &to_text(&workload, &found),
        };
        output::print(&report)?;
        Ok(())
    }

    /// Refuses what another benchmark is for, and would not be measured.
    fn check(&self) -> Result<()> {
        let (attends, compares) = (self.what == What::Attention, !self.kinds.is_empty());
        let of_others = [
            (
                !self.what.has_lengths() && self.length != [LENGTH],
                "--length",
                "attention, gated-delta and gated-delta-step",
            ),
            (!attends && !self.kinds.is_empty(), "--kinds", "attention"),
            (compares && self.pattern.to_string() != CAUSAL, "--pattern", "attention without --kinds"),
            (compares && self.kv_heads != HEADS, "--kv-heads", "attention without --kinds"),
            (compares && self.dtype != FLOATS, "--dtype", "measurements without --kinds, which are of f32"),
            (!attends && self.pattern.to_string() != CAUSAL, "--pattern", "attention"),
            (!attends && self.kv_heads != HEADS, "--kv-heads", "attention"),
            (self.what != What::Train && self.recompute != Recompute::None, "--recompute", "train"),
            (self.what.has_lengths() && self.config.is_some(), "--config", "train, prefill and decode"),
            (!self.what.is_inference() && self.keep.is_some(), "--keep", "prefill and decode"),
        ];
        let found = of_others.into_iter().find(|(is_given, ..)| *is_given);
        let refused = |(_, option, those)| Mistake(format!("{option} is for {those}: leave it out"));
        found.map_or(Ok(()), |found| Err(refused(found).into()))
    }

    /// Refuses blocks where nothing multiplies them, and a file that could not be written in the end.
    fn check_blocks_and_file(&self) -> Result<()> {
        let dtype = self.dtype;
        let blocks = || {
            format!("blocks of {dtype} have no gradient and are for prefill and decode: take f32, bf16x3, bf16 or f16")
        };
        ensure!(self.what.is_inference() || !dtype.is_blocks(), Mistake(blocks()));
        let Some(file) = &self.keep else { return Ok(()) };
        let (is_one, name) = (self.threads.len() == 1, file.display());
        ensure!(is_one, Mistake("--keep writes one file: give --threads one number".into()));
        let is_named = file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"));
        ensure!(is_named, Mistake(format!("--keep `{name}` is not called as a GGUF file: end it in .gguf")));
        ensure!(!file.exists(), Mistake(format!("`{name}` is there already: choose another file with --keep")));
        Ok(())
    }

    /// How many threads are asked for, first.
    pub(crate) fn threads(&self) -> usize {
        self.threads.first().map_or(0, |&threads| threads as usize)
    }

    fn shape(&self) -> Shape {
        self.config.unwrap_or(if self.what == What::Train { Shape::Baby } else { Shape::Gpt2 })
    }

    fn to_json(&self, workload: &Workload, found: &Measurement, chosen: &NamedDevice) -> String {
        let attends = self.what == What::Attention && self.kind.is_none();
        let floats = self.dtype.floats().dtype().map_or(DType::F32, DType::from);
        // The fields of the reference, whose programs may be compiled, and then those of our own.
        let line = json!({
            "name": workload.name,
            "framework": concat!("firelight ", env!("CARGO_PKG_VERSION")),
            "device": chosen.name,
            "kernels": kernel_path(&chosen.device, floats).to_string(),
            "dtype": self.dtype.to_string(),
            "compile": false,
            "threads": measure::threads(),
            "seconds": found.seconds,
            "tokens_per_second": workload.tokens as f64 / found.seconds,
            "peak_mib": found.peak_mib,
            "peak_above_start_mib": found.above_start_mib,
            "kind": self.kind.map(|kind| kind.to_string()),
            "pattern": attends.then(|| self.pattern.to_string()),
            "kv_heads": attends.then_some(self.kv_heads),
        });
        format!("{line}\n")
    }
}

/// Whether the device of this name computes in the memory of the process.
fn is_cpu(name: &str) -> bool {
    Backend::from_name(name).is_some_and(|backend| !backend.has_index())
}

fn headings() -> String {
    row("BENCHMARK", ["THREADS", "MS/STEP", "TOKENS/S", "PEAK MIB", "ABOVE START"].map(str::to_string))
}

fn to_text(workload: &Workload, found: &Measurement) -> String {
    let size = |mebibytes: Option<f64>| mebibytes.map_or("unknown".into(), |mebibytes| format!("{mebibytes:.0}"));
    let (milliseconds, rate) = (1e3 * found.seconds, workload.tokens as f64 / found.seconds);
    let [peak, above] = [found.peak_mib, found.above_start_mib].map(size);
    let threads = measure::threads().to_string();
    row(&workload.name, [threads, format!("{milliseconds:.2}"), format!("{rate:.1}"), peak, above])
}

/// A line of the table.
fn row(name: &str, [threads, step, rate, peak, above]: [String; 5]) -> String {
    format!("{name:<30} {threads:>7} {step:>10} {rate:>14} {peak:>9} {above:>12}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_of_devices_that_have_none_of_their_own() {
        assert_eq!(["flex", "ndarray", "cuda:0", "wgpu:1", "metal:0"].map(is_cpu), [true, true, false, false, false]);
        let found = Measurement { seconds: 1.0, peak_mib: Some(2.0), above_start_mib: Some(1.0) }.without_memory();
        assert_eq!((found.seconds, found.peak_mib, found.above_start_mib), (1.0, None, None));
    }
}
