//! Tables of labelled texts: tab-separated values as lines without quotes, comma-separated ones through the `csv` crate.

use std::path::Path;

use csv::ReaderBuilder;
use firelight_storage::listed;

use super::{Columns, LabelKind, LabelledText, quotes};
use crate::DataError;
use crate::parallel::{read_lines, read_utf8};

/// What columns of labels are usually called. Such a first line is a header even where labels are no numbers.
const USUAL_NAMES: [&str; 9] =
    ["label", "labels", "class", "class index", "category", "target", "sentiment", "score", "intent"];

/// What stands between two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Separator {
    Tab,
    Comma,
}

impl Separator {
    /// The separators of a line, in words.
    fn name(self) -> &'static str {
        match self {
            Self::Tab => "tabs",
            Self::Comma => "commas",
        }
    }
}

/// The values of a line that is not empty.
struct Row {
    line: usize,
    values: Vec<String>,
}

/// A table with as many values in each row.
struct Table<'a> {
    path: &'a Path,
    separator: Separator,
    rows: Vec<Row>,
}

/// Reads the labelled texts of a table.
pub(super) fn read(
    path: &Path,
    separator: Separator,
    (columns, kind): (&Columns, &LabelKind),
) -> Result<Vec<LabelledText>, DataError> {
    let rows = match separator {
        Separator::Tab => tabs(path)?,
        Separator::Comma => commas(path)?,
    };
    let mut table = Table { path, separator, rows };
    if table.rows.is_empty() {
        return Ok(Vec::new());
    }
    table.check_widths()?;
    let header = table.take_header(columns, kind)?;
    table.texts(columns, &header)
}

fn tabs(path: &Path) -> Result<Vec<Row>, DataError> {
    let row =
        |(index, text): (usize, String)| Row { line: index + 1, values: text.split('\t').map(str::to_owned).collect() };
    let lines = read_lines(path)?.into_iter().enumerate();
    Ok(lines.filter(|(_, text)| !text.is_empty()).map(row).collect())
}

fn commas(path: &Path) -> Result<Vec<Row>, DataError> {
    let text = read_utf8(path)?;
    quotes::check(&text).map_err(|(line, reason)| DataError::Quotes { path: path.into(), line, reason })?;
    let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let row = |record: csv::Result<csv::StringRecord>| {
        let record = record.map_err(|error| DataError::Csv { path: path.into(), reason: error.to_string() })?;
        Ok(Row { line: line_of(&record, &text), values: record.iter().map(str::to_owned).collect() })
    };
    reader.records().map(row).collect()
}

/// The line of a record, from 1. The reader counts the empty lines in front of it as its own.
fn line_of(record: &csv::StringRecord, text: &str) -> usize {
    let Some(position) = record.position() else { return 1 };
    let ends = text.as_bytes()[position.byte() as usize..].iter().take_while(|byte| matches!(byte, b'\n' | b'\r'));
    position.line() as usize + ends.filter(|byte| **byte == b'\n').count()
}

impl Table<'_> {
    fn check_widths(&self) -> Result<(), DataError> {
        let Some(first) = self.rows.first() else { return Ok(()) };
        let (path, separator, expected) = (self.path.into(), self.separator.name(), first.values.len());
        if expected == 1 {
            return Err(DataError::OneColumn { path, line: first.line, separator });
        }
        match self.rows.iter().find(|row| row.values.len() != expected) {
            Some(Row { line, values }) => {
                Err(DataError::Columns { path, line: *line, expected, found: values.len(), separator })
            }
            None => Ok(()),
        }
    }

    /// Removes the header, if there is one, and gives its names.
    fn take_header(&mut self, columns: &Columns, kind: &LabelKind) -> Result<Vec<String>, DataError> {
        let is_named = columns.all().any(|column| number(column).is_none());
        match is_named || self.has_header(self.column(&columns.label, &[])?, kind) {
            true => Ok(self.rows.remove(0).values),
            false => Ok(Vec::new()),
        }
    }

    /// Whether the first row is no example; the documentation of [`Columns`] has the rule.
    fn has_header(&self, label: usize, kind: &LabelKind) -> bool {
        let mut labels = self.rows.iter().map(|row| row.values[label].as_str());
        let Some(first) = labels.next() else { return false };
        let is_number = |label: &str| kind.parts(label).iter().all(|part| part.parse::<f64>().is_ok());
        let below: Vec<&str> = labels.collect();
        let above_numbers = !below.is_empty() && below.iter().all(|label| is_number(label)) && !is_number(first);
        !below.contains(&first) && (above_numbers || USUAL_NAMES.contains(&first.to_lowercase().as_str()))
    }

    /// The number of a column, which is named by the header or counted from 0.
    fn column(&self, column: &str, header: &[String]) -> Result<usize, DataError> {
        let width = self.rows.first().map_or(header.len(), |row| row.values.len());
        match header.iter().position(|name| name == column).or(number(column)) {
            Some(number) if number < width => Ok(number),
            Some(number) => Err(DataError::ColumnNumber { path: self.path.into(), number, columns: width }),
            None => {
                Err(DataError::MissingColumn { path: self.path.into(), column: column.into(), found: listed(header) })
            }
        }
    }

    fn texts(self, columns: &Columns, header: &[String]) -> Result<Vec<LabelledText>, DataError> {
        let column = |name: &String| self.column(name, header);
        let text = columns.text.iter().map(column).collect::<Result<Vec<_>, _>>()?;
        let (pair, label) = (columns.pair.as_ref().map(column).transpose()?, column(&columns.label)?);
        let of_row = |row: &Row| LabelledText {
            text: text.iter().map(|&column| row.values[column].as_str()).collect::<Vec<_>>().join(" "),
            pair: pair.map(|column| row.values[column].clone()),
            label: row.values[label].clone(),
            line: row.line,
        };
        Ok(self.rows.iter().map(of_row).collect())
    }
}

