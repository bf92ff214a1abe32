//! `firelight evaluate`: how good a trained model is, on what it was validated on, on the validation split of a text or of images,
//! or on a split of parallel files, of labelled texts, of tagged sentences, of texts with masks or of images.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Error, Result, bail, ensure};
use burn::tensor::Device;
use firelight::classification;
use firelight::language;
use firelight::seq2seq::{self, TranslateOptions};
use firelight::storage::{Checkpoint, ModelFolder, TaskError};
use firelight::training::{Communicator, TaskEvaluation, metric_in_words, task_of};
use firelight::vision;

use super::tasks::{Shown, with_task};
use super::trained_model::TrainedModel;
use crate::failure::Mistake;
use crate::{output, ranks};

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

/// What was found: a line of JSON, and a text for people.
type Report = (String, String);

/// A folder of splits, or a file, and the name of one.
type Split<'a> = Option<(&'a Path, Option<&'a str>)>;

impl Evaluate {
    pub(crate) fn run(self) -> Result<()> {
        let folder = ModelFolder::open(self.model.of_floats()?.run_dir()?)?;
        let task = folder.task().map_or_else(|| task_of(&folder.recipe()), Ok)?;
        self.refuse_what_is_not_kept(&folder, &task)?;
        let (json, text) = match task.as_str() {
            language::TASK => self.text()?,
            seq2seq::TASK => self.pairs()?,
            seq2seq::CAPTIONING_TASK => self.captions()?,
            classification::TASK => self.scores(classification::evaluate_on)?,
            classification::TOKEN_CLASSIFICATION_TASK => self.scores(classification::evaluate_tags_on)?,
            classification::QUESTION_ANSWERING_TASK => self.scores(classification::evaluate_answers_on)?,
            classification::MASKED_LANGUAGE_TASK => self.scores(classification::evaluate_masked_on)?,
            vision::TASK => self.scores(vision::evaluate_on)?,
            other => bail!(Mistake(format!("`{}` is a run of the unknown task `{other}`", folder.path().display()))),
        };
        ranks::part(output::print(&if self.json { json + "\n" } else { text }).map_err(Error::from))
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

    /// What `evaluate` finds of the model and the data that are asked for, on all ranks.
    fn measure<E>(
        &self,
        evaluate: impl FnOnce(PathBuf, &Checkpoint, Split, &Device, Arc<dyn Communicator>) -> Result<E, TaskError>,
    ) -> Result<E> {
        let data = self.data.as_deref().map(|data| (data, self.split.as_deref()));
        let ranks = ranks::member().communicator();
        self.model.load(|run, checkpoint, device| evaluate(run, checkpoint, data, device, ranks))
    }

    fn refuse_search(&self) -> Result<()> {
        let plain = self.beams.is_none() && self.length_penalty.is_none();
        ensure!(plain, Mistake("--beams and --length-penalty are for pairs of texts: leave them out".into()));
        Ok(())
    }

    fn text(&self) -> Result<Report> {
        self.refuse_search()?;
        let found = self.measure(language::evaluate_on)?;
        let text = to_table(&[
            ("loss".into(), format!("{:.4} nats per token", found.loss)),
            ("perplexity".into(), format!("{:.3}", found.perplexity)),
            ("bits per character".into(), format!("{:.4}", found.bits_per_character)),
            ("tokens".into(), found.tokens.to_string()),
        ]);
        Ok((serde_json::to_value(found)?.to_string(), text))
    }

    /// Texts or images with labels, or sentences with tags, as the task measures them.
    fn scores(
        &self,
        evaluate: impl FnOnce(
            PathBuf,
            &Checkpoint,
            Split,
            &Device,
            Arc<dyn Communicator>,
        ) -> Result<TaskEvaluation, TaskError>,
    ) -> Result<Report> {
        self.refuse_search()?;
        let found = self.measure(evaluate)?;
        Ok((serde_json::to_string(&found)?, scores_to_table(&found)))
    }

    fn captions(&self) -> Result<Report> {
        let plain = self.split.is_none() && self.length_penalty.is_none();
        ensure!(plain, Mistake("--split and --length-penalty are not for captions: leave them out".into()));
        let beams = self.beams.unwrap_or(1);
        let found = self.measure(|run, checkpoint, data, device, ranks| {
            seq2seq::evaluate_captions_on(run, checkpoint, data.map(|(list, _)| list), beams, device, ranks)
        })?;
        let json = serde_json::to_string(&found)?;
        let scores = found.scores.into_iter().map(to_share).collect();
        Ok((json, scores_to_table(&TaskEvaluation { scores, ..found })))
    }

    fn pairs(&self) -> Result<Report> {
        let usual = TranslateOptions::default();
        let (beams, penalty) = (self.beams.unwrap_or(usual.beams), self.length_penalty.unwrap_or(usual.length_penalty));
        let options = TranslateOptions { beams, length_penalty: penalty, ..usual };
        let found = self.measure(|run, checkpoint, data, device, ranks| {
            seq2seq::evaluate_on(run, checkpoint, data, &options, device, ranks)
        })?;
        let text = format!(
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
        );
        Ok((serde_json::to_string(&found)?, text))
    }
}

/// A line for each name, with the values below one another.
fn to_table(rows: &[(String, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
}

fn scores_to_table(found: &TaskEvaluation) -> String {
    let score = |(name, value): &(&str, f64)| match is_share(name) {
        true => (metric_in_words(name), format!("{:.2} %", 100.0 * value)),
        false => (metric_in_words(name), format!("{value:.4}")),
    };
    let loss = ("loss".to_string(), format!("{:.4} {}", found.loss, found.loss_unit));
    let rest = [("examples", found.examples.to_string()), ("time", format!("{:.1} seconds", found.seconds))];
    let rest = rest.map(|(name, value)| (name.to_string(), value));
    to_table(&std::iter::once(loss).chain(found.scores.iter().map(score)).chain(rest).collect::<Vec<_>>())
}

/// Scores of texts are percentages already.
fn to_share((name, value): (&'static str, f64)) -> (&'static str, f64) {
    if name == "exact_match" { (name, value / 100.0) } else { (name, value) }
}

/// Whether a score counts successes, which people read in percent.
fn is_share(name: &str) -> bool {
    name.ends_with("f1") || ["accuracy", "token_accuracy", "exact_match", "precision", "recall"].contains(&name)
}
