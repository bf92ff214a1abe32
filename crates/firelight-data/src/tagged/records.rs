//! Tagged sentences as records with two lists: `tokens` and `tags`.

use std::path::Path;

use super::TaggedSentence;
use crate::DataError;
use crate::records::{Record, Records};

/// Reads the sentences of a file.
pub(super) fn read(path: &Path) -> Result<Vec<TaggedSentence>, DataError> {
    Records::open(path, &["tokens", "tags"])?.map(|record| sentence(path, &record?)).collect()
}

fn sentence(path: &Path, record: &Record) -> Result<TaggedSentence, DataError> {
    let (tokens, tags, line) = (record.list("tokens")?, record.list("tags")?, record.line());
    if tokens.len() != tags.len() {
        let reason = format!("has {} tokens and {} tags: give every token its tag", tokens.len(), tags.len());
        return Err(DataError::TaggedLine { path: path.into(), line, reason });
    }
    if tokens.is_empty() {
        let reason = "has a sentence with no token: leave the line out".into();
        return Err(DataError::TaggedLine { path: path.into(), line, reason });
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
            let reason =
                format!("has an empty token: token {number} of its sentence is empty; leave it and its tag out");
            Err(DataError::TaggedLine { path: path.into(), line, reason })
        }
        _ => Ok(()),
    }
}
