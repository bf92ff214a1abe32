//! Tab-separated values: a pair a line, with two columns, or with any number of columns that the first line names. There
//! are no quotes and no escapes, so that every text without tabs is a value.

use std::path::Path;

use firelight_storage::listed;

use super::{Pair, PairNames, read_lines};
use crate::DataError;

/// The lines of a table and the columns that are asked for.
struct Table<'a> {
    path: &'a Path,
    lines: Vec<String>,
    /// Number of the first line with values, from 1.
    first: usize,
}

impl<'a> Table<'a> {
    /// A table whose first line is its header.
    fn with_header(path: &'a Path) -> Result<(Self, Vec<String>), DataError> {
        let mut lines = read_lines(path)?;
        let header = lines.remove(0).split('\t').map(str::to_owned).collect();
        Ok((Self { path, lines, first: 2 }, header))
    }

    fn without_header(path: &'a Path) -> Result<Self, DataError> {
        Ok(Self { path, lines: read_lines(path)?, first: 1 })
    }

    /// What `take` makes of the values of each line, of which there must be `columns`. An empty line has empty values.
    fn rows<T>(&self, columns: usize, take: impl Fn(&[&str]) -> T) -> Result<Vec<T>, DataError> {
        let row = |(number, line): (usize, &String)| {
            let values: Vec<&str> = if line.is_empty() { vec![""; columns] } else { line.split('\t').collect() };
            match values.len() == columns {
                true => Ok(take(&values)),
                false => Err(DataError::Columns {
                    path: self.path.into(),
                    line: self.first + number,
                    expected: columns,
                    found: values.len(),
                    separator: "tabs",
                }),
            }
        };
        self.lines.iter().enumerate().map(row).collect()
    }

    fn column(&self, header: &[String], name: &str) -> Result<usize, DataError> {
        let missing =
            || DataError::MissingColumn { path: self.path.into(), column: name.into(), found: listed(header) };
        header.iter().position(|column| column == name).ok_or_else(missing)
    }
}

/// Reads the pairs of a table.
pub(super) fn pairs(path: &Path, columns: Option<&PairNames>) -> Result<Vec<Pair>, DataError> {
    let Some(names) = columns else {
        return Table::without_header(path)?.rows(2, |values| Pair::new(values[0], values[1]));
    };
    let (table, header) = Table::with_header(path)?;
    let (source, target) = (table.column(&header, &names.source)?, table.column(&header, &names.target)?);
    table.rows(header.len(), |values| Pair::new(values[source], values[target]))
}

/// Reads the sources of a table: the first column, or the one that is named.
pub(super) fn sources(path: &Path, columns: Option<&PairNames>) -> Result<Vec<String>, DataError> {
    let Some(names) = columns else {
        let first = |line: &String| line.split('\t').next().unwrap_or_default().to_owned();
        return Ok(Table::without_header(path)?.lines.iter().map(first).collect());
    };
    let (table, header) = Table::with_header(path)?;
    let source = table.column(&header, &names.source)?;
    table.rows(header.len(), |values| values[source].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(content: &str, columns: Option<&PairNames>) -> Result<Vec<Pair>, DataError> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.tsv");
        fs::write(&path, content).unwrap();
        pairs(&path, columns)
    }

    #[test]
    fn quotes_are_text_and_empty_lines_are_empty_pairs() {
        let found = read("\"a\tb\"\n\n c\t d\r\n", None).unwrap();
        assert_eq!(found, [Pair::new("\"a", "b\""), Pair::new("", ""), Pair::new(" c", " d")]);
    }

    #[test]
    fn a_line_with_other_columns_is_refused_by_its_number() {
        let error = read("a\tb\nc\n", None).unwrap_err();
        assert!(matches!(error, DataError::Columns { line: 2, expected: 2, found: 1, .. }), "{error}");
        let error = read("source\ttarget\tid\na\tb\t1\nc\td\te\tf\n", Some(&PairNames::default())).unwrap_err();
        assert!(matches!(error, DataError::Columns { line: 3, expected: 3, found: 4, .. }), "{error}");
    }

    #[test]
    fn a_missing_column_is_named_beside_those_that_are_there() {
        let error = read("src\ttarget\na\tb\n", Some(&PairNames::default())).unwrap_err();
        assert!(error.to_string().contains("no column `source`: its first line names src, target;"), "{error}");
        let long =
            read(&format!("{}\tb\n", "x".repeat(1_000_000)), Some(&PairNames::default())).unwrap_err().to_string();
        assert!(long.contains("xxx... and 1 more; give one of these") && long.len() < 300, "{long}");
    }
}
