//! `firelight quantize`: a language model with its matrices in blocks of 8 or 4 bits, in a run folder of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use firelight::language::{BlockMix, CalibrationOptions, KeptFloat, Quantized, ScoreOptions, TextGenerator};
use firelight::nn::{BlockFormat, Importance};
use firelight::storage::{Existing, ModelFolder, StorageError};
use serde_json::{Value, json};

use super::texts::whole_file;
use super::trained_model::TrainedModel;
use crate::failure::Mistake;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  firelight quantize runs/stories-1 --to q8_0 --out runs/stories-q8
  firelight quantize Qwen/Qwen3-0.6B --to q4_k --out models/qwen-q4 --text chapter.txt
  firelight quantize Qwen/Qwen3-0.6B --to q4_k --out models/qwen-q4 --calibrate book.txt --text chapter.txt
  firelight generate runs/stories-q8 --prompt \"Once upon a time\"

Blocks of q8_0 hold 32 numbers of 8 bits, those of q4_0 32 of 4 bits, those of q4_k and q6_k 256 of 4 and 6 bits, each with scales. \
With q4_k the embedding and the head are in q6_k, as llama.cpp has it for the head.

With --calibrate the model reads a text first, and weights that are multiplied by large numbers are rounded with more care. Take a text of \
the kind that the model is for, and another one for --text.

Matrices whose rows are not of whole blocks stay floats and are listed. So do norms, biases, tables of positions and routers, which are \
small. The folder is for generate, chat and score; it is not trained further.";

