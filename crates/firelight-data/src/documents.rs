//! A text as a row of documents: where one ends and the next begins, as token ids. Task crates cut them into rows of a batch
//! with [`DocumentDataset`](crate::DocumentDataset) and [`PackedDataset`](crate::PackedDataset).

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use firelight_storage::InputError;

use crate::token_file::broken;
use crate::{DataError, TokenFile, Tokens};

/// What ends a document: `"line"`, `"blank_line"`, or `{ kind = "text", text = "<|endoftext|>" }`.
///
/// The separator belongs to the document that it ends, so that a model learns where to end; the documents one after the
/// other are the whole text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Separator {
    /// The end of a line; the blank lines that follow belong to it.
    Line,
    /// One blank line or several: nothing but white space.
    BlankLine,
    /// A text of its own.
    Text {
        /// The text, which is not empty.
        text: String,
    },
}

impl Separator {
    /// # Errors
    /// Fails if the separator is an empty text.
    pub fn validate(&self) -> Result<(), DataError> {
        match self {
            Self::Text { text } if text.is_empty() => {
                let problem = "the text that separates documents is empty";
                Err(InputError::new(problem).advise("give one, such as \"<|endoftext|>\"").into())
            }
            _ => Ok(()),
        }
    }

    /// The documents of a text. None is empty; together they are the text.
    pub fn split<'a>(&self, text: &'a str) -> Vec<&'a str> {
        match self {
            Self::Text { text: separator } => text.split_inclusive(separator.as_str()).collect(),
            Self::Line => split_lines(text, |_| true),
            Self::BlankLine => split_lines(text, is_blank),
        }
    }
}

fn is_blank(line: &str) -> bool {
    line.trim().is_empty()
}

/// Cuts before each line with something on it whose predecessor `ends` a document.
fn split_lines(text: &str, ends: impl Fn(&str) -> bool) -> Vec<&str> {
    let (mut documents, mut start, mut end) = (Vec::new(), 0, 0);
    let mut before: Option<&str> = None;
    for line in text.split_inclusive('\n') {
        let begins = !is_blank(line) && before.is_some_and(&ends) && !is_blank(&text[start..end]);
        if begins {
            documents.push(&text[start..end]);
            start = end;
        }
        (end, before) = (end + line.len(), Some(line));
    }
    documents.extend((start < end).then(|| &text[start..end]));
    documents
}

/// The tokens of a text, and where its documents end. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Documents {
    tokens: Tokens,
    /// Behind the last token of each document.
    ends: Arc<[usize]>,
}

impl Documents {
    /// Documents that end behind these tokens, which rise; none is empty, and the last ends with the tokens.
    ///
    /// # Panics
    /// Panics if the last one ends elsewhere.
    pub fn new(tokens: Tokens, ends: impl Into<Arc<[usize]>>) -> Self {
        let ends = ends.into();
        assert_eq!(ends.last().copied().unwrap_or(0), tokens.len(), "the last document ends with the tokens");
        Self { tokens, ends }
    }

    /// Reads what [`save_lengths`] wrote, for the same tokens.
    ///
    /// # Errors
    /// Fails if the file cannot be read or belongs to other tokens.
    pub fn open(tokens: Tokens, path: impl AsRef<Path>) -> Result<Self, DataError> {
        let path = path.as_ref();
        let lengths = TokenFile::open(path)?;
        let running = |end: &mut usize, length: u32| {
            *end += length as usize;
            Some(*end)
        };
        let ends: Arc<[usize]> = lengths.get(0..lengths.len()).into_iter().scan(0, running).collect();
        let (found, expected) = (ends.last().copied().unwrap_or(0), tokens.len());
        match found == expected {
            true => Ok(Self { tokens, ends }),
            false => {
                Err(broken(path, &format!("its documents have {found} tokens, but the text has {expected}")).into())
            }
        }
    }

    /// All tokens, one document after the other.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The tokens of each document.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let starts = std::iter::once(&0).chain(self.ends.iter());
        starts.zip(self.ends.iter()).map(|(&start, &end)| start..end)
    }

    /// Splits into the first `training` tokens and those that are validated on, as [`Tokens::split`], but between two documents: that
    /// in which the cut would fall is validated on.
    pub fn split(&self, training: usize) -> (Self, Self) {
        let whole = self.ends.partition_point(|&end| end <= training);
        (self.slice(0..whole), self.slice(whole..self.len()))
    }

    /// The documents that end within a range of tokens.
    pub fn within(&self, tokens: Range<usize>) -> Self {
        let behind = |place: usize| self.ends.partition_point(|&end| end <= place);
        self.slice(behind(tokens.start)..behind(tokens.end))
    }

    /// Some of the documents, without copying their tokens.
    fn slice(&self, documents: Range<usize>) -> Self {
        let end_of = |count: usize| count.checked_sub(1).map_or(0, |last| self.ends[last]);
        let (start, end) = (end_of(documents.start), end_of(documents.end));
        let ends = self.ends[documents].iter().map(|end| end - start).collect();
        Self { tokens: self.tokens.slice(start..end), ends }
    }
}

