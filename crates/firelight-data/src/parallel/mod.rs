//! Parallel text: sources with their targets, from two files of lines or from [records](crate::records). Every file is read
//! strictly, with the line of everything that is wrong.

mod encoded;
mod filter;
mod lines;
mod report;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use encoded::EncodedPair;
pub use filter::{DropReason, Dropped, LengthFilter};
pub use lines::{lines_of, read_lines};
pub use report::PairReport;

use crate::DataError;
use crate::records::{Record, RecordFormat, Records};

/// A text and what a model is to make of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// What the model reads.
    pub source: String,
    /// What it writes.
    pub target: String,
}

impl Pair {
    /// A pair of two texts.
    pub fn new(source: impl Into<String>, target: impl Into<String>) -> Self {
        Self { source: source.into(), target: target.into() }
    }
}

/// The columns of a file of records that hold the sides of a pair: names, or numbers from 0 in a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairColumns {
    /// Column of the source.
    pub source: String,
    /// Column of the target.
    pub target: String,
}

impl PairColumns {
    /// What the columns are where nobody names them: the first two of a table, without a header, else `source` and `target`.
    ///
    /// # Errors
    /// Fails if the ending of the file names no format of records.
    pub fn usual(path: &Path) -> Result<Self, DataError> {
        let [source, target] = if RecordFormat::of(path)?.is_table() { ["0", "1"] } else { ["source", "target"] };
        Ok(Self { source: source.into(), target: target.into() })
    }
}

/// Where pairs are read from. Lines end with a line feed, with or without a carriage return before it, and with nothing
/// else; a byte order mark at the beginning of a file is skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PairFiles {
    /// Two files with a text a line, such as `train.de` and `train.en`: line `n` of one belongs to line `n` of the other.
    Lines {
        /// File of the sources.
        source: PathBuf,
        /// File of the targets.
        target: PathBuf,
    },
    /// A file of records.
    Records {
        /// The file.
        path: PathBuf,
        /// Its columns.
        columns: PairColumns,
    },
}

impl PairFiles {
    /// Reads all pairs. Empty lines are pairs of empty texts in files of lines, and none in files of records.
    ///
    /// A pair with an empty side stays in its place: [`ParallelText::report`] counts them and [`LengthFilter`] drops them.
    ///
    /// # Errors
    /// Fails if a file is missing, empty or no UTF-8, if two files have different numbers of lines, or if a record has not the
    /// columns that it should have.
    pub fn read(&self) -> Result<ParallelText, DataError> {
        let pairs = match self {
            Self::Lines { source, target } => lines::pairs(source, target)?,
            Self::Records { path, columns } => {
                let records = Records::open(path, &[&columns.source, &columns.target])?;
                records.map(|record| pair(&record?, columns)).collect::<Result<_, _>>()?
            }
        };
        Ok(ParallelText { pairs })
    }
}

fn pair(record: &Record, columns: &PairColumns) -> Result<Pair, DataError> {
    Ok(Pair { source: record.text(&columns.source)?, target: record.text(&columns.target)? })
}

/// Pairs in the order of their lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParallelText {
    /// The pairs.
    pub pairs: Vec<Pair>,
}

impl ParallelText {
    /// How many pairs there are, and how many with an empty side.
    pub fn report(&self) -> PairReport {
        PairReport::of(&self.pairs)
    }

    /// All sources and then all targets, one a line: what a tokenizer for both sides is trained on.
    pub fn joined(&self) -> String {
        let sides = self.pairs.iter().map(|pair| &pair.source).chain(self.pairs.iter().map(|pair| &pair.target));
        sides.flat_map(|side| [side.as_str(), "\n"]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn one_text_comes_from_every_format() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        fs::write(path("a.de"), "Der Hund.\r\n\r\nZwei\u{2028}Hunde.\r\n").unwrap();
        fs::write(path("a.en"), "\u{feff}A dog.\nNothing.\n\n").unwrap();
        fs::write(path("a.tsv"), "Der Hund.\tA dog.\n\tNothing.\n\nZwei\u{2028}Hunde.\t\n").unwrap();
        fs::write(path("b.tsv"), "id\ten\tde\n1\tA dog.\tDer Hund.\n2\tNothing.\t\n3\t\tZwei\u{2028}Hunde.").unwrap();
        fs::write(path("a.csv"), "en,de\nA dog.,\"Der Hund.\"\nNothing.,\n,Zwei\u{2028}Hunde.\n").unwrap();
        let json = |de: &str, en: &str| format!("{{\"translation\": {{\"de\": {de:?}, \"en\": {en:?}}}}}\r\n");
        let lines = [json("Der Hund.", "A dog."), json("", "Nothing."), json("Zwei?Hunde.", "")].concat();
        fs::write(path("a.jsonl"), lines.replace('?', "\\u2028")).unwrap();
        let records = |name: &str, source: &str, target: &str| PairFiles::Records {
            path: path(name),
            columns: PairColumns { source: source.into(), target: target.into() },
        };
        let usual = PairFiles::Records { path: path("a.tsv"), columns: PairColumns::usual(&path("a.tsv")).unwrap() };

        let expected =
            [Pair::new("Der Hund.", "A dog."), Pair::new("", "Nothing."), Pair::new("Zwei\u{2028}Hunde.", "")];
        for files in [
            PairFiles::Lines { source: path("a.de"), target: path("a.en") },
            usual,
            records("b.tsv", "de", "en"),
            records("a.csv", "de", "en"),
            records("a.jsonl", "/translation/de", "/translation/en"),
        ] {
            let text = files.read().unwrap();
            assert_eq!(text.pairs, expected, "{files:?}");
            assert_eq!(text.joined(), "Der Hund.\n\nZwei\u{2028}Hunde.\nA dog.\nNothing.\n\n");
        }
    }

    #[test]
    fn columns_have_usual_names() {
        let usual = |name: &str| PairColumns::usual(Path::new(name)).map(|found| [found.source, found.target]);
        assert_eq!(usual("a.csv").unwrap(), ["0", "1"]);
        assert_eq!(usual("a.parquet").unwrap(), ["source", "target"]);
        assert!(usual("a.txt").unwrap_err().is_user_error());
    }
}
