//! Which sort of model the run folder of a task holds, and how it is opened to be looked into.
//!
//! [`MODELS`] is the one list: a task with models of a new sort needs a file beside this one and a line there, a task with models of a known
//! sort its name in [`Inspected::TASKS`].

use std::path::Path;

use burn::tensor::Device;
use firelight_classification::Embedder;
use firelight_language::TextGenerator;
use firelight_seq2seq::{Captioner, Translator};
use firelight_storage::{Checkpoint, InputError, ModelFolder, TaskError, shortened};
use firelight_vision::{ImageEmbedder, ImageTextMatcher};

use super::Attends;
use crate::stacks::ModelStack;
use crate::text_model::TextModel;

/// All sorts of models.
const MODELS: &[Entry] = &[
    Entry::of::<TextGenerator>(),
    Entry::of::<Translator>(),
    Entry::of::<Captioner>(),
    Entry::of::<ImageEmbedder>(),
    Entry::of::<ImageTextMatcher>(),
    Entry::of::<Embedder>(),
];

/// Makes something of the model in a run folder.
pub(crate) type Open<T> = fn(&Path, &Checkpoint, &Device) -> Result<T, TaskError>;

/// Writes the run folder of a model without some of its heads: by [`prune_heads`](crate::prune_heads).
pub(crate) type Prune = fn(&ModelFolder, &Checkpoint, &[[usize; 2]], &Path, &Device) -> Result<ModelFolder, TaskError>;

/// A sort of model that can be looked into.
pub(crate) trait Inspected: Attends + Sized + 'static {
    /// The tasks whose run folders hold such a model.
    const TASKS: &'static [&'static str];

    /// How it is opened to read one text in one pass: by [`text_model`]. Default: it does not read so.
    const TEXT: Option<Open<TextModel>> = None;

    /// How heads are taken out of it. Default: they cannot be.
    const PRUNE: Option<Prune> = None;

    /// Loads the model of a run folder.
    fn open(folder: &Path, checkpoint: &Checkpoint, device: &Device) -> Result<Self, TaskError>;

    /// Its stacks of layers, in the order in which they compute.
    fn stacks(&self) -> Vec<ModelStack>;
}

/// A line of the table.
pub(crate) struct Entry {
    tasks: &'static [&'static str],
    pub(crate) attends: Open<Box<dyn Attends>>,
    pub(crate) stacks: Open<Vec<ModelStack>>,
    pub(crate) text: Option<Open<TextModel>>,
    pub(crate) prune: Option<Prune>,
}

impl Entry {
    const fn of<M: Inspected>() -> Self {
        Self { tasks: M::TASKS, attends: attends::<M>, stacks: stacks::<M>, text: M::TEXT, prune: M::PRUNE }
    }
}

fn attends<M: Inspected>(
    folder: &Path,
    checkpoint: &Checkpoint,
    device: &Device,
) -> Result<Box<dyn Attends>, TaskError> {
    Ok(Box::new(M::open(folder, checkpoint, device)?))
}

fn stacks<M: Inspected>(folder: &Path, checkpoint: &Checkpoint, device: &Device) -> Result<Vec<ModelStack>, TaskError> {
    Ok(M::open(folder, checkpoint, device)?.stacks())
}

/// What [`Inspected::TEXT`] is of models that read one text in one pass.
pub(super) fn text_model<M: Inspected + Into<TextModel>>(
    folder: &Path,
    checkpoint: &Checkpoint,
    device: &Device,
) -> Result<TextModel, TaskError> {
    Ok(M::open(folder, checkpoint, device)?.into())
}

/// The names of the tasks whose models [`open`](crate::open) and [`stacks`](fn@crate::stacks) take.
///
/// ```
/// assert!(firelight_inspect::tasks().any(|task| task == "language"));
/// ```
pub fn tasks() -> impl Iterator<Item = &'static str> {
    MODELS.iter().flat_map(|entry| entry.tasks).copied()
}

/// What a run folder's task has in a column of the table. Where it has nothing, before anything is loaded, an error says what its models
/// lack and what to give instead.
pub(crate) fn of_task<T>(
    folder: &Path,
    column: impl FnOnce(&Entry) -> Option<T>,
    [lack, advice]: [&str; 2],
) -> Result<T, TaskError> {
    let task = ModelFolder::open(folder)?.task().unwrap_or_default();
    let found = MODELS.iter().find(|entry| entry.tasks.contains(&task.as_str())).and_then(column);
    found.ok_or_else(|| {
        let problem = format!("is of the task \"{}\", {lack}", shortened(&task));
        InputError::in_file(folder, problem).advise(advice).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight_storage::Existing;

    /// What a column has for the run folder of a task; the folder holds no weights.
    fn found<T>(task: &str, column: impl FnOnce(&Entry) -> Option<T>) -> Result<T, TaskError> {
        let home = tempfile::tempdir().unwrap();
        let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
        folder.write_config(task, &serde_json::json!({})).unwrap();
        of_task(folder.path(), column, ["which is not it", "give another"])
    }

    #[test]
    fn every_task_is_found_in_its_only_line() {
        for task in tasks() {
            assert!(found(task, |entry| Some(entry.tasks)).unwrap().contains(&task), "{task}");
            assert_eq!(tasks().filter(|other| *other == task).count(), 1, "{task} has several lines");
        }
    }

    #[test]
    fn only_models_that_read_one_text_are_models_of_one_text() {
        let texts: Vec<&str> = tasks().filter(|task| found(task, |entry| entry.text).is_ok()).collect();
        let expected = [
            firelight_language::TASK,
            firelight_classification::TASK,
            firelight_classification::TEXT_ENCODER_TASK,
            firelight_classification::TOKEN_CLASSIFICATION_TASK,
            firelight_classification::QUESTION_ANSWERING_TASK,
            firelight_classification::MASKED_LANGUAGE_TASK,
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn heads_are_pruned_from_language_models_alone() {
        let pruned: Vec<&str> = tasks().filter(|task| found(task, |entry| entry.prune).is_ok()).collect();
        assert_eq!(pruned, [firelight_language::TASK]);
    }

    #[test]
    fn a_task_that_is_not_there_is_refused_by_its_name() {
        let unknown = found("knitting", |entry| Some(entry.tasks)).unwrap_err();
        let told = "is of the task \"knitting\", which is not it; give another";
        assert!(unknown.is_user_error() && unknown.to_string().ends_with(told), "{unknown}");
    }
}
