//! Records: texts, numbers and lists by name, of which a file holds one set after another. One reader for tab-separated values,
//! CSV, JSON lines and Parquet, which labelled texts, parallel text, tagged sentences and questions are made of. A file is read
//! strictly and in one pass: a record is in memory only while it is looked at, and whatever is wrong is an error with its place.
//!
//! ```
//! use firelight_data::records::Records;
//!
//! let home = tempfile::tempdir().unwrap();
//! let path = home.path().join("films.tsv");
//! std::fs::write(&path, "title\tstars\nAlien\t5\nCube\t3\n").unwrap();
//!
//! let mut films = Records::open(&path, &["title", "stars"]).unwrap();
//! let alien = films.next().unwrap().unwrap();
//! assert_eq!((alien.text("title").unwrap().as_str(), alien.line()), ("Alien", 2));
//! assert_eq!(films.next().unwrap().unwrap().spelling("stars").unwrap(), "3");
//! assert!(films.next().is_none());
//! ```

#[cfg(feature = "csv")]
mod commas;
mod json_lines;
mod lines;
#[cfg(feature = "parquet")]
mod parquet;
mod record;
mod table;
#[cfg(test)]
mod tests;

use std::path::Path;

pub(crate) use record::ANOTHER_COLUMN;
pub use record::Record;
pub(crate) use table::unequal_columns;

use firelight_storage::InputError;

use crate::DataError;
use lines::Lines;

/// How a file of records is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordFormat {
    /// Tab-separated values without quotes: a record a line.
    Tsv,
    /// Comma-separated values of RFC 4180: values in quotes may hold commas, line feeds and doubled quotes. Read with the
    /// cargo feature `csv`.
    Csv,
    /// A JSON object a line. Columns that begin with `/` are JSON Pointers (RFC 6901), such as `/translation/de`.
    JsonLines,
    /// Apache Parquet, of which only the columns that are asked for are read; JSON Pointers lead into nested columns. Read
    /// with the cargo feature `parquet`.
    Parquet,
}

impl RecordFormat {
    /// The endings of all formats.
    pub const ENDINGS: [&str; 5] = ["tsv", "csv", "jsonl", "ndjson", "parquet"];

    /// The format that a file's ending names: `.tsv`, `.csv`, `.jsonl` and `.ndjson`, or `.parquet`.
    ///
    /// # Errors
    /// Fails if the ending is another one.
    pub fn of(path: &Path) -> Result<Self, DataError> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        match ending.to_ascii_lowercase().as_str() {
            "tsv" => Ok(Self::Tsv),
            "csv" => Ok(Self::Csv),
            "jsonl" | "ndjson" => Ok(Self::JsonLines),
            "parquet" => Ok(Self::Parquet),
            _ => {
                let expected = "expected .tsv, .csv, .jsonl or .parquet";
                let problem = format!("has an ending that tells no format of records: {expected}");
                Err(InputError::in_file(path, problem).into())
            }
        }
    }

    /// Whether columns are counted as well as named, and a header may be missing.
    pub fn is_table(self) -> bool {
        matches!(self, Self::Tsv | Self::Csv)
    }
}

/// Records in the order of their file.
type Rows = Box<dyn Iterator<Item = Result<Record, DataError>> + Send>;

/// The records of a file, in their order: an iterator that reads as it goes. Empty lines are skipped, and so is a byte order
/// mark. After an error there is no record more.
pub struct Records {
    rows: Rows,
    has_failed: bool,
}

impl Records {
    /// Opens a file for the columns that will be asked of its records.
    ///
    /// A column of a table is named by its header or counted from 0. If every one is counted, the table has no header and its
    /// first line is a record.
    ///
    /// # Errors
    /// Fails if the file is missing, empty or of no known ending, or if a table or a Parquet file lacks a column. Objects of
    /// JSON lines may have different keys: there a missing one is an error of its record.
    pub fn open(path: &Path, columns: &[&str]) -> Result<Self, DataError> {
        let rows = match RecordFormat::of(path)? {
            RecordFormat::Tsv => table::rows(path, table::tabs(Lines::open(path)?), columns)?,
            RecordFormat::Csv => commas_of(path, columns)?,
            RecordFormat::JsonLines => json_lines::rows(path, Lines::open(path)?),
            RecordFormat::Parquet => parquet_of(path, columns)?,
        };
        Ok(Self { rows, has_failed: false })
    }
}

impl Iterator for Records {
    type Item = Result<Record, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = if self.has_failed { None } else { self.rows.next() };
        self.has_failed |= matches!(next, Some(Err(_)));
        next
    }
}

#[cfg(feature = "csv")]
fn commas_of(path: &Path, columns: &[&str]) -> Result<Rows, DataError> {
    table::rows(path, commas::commas(path, Lines::open(path)?), columns)
}

#[cfg(not(feature = "csv"))]
fn commas_of(path: &Path, _: &[&str]) -> Result<Rows, DataError> {
    Err(not_built(path, "csv").into())
}

#[cfg(feature = "parquet")]
use parquet::rows as parquet_of;

#[cfg(not(feature = "parquet"))]
fn parquet_of(path: &Path, _: &[&str]) -> Result<Rows, DataError> {
    Err(not_built(path, "parquet").into())
}

/// A format that was left out when the program was built.
#[cfg(not(all(feature = "csv", feature = "parquet")))]
fn not_built(path: &Path, feature: &str) -> InputError {
    let problem = "is in a format that this program was built without";
    InputError::in_file(path, problem).advise(format!("build it with the cargo feature `{feature}`"))
}
