//! An experiment whose trainings have ended: its files, what is printed of it, and the exit code.

use std::path::PathBuf;

use anyhow::{Result, bail};
use firelight::storage::write_atomic;
use firelight::training::experiments::{Grid, Journal, Point, Results};
use firelight::training::wrapped;
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

    /// Prints the table with `told` below, folded where the standard output is a terminal, or JSON with `more` beside the results.
    pub(super) fn print(&self, with_costs: bool, told: &str, more: &[(&str, Value)]) -> Result<()> {
        let text = match (self.json, output::columns()) {
            (true, _) => serde_json::to_string_pretty(&self.value(more))? + "\n",
            (false, None) => self.results().to_markdown(with_costs) + told,
            (false, Some(width)) => self.results().to_folded_markdown(with_costs, width) + &wrapped_lines(told, width),
        };
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

/// What stands below a table, of which lines that are no rows are broken between words.
fn wrapped_lines(text: &str, width: usize) -> String {
    let line = |line: &str| if line.starts_with('|') { line.to_string() } else { wrapped(line, width) };
    text.lines().map(|text| line(text) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_below_a_table_are_broken_and_rows_are_not() {
        let found = wrapped_lines("\nL = 1 + 2 / N^3 (N parameters)\n\n| a row | of cells |\n", 16);
        assert_eq!(found, "\nL = 1 + 2 / N^3\n  (N parameters)\n\n| a row | of cells |\n");
    }
}
