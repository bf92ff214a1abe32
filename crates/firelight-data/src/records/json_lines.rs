//! JSON lines: an object a line.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::Rows;
use super::lines::{Lines, RawLine};
use super::record::{Record, kind, unread};
use crate::DataError;

pub(super) fn rows(path: &Path, lines: Lines) -> Rows {
    let path: Arc<Path> = path.into();
    let filled = lines.filter(|line| !matches!(line, Ok(line) if line.content().trim().is_empty()));
    Box::new(filled.map(move |line| record(&path, &line?)))
}

fn record(path: &Arc<Path>, line: &RawLine) -> Result<Record, DataError> {
    let wrong = |reason: String| unread(path, line.number, &reason).into();
    match serde_json::from_str(line.content()) {
        Ok(object @ Value::Object(_)) => Ok(Record::of_object(path, line.number, object)),
        Ok(other) => Err(wrong(format!("it is {} and not a JSON object", kind(&other)))),
        Err(error) => Err(wrong(format!(
            "it is no JSON at column {}: {}; expected a JSON object a line",
            error.column(),
            without_place(&error)
        ))),
    }
}

/// What serde_json says, without its own count of lines, which is always 1 here.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}
