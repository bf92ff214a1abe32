//! The columns of the CoNLL tasks: a token a line, an empty line between sentences.

use std::path::Path;

use super::TaggedSentence;
use firelight_storage::InputError;

use crate::DataError;
use crate::parallel::read_lines;
use crate::records::unequal_columns;

/// The first column of the lines between documents.
const DOCUMENT: &str = "-DOCSTART-";

/// What separates columns, in words.
const SEPARATOR: &str = "tabs or blanks";

/// Reads the sentences of a file.
pub(super) fn read(path: &Path) -> Result<Vec<TaggedSentence>, DataError> {
    let (mut sentences, mut width, mut is_open) = (Vec::<TaggedSentence>::new(), None, false);
    for (line, text) in (1..).zip(read_lines(path)?) {
        if text.trim().is_empty() || text.starts_with(DOCUMENT) {
            is_open = false;
            continue;
        }
        let columns = columns(&text);
        check(path, line, columns.len(), *width.get_or_insert(columns.len()))?;
        if !is_open {
            sentences.push(TaggedSentence { tokens: Vec::new(), tags: Vec::new(), line });
            is_open = true;
        }
        if let (Some(sentence), [token, .., tag]) = (sentences.last_mut(), columns.as_slice()) {
            sentence.tokens.push((*token).to_owned());
            sentence.tags.push((*tag).to_owned());
            super::records::check_token(path, line, sentence.tokens.len(), token)?;
        }
    }
    Ok(sentences)
}

/// The values of a line: between tabs, where it has one, or between blanks.
fn columns(text: &str) -> Vec<&str> {
    match text.contains('\t') {
        true => text.split('\t').map(|column| column.trim_matches(' ')).collect(),
        false => text.split(' ').filter(|column| !column.is_empty()).collect(),
    }
}

/// Refuses a line without a tag, and one of another width than the first: it would give something else for its tag.
fn check(path: &Path, line: usize, found: usize, expected: usize) -> Result<(), DataError> {
    match found {
        1 => {
            let problem = format!("has one column: expected a token and its tag, separated by {SEPARATOR}");
            Err(InputError::at_line(path, line, problem).into())
        }
        _ if found == expected => Ok(()),
        _ => Err(unequal_columns(path, line, (found, expected), SEPARATOR).into()),
    }
}
