//! Comma-separated values through the `csv` crate, a record at a time: the lines of a record are those until none of its quotes is
//! open, so that every record knows its line and a quote without a partner is found where it stands.

mod quotes;

use std::path::Path;
use std::sync::Arc;

use csv::ReaderBuilder;
use firelight_storage::InputError;

use super::lines::{Lines, RawLine};
use super::record::unread;
use super::table::{Cells, Row, Separator};
use crate::DataError;
use quotes::Quotes;

/// The values of a file of CSV.
pub(super) fn commas(path: &Path, lines: Lines) -> Cells {
    (Separator::Comma, Box::new(Stretches { path: path.into(), lines }.flat_map(values)))
}

/// Stretches of lines that begin and end outside quotes.
struct Stretches {
    path: Arc<Path>,
    lines: Lines,
}

impl Iterator for Stretches {
    type Item = Result<(Arc<Path>, RawLine), DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let is_empty = |line: &Result<RawLine, _>| matches!(line, Ok(line) if line.content().is_empty());
        let first = self.lines.by_ref().find(|line| !is_empty(line))?;
        Some(first.and_then(|first| Ok((Arc::clone(&self.path), self.closed(first)?))))
    }
}

impl Stretches {
    /// Adds lines to the first one until no quote is open.
    fn closed(&mut self, mut record: RawLine) -> Result<RawLine, DataError> {
        let wrong = |(line, reason)| {
            let advice = "put quotes around the whole value, and double those within it";
            InputError::at_line(&self.path, line, format!("has a quote that {reason}")).advise(advice)
        };
        let mut quotes = Quotes::from_line(record.number);
        quotes.read(&record.text).map_err(wrong)?;
        while quotes.are_open() {
            let Some(line) = self.lines.next() else { return Err(wrong(quotes.never_closed()).into()) };
            let line = line?;
            quotes.read(&line.text).map_err(wrong)?;
            record.text.push_str(&line.text);
        }
        Ok(record)
    }
}

/// The rows of a stretch: one, or more where carriage returns alone end its lines.
fn values(stretch: Result<(Arc<Path>, RawLine), DataError>) -> Vec<Result<Row, DataError>> {
    let (path, RawLine { number, text }) = match stretch {
        Ok(stretch) => stretch,
        Err(error) => return vec![Err(error)],
    };
    let mut reader =
        ReaderBuilder::new().has_headers(false).flexible(true).buffer_capacity(text.len()).from_reader(text.as_bytes());
    let row = |record: csv::Result<csv::StringRecord>| match record {
        Ok(record) => Ok(Row { line: number, values: record.iter().map(str::to_owned).collect() }),
        Err(error) => Err(unread(&path, number, &format!("it is no CSV: {error}")).into()),
    };
    reader.records().map(row).collect()
}
