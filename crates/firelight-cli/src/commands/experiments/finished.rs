//! An experiment whose trainings have ended: its files, what is printed of it, and the exit code.

use std::path::PathBuf;

use anyhow::{Result, bail};
use firelight::storage::write_atomic;
use firelight::training::experiments::{Grid, Journal, Point, Results};
use serde_json::{Value, json};

use crate::output;

/// An experiment that trained all it could.
pub(super) struct Finished {
    pub(super) grid: Grid,
    pub(super) points: Vec<Point>,
    pub(super) journal: Journal,
    pub(super) metric: String,
    pub(super) folder: PathBuf,
    pub(super) json: bool,
}

impl Finished {
    pub(super) fn results(&self) -> Results<'_> {
        let Self { grid, points, journal, metric, .. } = self;
        Results { grid, points, outcomes: journal.outcomes(), metric }
    }

    /// Writes the records of all trainings, also of those that wait.
    pub(super) fn write_records(&self) -> Result<()> {
        self.write("results.csv", &self.results().to_csv())
    }

    pub(super) fn write_picture(&self, svg: &str) -> Result<()> {
        self.write("results.svg", svg)
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<()> {
        Ok(write_atomic(self.folder.join(name), text)?)
    }

    /// Prints the table, or JSON with `more` beside the results.
    pub(super) fn print(&self, table: &str, more: &[(&str, Value)]) -> Result<()> {
        let text = if self.json { serde_json::to_string_pretty(&self.value(more))? + "\n" } else { table.to_string() };
        output::print(&text)?;
        output::note(format_args!("records: {}", self.folder.join("results.csv").display()));
        Ok(())
    }

    fn value(&self, more: &[(&str, Value)]) -> Value {
        let results = self.results();
        let point = |point: &Point| {
            let outcome = self.journal.outcomes().get(&point.name);
            json!({ "name": point.name, "choices": point.choices, "seed": point.seed, "outcome": outcome })
        };
        let points: Vec<Value> = self.points.iter().map(point).collect();
        let best = results.best().map(|best| best.name);
        let mut value = json!({
            "metric": self.metric,
            "points": points,
            "combinations": results.summaries(),
            "best": best,
        });
        for (name, more) in more {
            value[*name] = more.clone();
        }
        value
    }

    /// Ends the command: with an error where a training failed.
    pub(super) fn end(&self) -> Result<()> {
        let results = self.results();
        let failures = results.failures();
        let Some((name, message)) = failures.first() else { return Ok(()) };
        let (failed, all) = (failures.len(), self.points.len());
        bail!(
            "{failed} of {all} trainings failed, the first of them `{name}`: {message}; the same command tries them again"
        )
    }
}