/// The number that counts a column; none for a name.
fn number(column: &str) -> Option<usize> {
    column.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(content: &str, separator: Separator, text: &str, label: &str) -> Result<Vec<LabelledText>, DataError> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a");
        fs::write(&path, content).unwrap();
        let columns = Columns { text: vec![text.into()], pair: None, label: label.into() };
        super::read(&path, separator, (&columns, &LabelKind::SingleLabel))
    }

    fn texts(content: &str, text: &str, label: &str) -> Vec<String> {
        read(content, Separator::Comma, text, label).unwrap().into_iter().map(|found| found.text).collect()
    }

    #[test]
    fn a_first_line_is_a_header_where_its_label_is_none() {
        assert_eq!(texts("a,1\nb,0\n", "0", "1"), ["a", "b"]);
        assert_eq!(texts("sentence,gold\na,1\nb,0.5\n", "0", "1"), ["a", "b"], "no number above numbers");
        assert_eq!(texts("sentence,Label\na,yes\nb,no\n", "0", "1"), ["a", "b"], "a usual name");
        assert_eq!(texts("a,good\nb,bad\n", "0", "1"), ["a", "b"], "an unusual name");
        assert_eq!(texts("a,target\nb,other\nc,target\n", "0", "1"), ["a", "b", "c"], "a usual name that occurs again");
        assert_eq!(texts("x,y\na,1\nb,0\n", "x", "y"), ["a", "b"], "columns by name");
        assert_eq!(texts("x,y\na,1\nb,0\n", "0", "y"), ["a", "b"], "one column by name");
    }

    #[test]
    fn wrong_columns_are_refused_with_the_line_and_those_that_there_are() {
        let message = |content: &str, separator, text: &str, label: &str| {
            read(content, separator, text, label).unwrap_err().to_string()
        };
        let one = message("only a text\nanother\n", Separator::Tab, "0", "1");
        assert!(one.starts_with("line 1 of `") && one.contains("one column"), "{one}");
        assert!(one.contains("separated by tabs"), "{one}");
        let unequal = message("a,1\n\nb,0,c\n", Separator::Comma, "0", "1");
        assert!(
            unequal.starts_with("line 3 of `") && unequal.contains("has 3 columns separated by commas"),
            "{unequal}"
        );
        assert!(message("x,y\na,1\n", Separator::Comma, "text", "y").contains("its first line names x, y;"));
        let text = "\u{e9}".repeat(1_000_000);
        let long = message(&format!("y,{text}\na,1\n"), Separator::Comma, "text", "y");
        assert!(long.contains(&format!("names y, {}...;", &text[..160])), "{long}");
        assert!(message("a,1\nb,2\n", Separator::Comma, "2", "1").contains("no column 2"));
        assert!(message("a,1\n\"b,0\n", Separator::Comma, "0", "1").contains("the quote on line 2 of `"));
    }

    #[test]
    fn lines_of_csv_are_counted_through_line_feeds_in_quotes() {
        let rows = read("\u{feff}a,1\n\"b\nb\",0\r\n\r\n\nc,1", Separator::Comma, "0", "1").unwrap();
        let found: Vec<_> = rows.iter().map(|row| (row.text.as_str(), row.line)).collect();
        assert_eq!(found, [("a", 1), ("b\nb", 2), ("c", 6)]);
    }
}
