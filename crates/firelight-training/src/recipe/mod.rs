//! A run written down: the TOML file that `train` reads, with the overrides of the command line, and the copy that lies
//! beside the weights. What `[data]`, `[model]` and `[loss]` hold is the task's business; the rest is the same for every task.

mod apart;
mod changes;
mod document;
mod error;
mod fields;
mod findings;
mod reading;
#[cfg(test)]
mod tests;

use serde::Serialize;
use std::cmp::Ordering;

use serde::de::DeserializeOwned;
use toml::Table;

use crate::config::{Problems, SettingsError, all_of};
use crate::{InitConfig, OptimizerConfig, Problem, ScheduleConfig, TrainingConfig};
pub use apart::Apart;
use document::{Document, Known};
pub use error::RecipeError;
pub use fields::{Fields, fields_of};
use findings::Findings;

/// No recipe is larger, in bytes.
pub(crate) const LIMIT: u64 = 1 << 20;

/// Everything that decides about a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recipe<D, M, L> {
    /// What is trained: `language`, for example.
    pub task: String,
    /// Decides over initial weights, order of the data and dropout. Default 0.
    pub seed: u64,
    /// The data and how it is read.
    pub data: D,
    /// The structure of the model.
    pub model: M,
    /// How the loss is computed.
    pub loss: L,
    /// The weights that the first step begins from.
    #[serde(skip_serializing_if = "InitConfig::is_new")]
    pub init: InitConfig,
    /// How long, and what happens on the way.
    pub training: TrainingConfig,
    /// The optimiser.
    pub optimizer: OptimizerConfig,
    /// The learning rate by step.
    pub schedule: ScheduleConfig,
}

/// A recipe whose task does not matter: what is the same for all of them is read and checked, the rest is kept as it is.
pub type AnyRecipe = Recipe<toml::Table, toml::Table, toml::Table>;

impl<D: DeserializeOwned, M: DeserializeOwned, L: DeserializeOwned> Recipe<D, M, L> {
    /// Reads a recipe from TOML and checks it; `source` is the name of the file in error messages.
    ///
    /// `overrides` are pairs such as `("training.steps", "500")`. Their values are read as TOML, or else taken as text, and
    /// replace what the recipe says. Sections and keys that are left out have their defaults, if there are any.
    ///
    /// # Errors
    /// Fails if the text is no TOML, a key is unknown or missing, or a value has the wrong type or is out of range; the
    /// message lists all bad fields with their lines. `data`, `model` and `loss` are read but not judged: their crates know
    /// what they may hold, and judge with [`parse_with`](Self::parse_with).
    pub fn parse(text: &str, source: &str, overrides: &[(String, String)]) -> Result<Self, RecipeError> {
        Self::parse_with(text, source, overrides, |_| Vec::new())
    }

    /// Reads a recipe as [`parse`](Self::parse) does, and lists what `judge` finds wrong with the sections of the task among
    /// the bad fields.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and if `judge` finds anything.
    pub fn parse_with(
        text: &str,
        source: &str,
        overrides: &[(String, String)],
        judge: impl FnOnce(&Self) -> Vec<Problem>,
    ) -> Result<Self, RecipeError> {
        Self::parse_beside(text, source, overrides, &Table::new(), judge)
    }

    /// Reads a recipe as [`parse_with`](Self::parse_with) does, with the keys of `[model]` that it leaves out taken from `model`.
    pub(crate) fn parse_beside(
        text: &str,
        source: &str,
        overrides: &[(String, String)],
        model: &Table,
        judge: impl FnOnce(&Self) -> Vec<Problem>,
    ) -> Result<Self, RecipeError> {
        let (mut document, mut findings) = (Document::parse(text, source)?, Findings::default());
        for (key, value) in overrides {
            findings.note(document.set(key, value));
        }
        for (error, meant) in document.take_unknown_keys(&known_keys::<D, M, L>()) {
            findings.note_unknown(error, meant);
        }
        document.fill("model", model, fields_of::<M>().unwrap_or_default());
        let recipe = Self::read(&document, &mut findings);
        if let Some(recipe) = &recipe {
            findings.judge(&document, &[recipe.init.problems(), judge(recipe)].concat());
        }
        findings.into_result()?;
        Ok(recipe.unwrap_or_else(|| unreachable!("what cannot be read is an error")))
    }