/// Put the matrices of a language model into blocks of 8 or 4 bits, in a new run folder
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Quantize {
    #[command(flatten)]
    model: TrainedModel,
    /// Format of the blocks: q8_0, q4_0, q4_k or q6_k
    #[arg(long, value_name = "FORMAT", value_parser = parse)]
    to: BlockFormat,
    /// Run folder to write; it must be new or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// File of a text whose perplexity is measured before and after
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// File of a text that the model reads first, to learn which weights to round with care
    #[arg(long, value_name = "FILE")]
    calibrate: Option<PathBuf>,
    /// Tokens of that text to read at most [default: 32768]
    #[arg(long, value_name = "N", requires = "calibrate")]
    calibrate_tokens: Option<usize>,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

impl Quantize {
    pub(crate) fn run(self) -> Result<()> {
        self.model.of_floats()?.is_for("quantize")?;
        let text = self.text.as_deref().map(whole_file).transpose()?;
        let calibration = self.calibrate.as_deref().map(whole_file).transpose()?;
        let run = ModelFolder::open(self.model.run_dir()?)?;
        self.refuse_what_does_not_fit(&run)?;
        let floats = self.model.load(TextGenerator::load_from)?;
        let mix = BlockMix::new(self.to);
        let report = mix.report(floats.model());
        ensure!(!report.formats.is_empty(), Mistake(nothing_fits(self.to, &report)));
        let before = perplexity(&floats, text.as_deref())?;
        let importance = self.importance(&floats, calibration.as_deref())?;
        output::note(format_args!("quantising {} matrices to {}", report.formats.len(), self.to.name()));
        let blocks = floats.quantize_by(&mix, &importance);
        let after = perplexity(&blocks, text.as_deref())?;
        let folder = blocks.save_quantized(&run, &self.out)?;
        let (perplexities, calibrated) = (before.zip(after), self.calibrated(&report, &importance));
        let shown = match self.json {
            true => self.to_json(&report, calibrated, perplexities),
            false => to_text(&report, calibrated, perplexities),
        };
        output::print(&shown)?;
        let path = folder.path().display();
        output::note(format_args!("written: {path}; continue a text with: firelight generate {path} --prompt TEXT"));
        Ok(())
    }

    fn refuse_what_does_not_fit(&self, run: &ModelFolder) -> Result<()> {
        let path = run.quantization();
        let again = format!(
            "`{}` says that the model is in blocks already: take the one it was made from, or import its GGUF file with --floats",
            path.display()
        );
        ensure!(!path.is_file(), Mistake(again));
        match ModelFolder::check(&self.out, Existing::Refuse) {
            Err(StorageError::FolderExists { path }) => {
                bail!(Mistake(format!("`{}` is not an empty folder: choose another one with --out", path.display())))
            }
            checked => Ok(checked?),
        }
    }

    /// What the text to calibrate on says; nothing where there is none.
    fn importance(&self, floats: &TextGenerator, text: Option<&str>) -> Result<Importance> {
        let Some(text) = text else { return Ok(Importance::new()) };
        let usual = CalibrationOptions::default();
        let options = CalibrationOptions { tokens: self.calibrate_tokens.unwrap_or(usual.tokens), ..usual };
        Ok(floats.importance(text, &options)?)
    }

    /// How many of the matrices in blocks were calibrated, where that was asked for.
    fn calibrated(&self, report: &Quantized, importance: &Importance) -> Option<usize> {
        self.calibrate.as_ref().map(|_| report.formats.keys().filter(|path| importance.contains_key(*path)).count())
    }

    fn to_json(&self, report: &Quantized, calibrated: Option<usize>, perplexities: Option<(f64, f64)>) -> String {
        let mut object = json!({
            "to": self.to.name(),
            "out": self.out.display().to_string(),
            "tensors": report.formats.len(),
            "formats": counts(report),
            "bytes_before": report.bytes_before,
            "bytes_after": report.bytes_after,
            "kept": report.kept.iter().map(kept_to_json).collect::<Vec<_>>(),
        });
        if let Some(calibrated) = calibrated {
            object["calibrated"] = calibrated.into();
        }
        if let Some((before, after)) = perplexities {
            object["perplexity_before"] = before.into();
            object["perplexity_after"] = after.into();
        }
        format!("{object}\n")
    }
}

/// # Errors
/// Lists the names.
fn parse(name: &str) -> Result<BlockFormat, String> {
    let names = BlockFormat::ALL.map(BlockFormat::name).join(", ");
    BlockFormat::from_name(name).ok_or_else(|| format!("expected one of {names}"))
}

/// Why no matrix is in blocks, by the first of them.
fn nothing_fits(format: BlockFormat, report: &Quantized) -> String {
    let first = report.kept.first().map_or(String::new(), |kept| format!(": `{}`: {}", kept.path, kept.reason));
    format!("no matrix of the model goes into blocks of {}{first}; blocks of q8_0 and q4_0 hold 32", format.name())
}

fn perplexity(generator: &TextGenerator, text: Option<&str>) -> Result<Option<f64>> {
    let Some(text) = text else { return Ok(None) };
    Ok(Some(generator.score(text, &ScoreOptions::default())?.perplexity()))
}

fn kept_to_json(kept: &KeptFloat) -> Value {
    json!({"path": kept.path, "reason": kept.reason})
}

/// How many matrices are in each format.
fn counts(report: &Quantized) -> BTreeMap<&'static str, usize> {
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    report.formats.values().for_each(|format| *counts.entry(format.name()).or_default() += 1);
    counts
}

/// A line of what there is, one for each matrix that stays floats, one of what was calibrated, and one of perplexities.
fn to_text(report: &Quantized, calibrated: Option<usize>, perplexities: Option<(f64, f64)>) -> String {
    let formats: Vec<String> = counts(report).iter().map(|(name, count)| format!("{count} in {name}")).collect();
    let Quantized { bytes_before, bytes_after, .. } = report;
    let share = *bytes_before as f64 / (*bytes_after).max(1) as f64;
    let mut lines = vec![format!(
        "matrices {} ({}), bytes {bytes_before} -> {bytes_after} ({share:.2} times smaller)",
        report.formats.len(),
        formats.join(", ")
    )];
    lines.extend(report.kept.iter().map(|kept| format!("floats: {}: {}", kept.path, kept.reason)));
    lines.extend(calibrated.map(|count| format!("calibrated {count} of {} matrices", report.formats.len())));
    lines.extend(perplexities.map(|(before, after)| format!("perplexity {before:.4} -> {after:.4}")));
    lines.join("\n") + "\n"
}
