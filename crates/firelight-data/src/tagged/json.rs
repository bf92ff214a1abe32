//! JSON lines of tagged sentences, `{"tokens": [...], "tags": [...]}`.

use std::path::Path;

use super::TaggedSentence;
use crate::DataError;
use crate::parallel::{JsonLine, read_lines};

/// Reads the sentences of a file.
pub(super) fn read(path: &Path) -> Result<Vec<TaggedSentence>, DataError> {
    let lines = read_lines(path)?;
    let filled = (1..).zip(&lines).filter(|(_, text)| !text.trim().is_empty());
    filled.map(|(line, text)| sentence(path, &JsonLine::parse(path, line, text)?)).collect()
}

fn sentence(path: &Path, json: &JsonLine) -> Result<TaggedSentence, DataError> {
    let (tokens, tags, line) = (json.list("tokens")?, json.list("tags")?, json.number());
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
