//! Labelled texts: the examples of a classifier or a regression, one or two texts each with the label that a file gives them.
//! Read from [records](crate::records), strictly: whatever is wrong is an error with its line, and every example knows its line,
//! so that it can be found again.
//!
//! ```
//! use firelight_data::labelled::{self, Columns, Labels, stratified_split};
//!
//! let home = tempfile::tempdir().unwrap();
//! let path = home.path().join("train.tsv");
//! std::fs::write(&path, "a fine film\tgood\ndull\tbad\nlovely\tgood\n").unwrap();
//!
//! let texts = labelled::read(&path, &Columns::default()).unwrap();
//! assert_eq!((texts[1].text.as_str(), texts[1].line), ("dull", 2));
//! let labels = Labels::of(&texts).unwrap();
//! assert_eq!(labels.names(), ["bad", "good"]);
//! let ids = labels.ids(&path, &texts).unwrap();
//! assert_eq!(ids, [1, 0, 1]);
//! let (training, validation) = stratified_split(&ids, 1, 7);
//! assert_eq!((training.len(), validation.len()), (2, 1));
//! ```

mod header;
mod kind;
mod labels;
mod split;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use kind::LabelKind;
pub use labels::{Labels, numbers};
pub use split::stratified_split;

use firelight_storage::{InputError, shortened};

use crate::DataError;
use crate::records::{Record, RecordFormat, Records};
use header::is_header;

/// A text, or a pair of texts, with its label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LabelledText {
    /// The text.
    pub text: String,
    /// The second text, where the columns name one.
    pub pair: Option<String>,
    /// The label as the file writes it; several of a JSON list with the separator between them.
    pub label: String,
    /// The line of the file on which the example begins, or of Parquet its row; from 1.
    pub line: usize,
}

/// Which columns of a table or a Parquet file, or keys of JSON lines, hold what.
///
/// A column of a table is named by the header or counted from 0. With a name the first line is the header. With numbers
/// alone it is one if its label occurs nowhere below and is either a usual name for labels, such as `label`, or no number
/// above numbers alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Columns {
    /// Columns of the text; several are joined by a space. Default: `["0"]`.
    pub text: Vec<String>,
    /// Column of the second text, for pairs of texts. Default: none.
    pub pair: Option<String>,
    /// Column of the label. Default: `"1"`.
    pub label: String,
}

impl Default for Columns {
    /// The first two columns: text and label.
    fn default() -> Self {
        Self { text: vec!["0".into()], pair: None, label: "1".into() }
    }
}

impl Columns {
    /// All columns, in no order that matters.
    fn all(&self) -> impl Iterator<Item = &str> {
        self.text.iter().chain(&self.pair).chain([&self.label]).map(String::as_str)
    }
}

/// Reads the labelled texts of a file, in their order. Empty lines are skipped, and so is a byte order mark.
///
/// # Errors
/// Fails if the file is missing, empty, not UTF-8 or of no known ending, or if a line lacks a column or a key, has more or
/// fewer columns than the first, a wrong quote or an empty label; always with the line.
pub fn read(path: &Path, columns: &Columns) -> Result<Vec<LabelledText>, DataError> {
    read_as(path, columns, &LabelKind::SingleLabel)
}

/// As [`read`], of labels of this kind: where there may be several, an empty label says that there is none.
///
/// # Errors
/// As [`read`], and if a label of a JSON list holds the separator.
pub fn read_as(path: &Path, columns: &Columns, kind: &LabelKind) -> Result<Vec<LabelledText>, DataError> {
    if columns.text.is_empty() {
        let advice = "name at least one column, such as [\"sentence\"] or [\"0\"]";
        return Err(InputError::new("columns.text is empty").advise(advice).into());
    }
    let (all, named) = (columns.all().collect::<Vec<_>>(), DataError::naming("data.columns"));
    let mut records = Records::open(path, &all).map_err(&named)?.collect::<Result<Vec<_>, _>>()?;
    if RecordFormat::of(path)?.is_table() && is_header(&records, columns, kind)? {
        records.remove(0);
    }
    let texts = records.iter().map(|record| labelled(record, columns, kind).map_err(&named));
    let texts = texts.collect::<Result<Vec<_>, _>>()?;
    let is_missing = |text: &&LabelledText| text.label.is_empty() && kind.separator().is_none();
    match texts.iter().find(is_missing) {
        Some(text) => {
            let problem = format!("has an empty label in the column `{}`", shortened(&columns.label));
            Err(InputError::at_line(path, text.line, problem).advise("give every example a label").into())
        }
        None if texts.is_empty() => {
            let advice = "give a file with a text and its label a line";
            Err(InputError::in_file(path, "holds no example").advise(advice).into())
        }
        None => Ok(texts),
    }
}