    /// The recipe, with defaults for what is wrong with it; none if a section cannot be read at all.
    fn read(document: &Document, findings: &mut Findings) -> Option<Self> {
        let task = findings.note(document.required("task")).unwrap_or_default();
        let seed = findings.note(document.optional("seed")).flatten().unwrap_or_default();
        let (data, model) = (findings.section(document, "data"), findings.section(document, "model"));
        let (loss, training) = (findings.section(document, "loss"), findings.section(document, "training"));
        let (optimizer, schedule) = (findings.section(document, "optimizer"), findings.section(document, "schedule"));
        let init = findings.section(document, "init");
        let (training, optimizer, schedule) = (training?, optimizer?, schedule?);
        if let Err(error) = check(&training, &optimizer, &schedule) {
            findings.judge(document, error.problems());
        }
        let (data, model, loss, init) = (data?, model?, loss?, init?);
        Some(Self { task, seed, data, model, loss, init, training, optimizer, schedule })
    }
}

impl<D, M, L> Recipe<D, M, L> {
    /// The same recipe for data of which an epoch has so many batches: the steps of the training and the horizon of the schedule
    /// are numbers, whatever decides them.
    #[must_use]
    pub(crate) fn over(self, batches: usize) -> Self {
        let training = self.training.over(batches);
        let schedule = self.schedule.over(training.steps);
        Self { training, schedule, ..self }
    }

    /// Checks the settings that are the same for every task, and that they fit one another.
    ///
    /// # Errors
    /// Returns one error that lists all bad fields.
    pub fn validate(&self) -> Result<(), SettingsError> {
        check(&self.training, &self.optimizer, &self.schedule)
    }
}

fn check(
    training: &TrainingConfig,
    optimizer: &OptimizerConfig,
    schedule: &ScheduleConfig,
) -> Result<(), SettingsError> {
    let mut together = Problems::of("schedule");
    let (floor, peak) = (schedule.min_learning_rate, optimizer.learning_rate);
    let expected = format!("at most optimizer.learning_rate = {peak}");
    together.require(!floor.partial_cmp(&peak).is_some_and(Ordering::is_gt), "min_learning_rate", floor, &expected);
    all_of([training.validate(), optimizer.validate(), schedule.validate(), together.into_result()])
}

impl<D: Serialize, M: Serialize, L: Serialize> Recipe<D, M, L> {
    /// The recipe as TOML, defaults and overrides included: [`Recipe::parse`] reads it back.
    ///
    /// # Errors
    /// Fails if `data`, `model` or `loss` holds what TOML cannot express, such as a map with keys that are no text.
    pub fn to_toml(&self) -> Result<String, RecipeError> {
        toml::to_string(self).map_err(|error| RecipeError::Unwritable { reason: error.to_string() })
    }
}

/// Refuses a recipe for `problems` that only its data or its model show, each with its place.
pub(crate) fn refuse(
    text: &str,
    source: &str,
    overrides: &[(String, String)],
    problems: &[Problem],
) -> Result<(), RecipeError> {
    let mut document = Document::parse(text, source)?;
    overrides.iter().try_for_each(|(key, value)| document.set(key, value))?;
    RecipeError::of(document.range_errors(problems))
}

/// The `[init]` section of a recipe, whatever else it says; one that cannot be read names no weights.
pub(crate) fn init_in(text: &str, source: &str, overrides: &[(String, String)]) -> Result<InitConfig, RecipeError> {
    let mut document = Document::parse(text, source)?;
    let _ = overrides.iter().try_for_each(|(key, value)| document.set(key, value)); // told when the recipe is read
    Ok(document.optional("init").ok().flatten().unwrap_or_default())
}

/// The task that a recipe is for, whatever else it says.
pub(crate) fn task_in(text: &str, source: &str) -> Result<String, RecipeError> {
    Ok(Document::parse(text, source)?.required("task")?)
}

/// The keys of a recipe: alone, then by section. A section without a list accepts any key here.
fn known_keys<D: DeserializeOwned, M: DeserializeOwned, L: DeserializeOwned>() -> Vec<Known> {
    vec![
        ("task", None),
        ("seed", None),
        ("data", fields_of::<D>()),
        ("model", fields_of::<M>()),
        ("loss", fields_of::<L>()),
        ("init", fields_of::<InitConfig>()),
        ("training", fields_of::<TrainingConfig>()),
        ("optimizer", fields_of::<OptimizerConfig>()),
        ("schedule", fields_of::<ScheduleConfig>()),
    ]
}
