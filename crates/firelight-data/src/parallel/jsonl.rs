//! JSON lines: an object a line, with a text for the source and one for the target.

use std::path::Path;

use firelight_storage::{listed, shortened};
use serde_json::Value;

use super::{Pair, PairNames, read_lines};
use crate::DataError;

/// Reads the pairs of a file.
pub(super) fn pairs(path: &Path, keys: &PairNames) -> Result<Vec<Pair>, DataError> {
    let pair = |line: &Line| Ok(Pair { source: line.text(&keys.source)?, target: line.text(&keys.target)? });
    read(path, pair, || Pair::new("", ""))
}

/// Reads the sources of a file.
pub(super) fn sources(path: &Path, key: &str) -> Result<Vec<String>, DataError> {
    read(path, |line| line.text(key), String::new)
}

/// Takes something from each line, or `empty` for a line without anything.
fn read<T>(
    path: &Path,
    take: impl Fn(&Line) -> Result<T, DataError>,
    empty: impl Fn() -> T,
) -> Result<Vec<T>, DataError> {
    let lines = read_lines(path)?;
    let one = |(index, text): (usize, &String)| match text.trim().is_empty() {
        true => Ok(empty()),
        false => take(&Line::parse(path, index + 1, text)?),
    };
    lines.iter().enumerate().map(one).collect()
}

/// One line of a file, as JSON.
pub(crate) struct Line<'a> {
    path: &'a Path,
    number: usize,
    object: Value,
}

impl<'a> Line<'a> {
    pub(crate) fn parse(path: &'a Path, number: usize, text: &str) -> Result<Self, DataError> {
        let wrong = |reason| DataError::JsonLine { path: path.into(), line: number, reason };
        match serde_json::from_str(text) {
            Ok(object @ Value::Object(_)) => Ok(Self { path, number, object }),
            Ok(other) => Err(wrong(format!("it is {} and not an object", kind(&other)))),
            Err(error) => Err(wrong(format!("no JSON at column {}: {}", error.column(), without_place(&error)))),
        }
    }

    /// The text of a key, or of a JSON Pointer, which begins with `/`.
    pub(crate) fn text(&self, key: &str) -> Result<String, DataError> {
        match self.value(key)? {
            Value::String(text) => Ok(text.clone()),
            other => Err(self.no_text(key, other)),
        }
    }

    /// The text of a key, or the spelling of its number or truth value.
    pub(crate) fn spelling(&self, key: &str) -> Result<String, DataError> {
        self.spelt(key, self.value(key)?)
    }

    /// The spellings of a list with a separator between them; what is no list is spelt as it is.
    pub(crate) fn spellings(&self, key: &str, separator: &str) -> Result<String, DataError> {
        let Value::Array(items) = self.value(key)? else { return self.spelling(key) };
        let spelt = |item: &Value| match self.spelt(key, item)? {
            text if text.contains(separator) => Err(self.parted(key, &text, separator)),
            text => Ok(text),
        };
        Ok(items.iter().map(spelt).collect::<Result<Vec<_>, _>>()?.join(separator))
    }

    /// The texts of a list, or the spellings of its numbers and truth values.
    pub(crate) fn list(&self, key: &str) -> Result<Vec<String>, DataError> {
        let wrong = |reason| DataError::JsonLine { path: self.path.into(), line: self.number, reason };
        let Value::Array(items) = self.value(key)? else {
            return Err(wrong(format!("its `{key}` is {} and not a list", kind(self.value(key)?))));
        };
        let spelt = |item: &Value| match item {
            Value::String(text) => Ok(text.clone()),
            item @ (Value::Number(_) | Value::Bool(_)) => Ok(item.to_string()),
            other => Err(wrong(format!("its `{key}` has {} among its texts", kind(other)))),
        };
        items.iter().map(spelt).collect()
    }

    /// The whole numbers of a list, from 0.
    pub(crate) fn counts(&self, key: &str) -> Result<Vec<usize>, DataError> {
        let number = |item: &Value| item.as_u64().and_then(|number| usize::try_from(number).ok());
        let found = self.value(key)?.as_array().and_then(|items| items.iter().map(number).collect());
        let reason = || format!("its `{key}` is not a list of whole numbers from 0");
        found.ok_or_else(|| DataError::JsonLine { path: self.path.into(), line: self.number, reason: reason() })
    }

    /// Number of the line, from 1.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    fn value(&self, key: &str) -> Result<&Value, DataError> {
        let value = if key.starts_with('/') { self.object.pointer(key) } else { self.object.get(key) };
        value.ok_or_else(|| self.missing(key))
    }

    fn spelt(&self, key: &str, value: &Value) -> Result<String, DataError> {
        match value {
            Value::String(text) => Ok(text.clone()),
            value @ (Value::Number(_) | Value::Bool(_)) => Ok(value.to_string()),
            other => Err(self.no_text(key, other)),
        }
    }

    fn parted(&self, key: &str, label: &str, separator: &str) -> DataError {
        let label = shortened(label);
        let reason =
            format!("its `{key}` has `{label}`, which holds the separator `{separator}`: choose another separator");
        DataError::JsonLine { path: self.path.into(), line: self.number, reason }
    }

    fn no_text(&self, key: &str, found: &Value) -> DataError {
        let reason = format!("its `{key}` is {} and not a text", kind(found));
        DataError::JsonLine { path: self.path.into(), line: self.number, reason }
    }

    fn missing(&self, key: &str) -> DataError {
        let found = self.object.as_object().map(|object| listed(object.keys())).unwrap_or_default();
        DataError::MissingKey { path: self.path.into(), line: self.number, key: key.into(), found }
    }
}

/// What serde_json says, without its own count of lines, which is always 1 here.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(content: &str) -> Result<Vec<Pair>, DataError> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.jsonl");
        fs::write(&path, content).unwrap();
        pairs(&path, &PairNames::default())
    }

    const GOOD: &str = "{\"id\": 1, \"target\": \"b\\n\", \"source\": \"\\u00e9\"}\n";

    #[test]
    fn other_keys_are_left_alone() {
        let pairs = read(&format!("{GOOD}\n{GOOD}")).unwrap();
        assert_eq!(pairs, [Pair::new("\u{e9}", "b\n"), Pair::new("", ""), Pair::new("\u{e9}", "b\n")]);
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_line() {
        let message = |line: &str| {
            let error = read(&format!("{GOOD}{line}\n{GOOD}")).unwrap_err();
            assert!(error.is_user_error());
            error.to_string()
        };
        let missing = message(r#"{"src": "a", "target": "b"}"#);
        assert!(
            missing.contains("line 2 of `") && missing.contains("lacks the key `source`: its keys are src, target;")
        );
        assert!(message(r#"{"source": 3, "target": "b"}"#).contains("its `source` is a number and not a text"));
        assert!(message("[1]").contains("it is an array and not an object"));
        let cut = message(r#"{"source": "a", "#);
        assert!(cut.contains("no JSON at column 16: EOF while parsing"), "{cut}");
        let keys: String = (0..100_000).map(|key| format!("\"key {key}\": 0, ")).collect();
        let many = message(&format!("{{{keys}\"{}\": 0}}", "x".repeat(100_000)));
        assert!(many.contains("its keys are key 0, ") && many.len() < 300, "{many}");
    }
}
