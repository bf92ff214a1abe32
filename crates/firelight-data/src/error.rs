//! Everything that can be wrong with a text, a tokenizer or a token file, in words that name the place and the way out.
//! Every function of this crate returns it; the command line turns it into one line and an exit code.

use firelight_storage::{InputError, StorageError, TaskError, shortened_reason};

#[cfg(feature = "images")]
use crate::ImageError;
use crate::records::ANOTHER_COLUMN;

/// An error of reading text or turning it into tokens.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A file could not be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Images could not be read.
    #[cfg(feature = "images")]
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Something that was given does not fit, and there is nothing to do but to tell it.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A character that the vocabulary lacks.
    #[error(
        "the character {character:?} at position {position} (line {line}, column {column}) is not in the vocabulary of \
         {vocab_size} characters; remove it, or train with a text that has it or with the `byte` tokenizer"
    )]
    UnknownCharacter {
        /// The character.
        character: char,
        /// Its position in characters, from 0.
        position: usize,
        /// Its line, from 1.
        line: usize,
        /// Its column in characters, from 1.
        column: usize,
        /// Size of the vocabulary.
        vocab_size: usize,
    },
    /// A failure inside the `tokenizers` crate.
    #[error("the tokenizer failed: {}", shortened_reason(reason))]
    Tokenizer {
        /// What the crate says.
        reason: String,
    },
}

impl DataError {
    /// Returns a converter of a missing column's error, for `map_err`, to one that tells the `key` of a recipe that names the column.
    pub fn naming(key: &str) -> impl Fn(Self) -> Self {
        move |error| match error {
            Self::Input(error) if error.advice.as_deref() == Some(ANOTHER_COLUMN) => {
                error.advise(format!("{ANOTHER_COLUMN} as {key}")).into()
            }
            other => other,
        }
    }

    /// Whether the user can mend this by giving something else (exit code 2), rather than the machine being at fault
    /// (exit code 1).
    pub fn is_user_error(&self) -> bool {
        match self {
            Self::Storage(error) => error.is_user_error(),
            #[cfg(feature = "images")]
            Self::Image(error) => error.is_user_error(),
            Self::Tokenizer { .. } => false,
            _ => true,
        }
    }
}

impl From<DataError> for TaskError {
    fn from(error: DataError) -> Self {
        Self::new(error.is_user_error(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_place_and_the_way_out() {
        let unknown =
            DataError::UnknownCharacter { character: '\u{e9}', position: 7, line: 2, column: 3, vocab_size: 65 };
        assert_eq!(
            unknown.to_string(),
            "the character '\u{e9}' at position 7 (line 2, column 3) is not in the vocabulary of 65 characters; \
             remove it, or train with a text that has it or with the `byte` tokenizer"
        );
    }

    #[test]
    fn a_missing_column_tells_the_key_that_names_it() {
        let error = |advice: &str| DataError::from(InputError::new("has no column `a`").advise(advice));
        let named = |advice: &str| DataError::naming("data.column")(error(advice)).to_string();
        assert_eq!(named(ANOTHER_COLUMN), "has no column `a`; give one of these as data.column");
        assert_eq!(named("leave it out"), "has no column `a`; leave it out");
    }

    #[test]
    fn the_machines_errors_are_not_the_users() {
        assert!(DataError::from(InputError::new("")).is_user_error());
        assert!(!DataError::Tokenizer { reason: String::new() }.is_user_error());
    }
}
