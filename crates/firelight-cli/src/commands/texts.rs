//! Where commands read texts from: one of the command line, or the lines of a file or of the standard input, as they come.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};

use crate::failure::Mistake;

/// Lines that are read before the first of them is answered: enough that texts of similar length stand together.
const LINES: usize = 1024;

/// What some programs put in front of a UTF-8 file; no part of its text.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Texts that are read as they are needed.
pub(super) enum Texts {
    /// One, whatever lines it has.
    One(Option<String>),
    /// The lines of a file or of the standard input, and how many were read.
    Lines(Box<dyn BufRead + Send>, usize),
}

impl Texts {
    /// The text, or the lines of the file, or those of the standard input.
    pub(super) fn new(text: Option<&str>, file: Option<&Path>) -> Result<Self> {
        Ok(match (text, file) {
            (Some(text), _) => Self::One(Some(text.to_string())),
            (None, Some(path)) => {
                let missing = |error| Mistake(format!("cannot read `{}`: {error}", path.display()));
                Self::Lines(Box::new(BufReader::new(File::open(path).map_err(missing)?)), 0)
            }
            (None, None) => Self::Lines(Box::new(BufReader::new(io::stdin())), 0),
        })
    }

    /// The next texts, behind how many others; none at the end.
    pub(super) fn next_lines(&mut self) -> Result<Option<(usize, Vec<String>)>> {
        match self {
            Self::One(text) => Ok(text.take().map(|text| (0, vec![text]))),
            Self::Lines(reader, done) => {
                let before = *done;
                let mut lines = Vec::new();
                while lines.len() < LINES {
                    let Some(line) = next_line(reader, *done + 1)? else { break };
                    lines.push(line);
                    *done += 1;
                }
                Ok((!lines.is_empty()).then_some((before, lines)))
            }
        }
    }
}

/// A line without its end, the first without a byte order mark; none behind the last.
fn next_line(reader: &mut impl BufRead, number: usize) -> Result<Option<String>> {
    let mut bytes = Vec::new();
    if reader.read_until(b'\n', &mut bytes).context("cannot read the texts")? == 0 {
        return Ok(None);
    }
    let wrong = |_| Mistake(format!("line {number} is not UTF-8: convert the texts to UTF-8"));
    let line = String::from_utf8(bytes).map_err(wrong)?;
    let begin = if number == 1 { BYTE_ORDER_MARK } else { "" };
    Ok(Some(line.strip_prefix(begin).unwrap_or(&line).trim_end_matches(['\n', '\r']).to_string()))
}