fn labelled(record: &Record, columns: &Columns, kind: &LabelKind) -> Result<LabelledText, DataError> {
    let texts = columns.text.iter().map(|column| record.text(column)).collect::<Result<Vec<_>, _>>()?;
    Ok(LabelledText {
        text: texts.join(" "),
        pair: columns.pair.as_ref().map(|column| record.text(column)).transpose()?,
        label: match kind.separator() {
            Some(separator) => record.spellings(&columns.label, separator)?,
            None => record.spelling(&columns.label)?,
        },
        line: record.line(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn columns(text: &[&str], pair: Option<&str>, label: &str) -> Columns {
        Columns {
            text: text.iter().map(|name| (*name).into()).collect(),
            pair: pair.map(Into::into),
            label: label.into(),
        }
    }

    fn read_as(name: &str, content: impl AsRef<[u8]>, columns: &Columns) -> Result<Vec<LabelledText>, DataError> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(name);
        fs::write(&path, content).unwrap();
        read(&path, columns)
    }

    fn example(text: &str, pair: Option<&str>, label: &str, line: usize) -> LabelledText {
        LabelledText { text: text.into(), pair: pair.map(Into::into), label: label.into(), line }
    }

    #[test]
    fn the_three_formats_hold_the_same_examples() {
        let named = columns(&["title", "body"], Some("other"), "class");
        let expected = |lines: [usize; 2]| {
            [example("A b", Some("x, y"), "7", lines[0]), example("\u{c9} ", Some(""), "no", lines[1])]
        };
        let tsv = "class\ttitle\tbody\tother\n7\tA\tb\tx, y\r\n\nno\t\u{c9}\t\t\n";
        assert_eq!(read_as("a.tsv", tsv, &named).unwrap(), expected([2, 4]));
        let csv = "class,title,body,other\r\n7,A,b,\"x, y\"\r\n\r\nno,\u{c9},,\r\n";
        assert_eq!(read_as("a.csv", csv, &named).unwrap(), expected([2, 4]));
        let json = "{\"class\": 7, \"title\": \"A\", \"body\": \"b\", \"other\": \"x, y\"}\n\n\
                    {\"class\": \"no\", \"title\": \"\u{c9}\", \"body\": \"\", \"other\": \"\"}";
        assert_eq!(read_as("a.JSONL", json, &named).unwrap(), expected([1, 3]));
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_place_and_the_way_out() {
        let numbers = Columns::default();
        let message = |name: &str, content: &[u8], columns: &Columns| {
            let error = read_as(name, content, columns).unwrap_err();
            assert!(error.is_user_error());
            error.to_string()
        };
        assert!(message("a.txt", b"a\tb", &numbers).contains("expected .tsv, .csv, .jsonl or .parquet"));
        assert!(message("a.tsv", b"", &numbers).contains("is empty"));
        assert!(message("a.csv", b"\n\n", &numbers).contains("no example"));
        assert!(message("a.csv", b"text,label\n", &numbers).contains("no example"));
        assert!(message("a.tsv", b"a\tb\nc\xff\td\n", &numbers).contains("line 2 of `"));
        assert!(message("a.tsv", b"a\tb\nc\t\n", &numbers).contains("line 2 of `"));
        assert!(
            message("a.jsonl", b"{\"text\": \"a\"}", &columns(&["text"], None, "label")).contains("the key `label`")
        );
        assert!(message("a.tsv", b"a\tb", &columns(&[], None, "1")).contains("columns.text"));
    }

    #[test]
    fn several_labels_may_be_none_and_a_first_line_of_several_numbers_is_no_header() {
        let several = |name: &str, content: &str, columns: &Columns| {
            let home = tempfile::tempdir().unwrap();
            fs::write(home.path().join(name), content).unwrap();
            let found = super::read_as(&home.path().join(name), columns, &LabelKind::multi_label());
            found.map(|texts| texts.into_iter().map(|text| text.label).collect::<Vec<_>>())
        };
        assert_eq!(several("a.tsv", "a\t1|2\nb\t\nc\t3\n", &Columns::default()).unwrap(), ["1|2", "", "3"]);
        assert_eq!(several("a.csv", "text,labels\na,x|y\nb,\n", &Columns::default()).unwrap(), ["x|y", ""]);
        let keys = columns(&["t"], None, "l");
        let lines = "{\"t\": \"a\", \"l\": [\"x\", 2]}\n{\"t\": \"b\", \"l\": []}\n{\"t\": \"c\", \"l\": \"x|y\"}\n";
        assert_eq!(several("a.jsonl", lines, &keys).unwrap(), ["x|2", "", "x|y"]);
        let error = several("a.jsonl", "{\"t\": \"a\", \"l\": [\"x|y\"]}\n", &keys).unwrap_err().to_string();
        assert!(error.contains("line 1 of `") && error.contains("`x|y`, which holds the separator `|`"), "{error}");
    }
}
