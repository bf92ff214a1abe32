//! The lines of a file, read as they are asked for, so that the file may be larger than the memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use firelight_storage::{InputError, StorageError};

use crate::DataError;
use crate::text::{BYTE_ORDER_MARK, empty, line_not_utf8, open_text};

/// No line is longer, in bytes: it is held in memory as a whole.
const LONGEST: u64 = 1 << 30;

/// A line of a file with its end.
pub(super) struct RawLine {
    /// Its number, from 1.
    pub(super) number: usize,
    pub(super) text: String,
}

impl RawLine {
    /// The line without its end: a line feed, with or without a carriage return before it.
    pub(super) fn content(&self) -> &str {
        let text = self.text.strip_suffix('\n').unwrap_or(&self.text);
        text.strip_suffix('\r').unwrap_or(text)
    }
}

/// The lines of a file.
pub(super) struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    /// Lines and bytes that were read.
    line: usize,
    offset: usize,
}

impl Lines {
    /// Opens a file, which must not be empty, behind its byte order mark.
    pub(super) fn open(path: &Path) -> Result<Self, DataError> {
        let mut lines = Self { path: path.into(), reader: BufReader::new(open_text(path)?), line: 0, offset: 0 };
        let mark = BYTE_ORDER_MARK.as_bytes();
        if lines.buffered()?.starts_with(mark) {
            lines.reader.consume(mark.len());
            lines.offset = mark.len();
        }
        if lines.buffered()?.is_empty() { Err(empty(path).into()) } else { Ok(lines) }
    }

    fn buffered(&mut self) -> Result<&[u8], DataError> {
        self.reader.fill_buf().map_err(unread(&self.path))
    }

    fn read(&mut self) -> Result<Option<RawLine>, DataError> {
        let mut bytes = Vec::new();
        let mut limited = self.reader.by_ref().take(LONGEST);
        let length = limited.read_until(b'\n', &mut bytes).map_err(unread(&self.path))?;
        if length == 0 {
            return Ok(None);
        }
        self.line += 1;
        if length as u64 == LONGEST {
            let problem = format!("is longer than {} MiB: is this a text?", LONGEST >> 20);
            return Err(InputError::at_line(&self.path, self.line, problem).into());
        }
        let text = String::from_utf8(bytes);
        let text = text.map_err(|error| line_not_utf8(&self.path, self.line, self.offset, &error))?;
        self.offset += length;
        Ok(Some(RawLine { number: self.line, text }))
    }
}

impl Iterator for Lines {
    type Item = Result<RawLine, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

fn unread(path: &Path) -> impl FnOnce(io::Error) -> DataError {
    move |error| StorageError::io("read", path)(error).into()
}
