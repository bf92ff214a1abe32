//! Tables: rows of as many values each, which a header names or which are counted from 0.

use std::path::Path;
use std::sync::Arc;

use firelight_storage::{InputError, listed};

use super::Rows;
use super::lines::{Lines, RawLine};
use super::record::{Record, missing_column};
use crate::DataError;

/// What stands between two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Separator {
    Tab,
    #[cfg(feature = "csv")]
    Comma,
}

impl Separator {
    /// The separators of a line, in words.
    fn name(self) -> &'static str {
        match self {
            Self::Tab => "tabs",
            #[cfg(feature = "csv")]
            Self::Comma => "commas",
        }
    }
}

/// The values of a line that is not empty.
pub(super) struct Row {
    pub(super) line: usize,
    pub(super) values: Vec<String>,
}

/// The rows of a table as its file has them, and what separates their values.
pub(super) type Cells = (Separator, Box<dyn Iterator<Item = Result<Row, DataError>> + Send>);

/// The values of lines with tabs between them.
pub(super) fn tabs(lines: Lines) -> Cells {
    let values = |line: &RawLine| line.content().split('\t').map(str::to_owned).collect();
    let row = move |line: RawLine| Row { line: line.number, values: values(&line) };
    let filled = lines.filter(|line| !matches!(line, Ok(line) if line.content().is_empty()));
    (Separator::Tab, Box::new(filled.map(move |line| line.map(row))))
}

/// What is the same for all rows.
struct Shape {
    path: Arc<Path>,
    separator: Separator,
    width: usize,
    /// The names of the columns; none without a header.
    names: Arc<[String]>,
}

/// The records of a table that has these columns.
pub(super) fn rows(path: &Path, (separator, mut cells): Cells, columns: &[&str]) -> Result<Rows, DataError> {
    let Some(first) = cells.next().transpose()? else { return Ok(Box::new(std::iter::empty())) };
    let (line, width) = (first.line, first.values.len());
    let is_named = columns.iter().any(|column| number(column).is_none());
    let (names, first) = if is_named { (first.values, None) } else { (Vec::new(), Some(first)) };
    let shape = Shape { path: path.into(), separator, width, names: names.into() };
    shape.check(columns, line)?;
    Ok(Box::new(first.map(Ok).into_iter().chain(cells).map(move |row| shape.record(row?))))
}

impl Shape {
    /// Refuses columns that are not there.
    fn check(&self, columns: &[&str], line: usize) -> Result<(), DataError> {
        let separator = self.separator.name();
        if self.width == 1 && columns.len() > 1 {
            let problem = format!("has one column: expected {} separated by {separator}", columns.len());
            let advice =
                "give a table with all of them, or the ending that fits how the file is written (.tsv, .csv or .jsonl)";
            return Err(InputError::at_line(&self.path, line, problem).advise(advice).into());
        }
        columns.iter().try_for_each(|column| match position(&self.names, column) {
            Some(number) if number < self.width => Ok(()),
            Some(number) => Err(self.no_number(number).into()),
            None => Err(missing_column(&self.path, column, &listed(self.names.iter())).into()),
        })
    }

    fn no_number(&self, number: usize) -> InputError {
        let problem = format!("has no column {number}: its lines have {} columns, numbered from 0", self.width);
        InputError::in_file(&self.path, problem).advise("give one of these numbers, or a name of its header")
    }

    fn record(&self, row: Row) -> Result<Record, DataError> {
        match row.values.len() == self.width {
            true => Ok(Record::of_row(&self.path, row.line, &self.names, row.values)),
            false => {
                let widths = (row.values.len(), self.width);
                Err(unequal_columns(&self.path, row.line, widths, self.separator.name()).into())
            }
        }
    }
}

/// A line with more or fewer columns than the others.
pub(crate) fn unequal_columns(
    path: &Path,
    line: usize,
    (found, expected): (usize, usize),
    separator: &str,
) -> InputError {
    InputError::at_line(path, line, format!("has {found} columns separated by {separator}: expected {expected}"))
}

/// Where a column stands, which is named by the header or counted from 0.
pub(super) fn position(names: &[String], column: &str) -> Option<usize> {
    names.iter().position(|name| name == column).or_else(|| number(column))
}

/// The number that counts a column; none for a name.
fn number(column: &str) -> Option<usize> {
    column.parse().ok()
}
