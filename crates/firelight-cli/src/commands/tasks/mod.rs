//! The tasks that the program knows. This is the one list of them: a command does its work for the task of a recipe or a run by
//! [`with_task`], and each task has a file for what it shows of itself.

mod captioning;
mod classification;
mod language;
mod masked_language;
mod question_answering;
mod seq2seq;
mod token_classification;
pub(super) mod untrained;
mod vision;

use std::path::PathBuf;

use anyhow::Result;
use firelight::device::NamedDevice;
use firelight::nn::Cost;
use firelight::storage::ModelFolder;
use firelight::training::{MeasuredTask, RecipeOf, Sample, Task, TrainedRun};

use super::classify::Classify;
use super::embedder::AnyEmbedder;
use super::evaluate::{Evaluate, Found};
use super::score::Score;
use super::trained_model::TrainedModel;

pub(super) use firelight::classification::{Classification, MaskedLanguage, QuestionAnswering, TokenClassification};
pub(super) use firelight::language::Language;
pub(super) use firelight::seq2seq::{Captioning, Seq2Seq};
pub(super) use firelight::vision::Vision;

/// How many examples of the validation data a trained model is shown at work on.
const SAMPLES: usize = 3;

/// What a task shows of itself.
pub(super) trait Shown:
    MeasuredTask<Report: Found> + Task<Error: Send + Sync + std::error::Error + 'static>
{
    /// What `firelight train` takes as data, in words.
    const DATA: &'static str;

    /// What the samples are, in words.
    const SHOWS: &'static str;

    /// What a trained model is asked with, the usual command first.
    const COMMANDS: &'static [&'static str];

    /// Whether its models write token by token, with a cache.
    const WRITES: bool = false;

    /// Whether `firelight train` takes its data as two files, of sources and of targets.
    const TAKES_PAIRS: bool = false;

    /// What can be done with the model in `folder`: a sentence with a command.
    fn next(folder: &str) -> String;

    /// What the trained model makes of what, read back from its folder as any later command will.
    fn samples(run: &TrainedRun<Self>, chosen: &NamedDevice) -> Result<Vec<Sample>>;

    /// What a model, which can be built, costs in a context of `length` tokens, by default of as many as it reads, and that number.
    fn cost(recipe: &RecipeOf<Self>, config: &Self::Config, length: Option<usize>) -> (Cost, usize);

    /// What the arguments of `firelight evaluate` choose beside the data. Default: nothing, and the options of a search are refused.
    fn options(asked: &Evaluate) -> Result<Self::Options> {
        asked.refuse_search()?;
        Ok(Self::Options::default())
    }

    /// What `firelight evaluate` prints of what it found.
    fn in_words(found: Self::Report) -> String {
        found.in_words()
    }

    /// Answers `firelight classify`, of a task that has it among its [commands](Self::COMMANDS). Default: labels of texts, or numbers.
    fn classify(asked: &Classify) -> Result<()> {
        asked.texts()
    }

    /// What makes the vectors of `firelight embed`, of a task that has it among its [commands](Self::COMMANDS); images are given, or else
    /// texts. Default: a model of texts.
    fn embedder(model: &TrainedModel, are_images: bool) -> Result<AnyEmbedder> {
        AnyEmbedder::of_texts(model, are_images)
    }

    /// Answers `firelight score`, of a task that has it among its [commands](Self::COMMANDS). Default: texts by themselves.
    fn score(asked: &Score) -> Result<()> {
        asked.texts()
    }

    /// Where a run keeps what it is validated on.
    fn kept(folder: &ModelFolder) -> PathBuf {
        folder.validation_pairs()
    }
}

/// Evaluates an expression for the task of this name, which is a type in it, or `$otherwise` where there is no such task.
macro_rules! with_task {
    // The list of all tasks, behind what is to be made of it.
    (@all $($what:tt)*) => {
        with_task!(
            $($what)*
            Language Seq2Seq Classification TokenClassification QuestionAnswering MaskedLanguage Vision Captioning
        )
    };
    (@names $($known:ident)*) => { &[$(<$crate::commands::tasks::$known as firelight::training::Task>::NAME),*] };
    (@of $name:expr, $Task:ident, $body:expr, $otherwise:expr, $($known:ident)*) => {{
        let name: &str = $name;
        match name {
            $(<$crate::commands::tasks::$known as firelight::training::Task>::NAME => {
                type $Task = $crate::commands::tasks::$known;
                $body
            })*
            _ => $otherwise,
        }
    }};
    ($name:expr, |$Task:ident| $body:expr, $otherwise:expr) => {
        with_task!(@all @of $name, $Task, $body, $otherwise,)
    };
}
pub(super) use with_task;

/// The task of a training that names none.
pub(super) const USUAL: &str = Language::NAME;

/// The names of all tasks.
pub(super) const NAMES: &[&str] = with_task!(@all @names);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_that_of_a_task() {
        for &name in NAMES {
            assert_eq!(with_task!(name, |T| T::NAME, "none"), name);
        }
        assert_eq!(with_task!("knitting", |T| T::NAME, "none"), "none");
    }

    #[test]
    fn models_of_every_task_can_be_looked_into() {
        for &name in NAMES {
            let mut known = firelight::inspect::tasks();
            assert!(known.any(|task| task == name), "no model of `{name}` is in models/table.rs of firelight-inspect");
        }
    }
}
