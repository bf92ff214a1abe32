//! `firelight evaluate`: how good a trained model is, on what it was validated on, on the validation split of a text or of images,
//! or on a split of parallel files, of labelled texts, of tagged sentences, of texts with masks or of images.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use burn::tensor::Device;
use firelight::classification;
use firelight::language::{self, Evaluation};
use firelight::seq2seq::{self, TranslateOptions};
use firelight::storage::{Checkpoint, ModelFolder};
use firelight::training::{TaskEvaluation, metric_in_words, task_of};
use firelight::vision;
use serde_json::json;

use super::tasks::{Shown, with_task};
use super::trained_model::TrainedModel;
use crate::failure::Mistake;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  firelight evaluate runs/stories-1
  firelight evaluate runs/shakespeare --checkpoint best --data input.txt --json
  firelight evaluate runs/multi30k-de-en-1 --data DIR --split test_2016_flickr --beams 5
  firelight evaluate runs/sst2-1 --data DIR --split test

Without --data it measures what the run was validated on, which its folder keeps. --data is what `firelight train` takes: \
a text, of which the validation split is measured; a folder of files for each split; or one file. --split names the files to \
measure, such as test for test.de and test.en, or for test.tsv; by default val for seq2seq, else what the run validates on.";

/// Measure a trained model on its validation data, or on other data
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Evaluate {
    #[command(flatten)]
    model: TrainedModel,
    /// File or folder to measure on, as `firelight train` takes it; by default what the run was validated on
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Split of the folder --data to measure, such as test
    #[arg(long, value_name = "NAME", requires = "data")]
    split: Option<String>,
    /// For seq2seq and captioning: width of the beam search, by default 5 and 1; 1 is greedy
    #[arg(long, value_name = "N")]
    beams: Option<usize>,
    /// For seq2seq: exponent of the length that log-probabilities are divided by, by default 1
    #[arg(long, value_name = "P")]
    length_penalty: Option<f64>,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

/// A folder of splits, or a file, and the name of one.
type Split<'a> = Option<(&'a Path, Option<&'a str>)>;

impl Evaluate {
    pub(crate) fn run(self) -> Result<()> {
        let run = &self.model.run_dir;
        let folder = ModelFolder::open(run)?;
        let task = task_of(&folder.recipe())?;
        self.refuse_what_is_not_kept(&folder, &task)?;
        let report = match task.as_str() {
            language::TASK => self.text()?,
            seq2seq::TASK => self.pairs()?,
            classification::TASK => {
                self.labels(|checkpoint, data, device| Ok(classification::evaluate(run, checkpoint, data, device)?))?
            }
            classification::TOKEN_CLASSIFICATION_TASK => self
                .labels(|checkpoint, data, device| Ok(classification::evaluate_tags(run, checkpoint, data, device)?))?,
            classification::QUESTION_ANSWERING_TASK => self.labels(|checkpoint, data, device| {
                Ok(classification::evaluate_answers(run, checkpoint, data, device)?)
            })?,
            classification::MASKED_LANGUAGE_TASK => self.labels(|checkpoint, data, device| {
                Ok(classification::evaluate_masked(run, checkpoint, data, device)?)
            })?,
            vision::TASK => {
                self.labels(|checkpoint, data, device| Ok(vision::evaluate(run, checkpoint, data, device)?))?
            }
            seq2seq::CAPTIONING_TASK => self.captions()?,
            other => bail!(Mistake(format!("`{}` is a run of the unknown task `{other}`", folder.path().display()))),
        };
        output::print(&report)?;
        Ok(())
    }

    /// A model may lie without the data of its run, where somebody copied no more than it needs to answer.
    fn refuse_what_is_not_kept(&self, folder: &ModelFolder, task: &str) -> Result<()> {
        // The caller refuses an unknown task.
        let kept = with_task!(task, |T| T::kept(folder), return Ok(()));
        let lost =
            || Mistake(format!("there is no `{}` of what the run was validated on: give --data", kept.display()));
        ensure!(self.data.is_some() || kept.is_file(), lost());
        Ok(())
    }

    fn data(&self) -> Split<'_> {
        self.data.as_deref().map(|data| (data, self.split.as_deref()))
    }

    fn text(&self) -> Result<String> {
        let plain = self.beams.is_none() && self.length_penalty.is_none();
        ensure!(plain, Mistake("--beams and --length-penalty are for pairs of texts: leave them out".into()));
        let measure = |checkpoint: &Checkpoint, device: &Device| {
            Ok(language::evaluate(&self.model.run_dir, checkpoint, self.data(), device)?)
        };
        let evaluation = self.model.with(measure)?;
        Ok(if self.json { to_json(&evaluation) } else { to_text(&evaluation) })
    }

    /// Texts or images with labels, or sentences with tags, as the task measures them.
    fn labels(&self, evaluate: impl FnOnce(&Checkpoint, Split, &Device) -> Result<TaskEvaluation>) -> Result<String> {
        let plain = self.beams.is_none() && self.length_penalty.is_none();
        ensure!(plain, Mistake("--beams and --length-penalty are for pairs of texts: leave them out".into()));
        let data = self.data();
        let measure = |checkpoint: &Checkpoint, device: &Device| evaluate(checkpoint, data, device);
        let found = self.model.with(measure)?;
        if self.json {
            return Ok(format!("{}\n", serde_json::to_string(&found)?));
        }
        Ok(labels_to_text(&found))
    }

    fn captions(&self) -> Result<String> {
        let plain = self.split.is_none() && self.length_penalty.is_none();
        ensure!(plain, Mistake("--split and --length-penalty are not for captions: leave them out".into()));
        let (list, beams) = (self.data.as_deref(), self.beams.unwrap_or(1));
        let measure = |checkpoint: &Checkpoint, device: &Device| {
            Ok(seq2seq::evaluate_captions(&self.model.run_dir, checkpoint, list, beams, device)?)
        };
        let found = self.model.with(measure)?;
        if self.json {
            return Ok(format!("{}\n", serde_json::to_string(&found)?));
        }
        Ok(labels_to_text(&TaskEvaluation { scores: found.scores.into_iter().map(to_share).collect(), ..found }))
    }

    fn pairs(&self) -> Result<String> {
        if let (Some(file), Some(_)) = (self.data.as_ref().filter(|data| data.is_file()), &self.split) {
            bail!(Mistake(format!("`{}` is one file and has no splits: leave --split out", file.display())));
        }
        let data = self.data().map(|(data, split)| (data, split.unwrap_or("val")));
        let usual = TranslateOptions::default();
        let (beams, penalty) = (self.beams.unwrap_or(usual.beams), self.length_penalty.unwrap_or(usual.length_penalty));
        let options = TranslateOptions { beams, length_penalty: penalty, ..usual };
        let measure = |checkpoint: &Checkpoint, device: &Device| {
            Ok(seq2seq::evaluate(&self.model.run_dir, checkpoint, data, &options, device)?)
        };
        let found = self.model.with(measure)?;
        if self.json {
            return Ok(format!("{}\n", serde_json::to_string(&found)?));
        }
        Ok(format!(
            "loss            {:.4} nats per token\nperplexity      {:.3}\nBLEU            {:.2} ({})\nchrF            {:.2}\n\
             exact match     {:.1} %\nROUGE-1, -2, -L {:.2}, {:.2}, {:.2}\ntoken accuracy  {:.2} %\ntime            {:.1} seconds\n",
            found.loss,
            found.perplexity,
            found.bleu,
            found.signature,
            found.chrf,
            found.exact_match,
            found.rouge1,
            found.rouge2,
            found.rouge_l,
            100.0 * found.token_accuracy,
            found.seconds
        ))
    }
}

