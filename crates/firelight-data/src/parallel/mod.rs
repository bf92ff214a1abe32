//! Parallel text: sources with their targets, from two files of lines, a table, or JSON lines. Every file is read strictly,
//! with the line of everything that is wrong; nothing is left out, so that a pair can be found again by its line.

mod encoded;
mod filter;
mod jsonl;
mod lines;
mod report;
mod tsv;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use encoded::EncodedPair;
pub use filter::{DropReason, Dropped, LengthFilter};
pub(crate) use jsonl::Line as JsonLine;
pub(crate) use lines::read_utf8;
pub use lines::{lines_of, read_lines};
pub use report::PairReport;

use crate::DataError;

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

/// What the sides of a pair are called in a file: column names, or keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairNames {
    /// Name of the source.
    pub source: String,
    /// Name of the target.
    pub target: String,
}

impl Default for PairNames {
    /// `source` and `target`.
    fn default() -> Self {
        Self { source: "source".into(), target: "target".into() }
    }
}

/// Where pairs are read from. Lines end with a line feed, with or without a carriage return before it, and with nothing
/// else; a byte order mark at the beginning of a file is skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum PairFiles {
    /// Two files with a text a line, such as `train.de` and `train.en`: line `n` of one belongs to line `n` of the other.
    Lines {
        /// File of the sources.
        source: PathBuf,
        /// File of the targets.
        target: PathBuf,
    },
    /// A file of tab-separated values, without quotes.
    Tsv {
        /// The file.
        path: PathBuf,
        /// Names of the two columns in the first line. Without them no line is a header, and there are two columns: the
        /// source and the target.
        #[serde(default)]
        columns: Option<PairNames>,
    },
    /// A file with a JSON object a line.
    Jsonl {
        /// The file.
        path: PathBuf,
        /// Keys of the two texts, or JSON Pointers (RFC 6901) such as `/translation/de`. Default: `source` and `target`.
        #[serde(default)]
        keys: PairNames,
    },
}

impl PairFiles {
    /// Reads all pairs.
    ///
    /// An empty line is a pair of empty texts, and a pair with an empty side stays in its place: [`ParallelText::report`]
    /// counts them and [`LengthFilter`] drops them.
    ///
    /// # Errors
    /// Fails if a file is missing, empty or no UTF-8, if two files have different numbers of lines, or if a line has not
    /// the columns or keys that it should have.
    pub fn read(&self) -> Result<ParallelText, DataError> {
        let pairs = match self {
            Self::Lines { source, target } => lines::pairs(source, target)?,
            Self::Tsv { path, columns } => tsv::pairs(path, columns.as_ref())?,
            Self::Jsonl { path, keys } => jsonl::pairs(path, keys)?,
        };
        Ok(ParallelText { pairs })
    }

    /// Reads the sources alone, for a split that has no targets: of two files only one has to be there, of columns only
    /// the first or the one that is named, of keys only one.
    ///
    /// # Errors
    /// As [`read`](Self::read), for the sources.
    pub fn read_sources(&self) -> Result<Vec<String>, DataError> {
        match self {
            Self::Lines { source, .. } => read_lines(source),
            Self::Tsv { path, columns } => tsv::sources(path, columns.as_ref()),
            Self::Jsonl { path, keys } => jsonl::sources(path, &keys.source),
        }
    }
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
        fs::write(path("a.tsv"), "Der Hund.\tA dog.\n\tNothing.\nZwei\u{2028}Hunde.\t\n").unwrap();
        fs::write(path("b.tsv"), "id\ten\tde\n1\tA dog.\tDer Hund.\n2\tNothing.\t\n3\t\tZwei\u{2028}Hunde.").unwrap();
        let json = |de: &str, en: &str| format!("{{\"translation\": {{\"de\": {de:?}, \"en\": {en:?}}}}}\r\n");
        let lines = [json("Der Hund.", "A dog."), json("", "Nothing."), json("Zwei?Hunde.", "")].concat();
        fs::write(path("a.jsonl"), lines.replace('?', "\\u2028")).unwrap();
        let names = |source: &str, target: &str| PairNames { source: source.into(), target: target.into() };

        let expected =
            [Pair::new("Der Hund.", "A dog."), Pair::new("", "Nothing."), Pair::new("Zwei\u{2028}Hunde.", "")];
        for files in [
            PairFiles::Lines { source: path("a.de"), target: path("a.en") },
            PairFiles::Tsv { path: path("a.tsv"), columns: None },
            PairFiles::Tsv { path: path("b.tsv"), columns: Some(names("de", "en")) },
            PairFiles::Jsonl { path: path("a.jsonl"), keys: names("/translation/de", "/translation/en") },
        ] {
            let text = files.read().unwrap();
            assert_eq!(text.pairs, expected, "{files:?}");
            assert_eq!(files.read_sources().unwrap(), expected.clone().map(|pair| pair.source));
            assert_eq!(text.joined(), "Der Hund.\n\nZwei\u{2028}Hunde.\nA dog.\nNothing.\n\n");
        }
    }

    #[test]
    fn sources_need_no_targets() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        fs::write(path("a"), "one\ntwo\n").unwrap();
        fs::write(path("b"), "{\"source\": \"one\"}\n{\"source\": \"two\"}\n").unwrap();
        for files in [
            PairFiles::Lines { source: path("a"), target: path("none") },
            PairFiles::Tsv { path: path("a"), columns: None },
            PairFiles::Jsonl { path: path("b"), keys: PairNames::default() },
        ] {
            assert_eq!(files.read_sources().unwrap(), ["one", "two"]);
            assert!(files.read().unwrap_err().is_user_error());
        }
    }

    #[test]
    fn a_recipe_names_the_files() {
        let read = |json: &str| serde_json::from_str::<PairFiles>(json).unwrap();
        let lines = PairFiles::Lines { source: "a.de".into(), target: "a.en".into() };
        assert_eq!(read(r#"{"kind": "lines", "source": "a.de", "target": "a.en"}"#), lines);
        let table = PairFiles::Tsv { path: "a.tsv".into(), columns: None };
        assert_eq!(read(r#"{"kind": "tsv", "path": "a.tsv"}"#), table);
        let json = PairFiles::Jsonl { path: "a.jsonl".into(), keys: PairNames::default() };
        assert_eq!(read(r#"{"kind": "jsonl", "path": "a.jsonl"}"#), json);
        assert!(serde_json::from_str::<PairFiles>(r#"{"kind": "tsv", "path": "a", "keys": {}}"#).is_err());
    }
}