/// Writes the lengths of documents to `path`, one after the other, in the format of a [`TokenFile`].
///
/// # Errors
/// Fails if the file cannot be written; an older file is then untouched.
pub fn save_lengths(path: impl AsRef<Path>, parts: &[&Documents]) -> Result<(), DataError> {
    let lengths = || parts.iter().flat_map(|part| part.ranges()).map(|range| range.len());
    let longest = lengths().max().unwrap_or(0);
    TokenFile::create(path, longest + 1, lengths().map(|length| length as u32)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Tokenizer, TokenizerConfig};
    use proptest::prelude::*;

    const TEXT: &str = "one\ntwo\n\nthree\n \r\n\nfour";

    fn blank_lines(text: &str) -> Documents {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, text).unwrap();
        Documents::encode(&tokenizer, &Separator::BlankLine, text).unwrap()
    }

    #[test]
    fn every_separator_ends_the_document_before_it() {
        assert_eq!(Separator::BlankLine.split(TEXT), ["one\ntwo\n\n", "three\n \r\n\n", "four"]);
        assert_eq!(Separator::Line.split(TEXT), ["one\n", "two\n\n", "three\n \r\n\n", "four"]);
        assert_eq!(Separator::Text { text: "e\n".into() }.split(TEXT), ["one\n", "two\n\nthree\n", " \r\n\nfour"]);
        assert_eq!(Separator::BlankLine.split("\n\nfirst\n"), ["\n\nfirst\n"]);
        assert!(Separator::Line.split("").is_empty());
        assert!(Separator::Text { text: String::new() }.validate().unwrap_err().is_user_error());
    }

    #[test]
    fn a_recipe_names_a_separator() {
        let text: Separator = serde_json::from_str(r#"{"kind": "text", "text": "<|endoftext|>"}"#).unwrap();
        assert_eq!(text, Separator::Text { text: "<|endoftext|>".into() });
        assert!(serde_json::from_str::<Separator>(r#"{"kind": "page"}"#).is_err());
    }

    #[test]
    fn the_parts_are_cut_between_two_documents() {
        let documents = blank_lines(TEXT); // 9, 10 and 4 tokens
        let lengths = |part: &Documents| part.ranges().map(|range| range.len()).collect::<Vec<_>>();
        for (cut, training, validation) in
            [(20, vec![9, 10], vec![4]), (11, vec![9], vec![10, 4]), (23, vec![9, 10, 4], vec![])]
        {
            let (left, right) = documents.split(cut);
            assert_eq!((lengths(&left), lengths(&right)), (training, validation));
            let ids = [left.tokens().get(0..left.tokens().len()), right.tokens().get(0..right.tokens().len())];
            assert_eq!(ids.concat(), documents.tokens().get(0..23));
        }
        assert!(documents.split(2).0.is_empty());
        assert_eq!(lengths(&documents.within(9..19)), [10]);
    }

    #[test]
    fn lengths_come_back_for_their_own_tokens() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.documents");
        let documents = blank_lines(TEXT);
        save_lengths(&path, &[&documents]).unwrap();
        let again = Documents::open(documents.tokens().clone(), &path).unwrap();
        assert_eq!(again.ranges().collect::<Vec<_>>(), [0..9, 9..19, 19..23]);
        let error = Documents::open(Tokens::from(vec![1; 22]), &path).unwrap_err();
        assert!(error.to_string().contains("its documents have 23 tokens, but the text has 22"), "{error}");
    }

    #[test]
    fn an_unknown_character_is_placed_in_the_whole_text() {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abc\n").unwrap();
        let error = Documents::encode(&tokenizer, &Separator::Line, "ab\nc\nbad").unwrap_err();
        assert!(matches!(error, DataError::UnknownCharacter { character: 'd', line: 3, column: 3, .. }), "{error}");
    }

    proptest! {
        #[test]
        fn documents_are_the_whole_text(text in "[ab\n\r ]{0,40}") {
            for separator in [Separator::Line, Separator::BlankLine, Separator::Text { text: "ab".into() }] {
                let documents = separator.split(&text);
                prop_assert_eq!(documents.concat(), text.clone());
                prop_assert!(documents.iter().all(|document| !document.is_empty()));
            }
        }
    }
}