/// A line for each score, with the values below one another.
fn labels_to_text(found: &TaskEvaluation) -> String {
    let score = |(name, value): &(&str, f64)| match is_share(name) {
        true => (metric_in_words(name), format!("{:.2} %", 100.0 * value)),
        false => (metric_in_words(name), format!("{value:.4}")),
    };
    let loss = ("loss".to_string(), format!("{:.4} {}", found.loss, found.loss_unit));
    let rest = [("examples", found.examples.to_string()), ("time", format!("{:.1} seconds", found.seconds))];
    let rest = rest.map(|(name, value)| (name.to_string(), value));
    let lines: Vec<_> = std::iter::once(loss).chain(found.scores.iter().map(score)).chain(rest).collect();
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    lines.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
}

/// Scores of texts are percentages already.
fn to_share((name, value): (&'static str, f64)) -> (&'static str, f64) {
    if name == "exact_match" { (name, value / 100.0) } else { (name, value) }
}

/// Whether a score counts successes, which people read in percent.
fn is_share(name: &str) -> bool {
    name.ends_with("f1") || ["accuracy", "token_accuracy", "exact_match", "precision", "recall"].contains(&name)
}

fn to_json(evaluation: &Evaluation) -> String {
    let line = json!({
        "loss": evaluation.loss,
        "perplexity": evaluation.perplexity,
        "bits_per_character": evaluation.bits_per_character,
        "tokens": evaluation.tokens,
    });
    format!("{line}\n")
}

fn to_text(evaluation: &Evaluation) -> String {
    format!(
        "loss                {:.4} nats per token\nperplexity          {:.3}\nbits per character  {:.4}\ntokens              {}\n",
        evaluation.loss, evaluation.perplexity, evaluation.bits_per_character, evaluation.tokens
    )
}
