//! A record: what is asked of it by column, whatever its file is written in.

use std::path::Path;
use std::sync::Arc;

use firelight_storage::{InputError, listed, shortened, shortened_reason};
use serde_json::Value;

use super::table::position;
use crate::DataError;

/// What to do about a column that is not there; its reader may know the key of a recipe that names it.
pub(crate) const ANOTHER_COLUMN: &str = "give one of these";

/// The values of a record. A column is named, in a table counted from 0 as well, and where there are objects also given by a
/// JSON Pointer, which begins with `/`.
pub struct Record {
    path: Arc<Path>,
    line: usize,
    values: Values,
}

enum Values {
    /// Texts in columns that have names, or none.
    Row { names: Arc<[String]>, texts: Vec<String> },
    /// An object.
    Object(Value),
}

/// A value as its file has it.
enum Found<'a> {
    Text(&'a str),
    Json(&'a Value),
}

impl Record {
    pub(super) fn of_row(path: &Arc<Path>, line: usize, names: &Arc<[String]>, texts: Vec<String>) -> Self {
        Self { path: Arc::clone(path), line, values: Values::Row { names: Arc::clone(names), texts } }
    }

    pub(super) fn of_object(path: &Arc<Path>, line: usize, object: Value) -> Self {
        Self { path: Arc::clone(path), line, values: Values::Object(object) }
    }

    /// The line on which the record begins, or of Parquet the number of its row; from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The text of a column.
    ///
    /// # Errors
    /// Fails if there is no such column, or it holds no text.
    pub fn text(&self, column: &str) -> Result<String, DataError> {
        match self.value(column)? {
            Found::Text(text) => Ok(text.to_owned()),
            Found::Json(Value::String(text)) => Ok(text.clone()),
            Found::Json(other) => Err(self.no_text(column, other)),
        }
    }

    /// The text of a column, or the spelling of its number or truth value.
    ///
    /// # Errors
    /// Fails if there is no such column, or it holds neither.
    pub fn spelling(&self, column: &str) -> Result<String, DataError> {
        match self.value(column)? {
            Found::Text(text) => Ok(text.to_owned()),
            Found::Json(value) => spelt(value).ok_or_else(|| self.no_text(column, value)),
        }
    }

    /// The spellings of a list with a separator between them; what is no list is spelt as it is.
    ///
    /// # Errors
    /// As [`spelling`](Self::spelling), of the column or an item of its list, and if an item holds the separator.
    pub fn spellings(&self, column: &str, separator: &str) -> Result<String, DataError> {
        let Found::Json(Value::Array(items)) = self.value(column)? else { return self.spelling(column) };
        let spell = |item: &Value| match spelt(item) {
            Some(text) if text.contains(separator) => Err(self.parted(column, &text, separator)),
            Some(text) => Ok(text),
            None => Err(self.no_text(column, item)),
        };
        Ok(items.iter().map(spell).collect::<Result<Vec<_>, _>>()?.join(separator))
    }

    /// The texts of a list, or the spellings of its numbers and truth values.
    ///
    /// # Errors
    /// Fails if there is no such column, or it holds no list of these.
    pub fn list(&self, column: &str) -> Result<Vec<String>, DataError> {
        let wrong = |found: &Value| self.wrong(format!("its `{column}` has {} among its texts", kind(found)));
        let spell = |item: &Value| spelt(item).ok_or_else(|| wrong(item));
        match self.value(column)? {
            Found::Json(Value::Array(items)) => items.iter().map(spell).collect(),
            Found::Json(other) => Err(self.wrong(format!("its `{column}` is {} and not a list", kind(other)))),
            Found::Text(_) => Err(self.wrong(format!("its `{column}` is a text and not a list"))),
        }
    }

    /// The whole numbers of a list, from 0.
    ///
    /// # Errors
    /// Fails if there is no such column, or it holds no list of these.
    pub fn counts(&self, column: &str) -> Result<Vec<usize>, DataError> {
        let number = |item: &Value| item.as_u64().and_then(|number| usize::try_from(number).ok());
        let found = match self.value(column)? {
            Found::Json(Value::Array(items)) => items.iter().map(number).collect(),
            _ => None,
        };
        found.ok_or_else(|| self.wrong(format!("its `{column}` is not a list of whole numbers from 0")))
    }

    fn value(&self, column: &str) -> Result<Found<'_>, DataError> {
        let found = match &self.values {
            Values::Row { names, texts } => {
                position(names, column).and_then(|at| texts.get(at)).map(|text| Found::Text(text))
            }
            Values::Object(object) if column.starts_with('/') => object.pointer(column).map(Found::Json),
            Values::Object(object) => object.get(column).map(Found::Json),
        };
        found.ok_or_else(|| self.missing(column))
    }

    fn missing(&self, column: &str) -> DataError {
        let found = match &self.values {
            Values::Row { names, .. } => listed(names.iter()),
            Values::Object(object) => object.as_object().map(|object| listed(object.keys())).unwrap_or_default(),
        };
        let problem = format!("lacks the key `{}`: its keys are {found}", shortened(column));
        InputError::at_line(&self.path, self.line, problem).advise(ANOTHER_COLUMN).into()
    }

    fn parted(&self, column: &str, label: &str, separator: &str) -> DataError {
        let label = shortened(label);
        self.wrong(format!(
            "its `{column}` has `{label}`, which holds the separator `{separator}`: choose another separator"
        ))
    }

    fn no_text(&self, column: &str, found: &Value) -> DataError {
        self.wrong(format!("its `{column}` is {} and not a text", kind(found)))
    }

    fn wrong(&self, reason: String) -> DataError {
        unread(&self.path, self.line, &reason).into()
    }
}

/// A record that cannot be read, or has no value of the kind that is asked for.
pub(super) fn unread(path: &Path, line: usize, reason: &str) -> InputError {
    InputError::at_line(path, line, format!("cannot be read: {}", shortened_reason(reason)))
}

/// A file of which no record has a column.
pub(super) fn missing_column(path: &Path, column: &str, found: &str) -> InputError {
    let problem = format!("has no column `{}`: its columns are {found}", shortened(column));
    InputError::in_file(path, problem).advise(ANOTHER_COLUMN)
}

fn spelt(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// What a value is, in words.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
