//! `firelight evaluate`: how good a trained model is, on what it was validated on, on the validation split of a text or of images,
//! or on a split of parallel files, of labelled texts, of tagged sentences, of texts with masks or of images.

use std::path::PathBuf;

use anyhow::{Error, Result, bail, ensure};
use burn::tensor::Device;
use firelight::storage::{Checkpoint, ModelFolder};
use firelight::training::{TaskEvaluation, evaluate_run_on, metric_in_words, task_of};

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
    pub(super) split: Option<String>,
    /// For seq2seq and captioning: width of the beam search, by default 5 and 1; 1 is greedy
    #[arg(long, value_name = "N")]
    pub(super) beams: Option<usize>,
    /// For seq2seq: exponent of the length that log-probabilities are divided by, by default 1
    #[arg(long, value_name = "P")]
    pub(super) length_penalty: Option<f64>,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

/// What an evaluation finds.
pub(super) trait Found {
    /// Its lines for people.
    fn in_words(&self) -> String;
}

impl Evaluate {
    pub(crate) fn run(self) -> Result<()> {
        let folder = ModelFolder::open(self.model.of_floats()?.run_dir()?)?;
        let task = folder.task().map_or_else(|| task_of(&folder.recipe()), Ok)?;
        self.refuse_what_is_not_kept(&folder, &task)?;
        let unknown = || Mistake(format!("`{}` is a run of the unknown task `{task}`", folder.path().display()));
        let text = with_task!(task.as_str(), |T| self.measure::<T>()?, bail!(unknown()));
        ranks::part(output::print(&text).map_err(Error::from))
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

    /// What is printed of the model on the data that is asked for, on all ranks.
    fn measure<T: Shown>(&self) -> Result<String> {
        let (options, run) = (T::options(self)?, self.model.run_dir()?);
        let asked = self.data.as_deref().map(|data| (data, self.split.as_deref()));
        let ranks = ranks::member().communicator();
        let evaluate = |checkpoint: &Checkpoint, device: &Device| -> Result<T::Report> {
            Ok(evaluate_run_on::<T>(run, checkpoint, asked, &options, device, ranks)?)
        };
        let found = self.model.with(evaluate)?;
        Ok(if self.json { serde_json::to_string(&found)? + "\n" } else { T::in_words(found) })
    }

    /// Refuses the options of a beam search, where nothing is written.
    pub(super) fn refuse_search(&self) -> Result<()> {
        let plain = self.beams.is_none() && self.length_penalty.is_none();
        ensure!(plain, Mistake("--beams and --length-penalty are for pairs of texts: leave them out".into()));
        Ok(())
    }
}

/// A line for each name, with the values below one another.
pub(super) fn to_table(rows: &[(String, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
}

/// The loss and the scores, shares of them in per cent.
impl Found for TaskEvaluation {
    fn in_words(&self) -> String {
        let score = |(name, value): &(&str, f64)| match is_share(name) {
            true => (metric_in_words(name), format!("{:.2} %", 100.0 * value)),
            false => (metric_in_words(name), format!("{value:.4}")),
        };
        let loss = ("loss".to_string(), format!("{:.4} {}", self.loss, self.loss_unit));
        let rest = [("examples", self.examples.to_string()), ("time", format!("{:.1} seconds", self.seconds))];
        let rest = rest.map(|(name, value)| (name.to_string(), value));
        to_table(&std::iter::once(loss).chain(self.scores.iter().map(score)).chain(rest).collect::<Vec<_>>())
    }
}

/// Whether a score counts successes, which people read in percent.
fn is_share(name: &str) -> bool {
    name.ends_with("f1") || ["accuracy", "token_accuracy", "exact_match", "precision", "recall"].contains(&name)
}
