//! Tagged sentences as records with two lists: `tokens` and `tags`.

use std::path::Path;

use super::TaggedSentence;
use firelight_storage::InputError;

use crate::DataError;
use crate::records::{Record, Records};

/// Reads the sentences of a file.
pub(super) fn read(path: &Path) -> Result<Vec<TaggedSentence>, DataError> {
    Records::open(path, &["tokens", "tags"])?.map(|record| sentence(path, &record?)).collect()
}

fn sentence(path: &Path, record: &Record) -> Result<TaggedSentence, DataError> {
    let (tokens, tags, line) = (record.list("tokens")?, record.list("tags")?, record.line());
    if tokens.len() != tags.len() {
        let problem = format!("has {} tokens and {} tags: give every token its tag", tokens.len(), tags.len());
        return Err(InputError::at_line(path, line, problem).into());
    }
    if tokens.is_empty() {
        return Err(InputError::at_line(path, line, "has a sentence with no token: leave the line out").into());
    }
    for (number, token) in (1..).zip(&tokens) {
        check_token(path, line, number, token)?;
    }
    Ok(TaggedSentence { tokens, tags, line })
}

/// Refuses a token without a character.
pub(super) fn check_token(path: &Path, line: usize, number: usize, token: &str) -> Result<(), DataError> {
    match token {
        "" => {
            let problem = format!("has an empty token: token {number} of its sentence is empty");
            Err(InputError::at_line(path, line, problem).advise("leave it and its tag out").into())
        }
        _ => Ok(()),
    }
}
