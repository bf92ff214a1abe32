//! Texts become token ids, however long they are: files are read in pieces, and what is encoded goes to a file at once. Running
//! text, documents of a text and records take this one way.

use std::path::Path;

use crate::records::{RecordFormat, Records};
use crate::text::TextPieces;
use crate::{DataError, Documents, Separator, TokenWriter, Tokenizer, Tokens};

/// What ends the text of a record among others.
const RECORD_END: &str = "\n\n";

/// The key of a recipe that names the column of a text.
const COLUMN: &str = "data.column";

/// Texts one after the other, as ids.
///
/// ```
/// use firelight_data::{TokenBuilder, Tokenizer, TokenizerConfig};
///
/// let bytes = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
/// let mut builder = TokenBuilder::new(&bytes, None).unwrap();
/// builder.add_text("ab").unwrap();
/// builder.add_text("c").unwrap();
/// assert_eq!(builder.finish().unwrap().0.get(0..3), [97, 98, 99]);
/// ```
#[derive(Debug)]
pub struct TokenBuilder<'a> {
    tokenizer: &'a Tokenizer,
    separator: Option<&'a Separator>,
    writer: TokenWriter,
    /// Behind the last token of each document, where there are documents.
    ends: Vec<usize>,
}

impl<'a> TokenBuilder<'a> {
    /// Begins without a text. With a `separator` texts are documents, which no token reaches across; every record is one.
    ///
    /// # Errors
    /// Fails if there can be no temporary file.
    pub fn new(tokenizer: &'a Tokenizer, separator: Option<&'a Separator>) -> Result<Self, DataError> {
        Ok(Self { tokenizer, separator, writer: TokenWriter::new(tokenizer.vocab_size())?, ends: Vec::new() })
    }

    /// How many tokens there are so far.
    pub fn len(&self) -> usize {
        self.writer.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.writer.is_empty()
    }

    /// Adds a text.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn add_text(&mut self, text: &str) -> Result<(), DataError> {
        self.add_pieces([Ok(text.to_owned())])
    }

    /// Adds a file: of records the text in `column` of each, of any other ending its text.
    ///
    /// # Errors
    /// Fails if the file cannot be read, and as [`Tokenizer::encode`].
    pub fn add_file(&mut self, path: &Path, column: &str) -> Result<(), DataError> {
        if RecordFormat::of(path).is_err() {
            return self.add_pieces(TextPieces::open(path)?);
        }
        let named = DataError::naming(COLUMN);
        for record in Records::open(path, &[column]).map_err(&named)? {
            let record = record?;
            let position = TextPosition { lines: record.line().saturating_sub(1), ..TextPosition::default() };
            self.add_document(&(record.text(column).map_err(&named)? + RECORD_END), &position)?;
        }
        Ok(())
    }

    /// All tokens, and where documents end.
    ///
    /// # Errors
    /// Fails if the disk is full.
    pub fn finish(self) -> Result<(Tokens, Vec<usize>), DataError> {
        Ok((Tokens::from(self.writer.finish()?), self.ends))
    }

    /// Adds a text that comes in pieces. What could still be joined with the next piece waits for it.
    fn add_pieces(&mut self, pieces: impl IntoIterator<Item = Result<String, DataError>>) -> Result<(), DataError> {
        let (mut waiting, mut position) = (String::new(), TextPosition::default());
        // Where nothing can be cut off, looking again at every piece would take time by the square of the length.
        let mut enough = 0;
        for piece in pieces {
            waiting += &piece?;
            if waiting.len() >= enough {
                let settled = self.settled(&waiting);
                self.add_settled(&waiting[..settled], &mut position)?;
                waiting.drain(..settled);
                enough = 2 * waiting.len();
            }
        }
        self.add_settled(&waiting, &mut position)
    }

    /// Bytes at the beginning of a text that are encoded alike, however the text goes on.
    fn settled(&self, text: &str) -> usize {
        match self.separator {
            None => self.tokenizer.settled(text),
            Some(separator) => text.len() - separator.split(text).last().map_or(0, |last| last.len()),
        }
    }

    fn add_settled(&mut self, text: &str, position: &mut TextPosition) -> Result<(), DataError> {
        let documents = self.separator.map_or_else(|| vec![text], |separator| separator.split(text));
        for document in documents {
            self.add_document(document, position)?;
            position.pass(document);
        }
        Ok(())
    }

    fn add_document(&mut self, text: &str, position: &TextPosition) -> Result<(), DataError> {
        let ids = self.tokenizer.encode(text).map_err(|error| position.of(error))?;
        self.writer.push(&ids)?;
        if self.separator.is_some() && !ids.is_empty() {
            self.ends.push(self.writer.len());
        }
        Ok(())
    }
}

/// The texts of a file, one after the other: of records those in `column`, otherwise pieces of its text.
///
/// # Errors
/// Fails if the file cannot be opened; what is wrong with it is an error of the texts.
pub fn texts_of(path: &Path, column: &str) -> Result<Box<dyn Iterator<Item = Result<String, DataError>>>, DataError> {
    if RecordFormat::of(path).is_err() {
        return Ok(Box::new(TextPieces::open(path)?));
    }
    let column = column.to_owned();
    let named = DataError::naming(COLUMN);
    let records = Records::open(path, &[&column]).map_err(&named)?;
    Ok(Box::new(records.map(move |record| Ok(record?.text(&column).map_err(&named)? + RECORD_END))))
}

impl Documents {
    /// Turns the documents of a text into ids, each for itself, so that no token reaches from one into the next.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode(tokenizer: &Tokenizer, separator: &Separator, text: &str) -> Result<Self, DataError> {
        let mut builder = TokenBuilder::new(tokenizer, Some(separator))?;
        builder.add_text(text)?;
        let (tokens, ends) = builder.finish()?;
        Ok(Self::new(tokens, ends))
    }
}

/// How much of a text was passed, so that errors name the place in the whole.
#[derive(Debug, Default)]
struct TextPosition {
    characters: usize,
    lines: usize,
    /// Characters of the last line.
    column: usize,
}

impl TextPosition {
    fn pass(&mut self, text: &str) {
        let characters = text.chars().count();
        self.characters += characters;
        self.lines += text.bytes().filter(|&byte| byte == b'\n').count();
        self.column = match text.rfind('\n') {
            Some(end) => text[end + 1..].chars().count(),
            None => self.column + characters,
        };
    }

    /// The error of what follows, with its place in the whole.
    fn of(&self, mut error: DataError) -> DataError {
        if let DataError::UnknownCharacter { position, line, column, .. } = &mut error {
            *column += if *line == 1 { self.column } else { 0 };
            *position += self.characters;
            *line += self.lines;
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenizerConfig;
    use proptest::prelude::*;
    use std::fs;

    const CONFIGS: [TokenizerConfig; 4] = [
        TokenizerConfig::Char,
        TokenizerConfig::Byte,
        TokenizerConfig::Bpe { vocab_size: 300 },
        TokenizerConfig::Word { min_frequency: 1 },
    ];

    fn in_pieces(tokenizer: &Tokenizer, separator: Option<&Separator>, pieces: &[&str]) -> (Vec<u32>, Vec<usize>) {
        let mut builder = TokenBuilder::new(tokenizer, separator).unwrap();
        builder.add_pieces(pieces.iter().map(|piece| Ok(piece.to_string()))).unwrap();
        let (tokens, ends) = builder.finish().unwrap();
        (tokens.iter().collect(), ends)
    }

    #[test]
    fn a_text_in_pieces_gives_the_ids_of_the_whole() {
        let text = crate::stories(3, 30_000);
        for config in CONFIGS {
            let tokenizer = Tokenizer::train(&config, &text).unwrap();
            let pieces: Vec<&str> =
                text.as_bytes().chunks(1_000).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
            let (ids, ends) = in_pieces(&tokenizer, None, &pieces);
            assert_eq!(ids, tokenizer.encode(&text).unwrap(), "{config}");
            assert!(ends.is_empty());
        }
    }

    #[test]
    fn a_record_is_a_document_and_a_stream_of_them_is_a_text() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.jsonl");
        fs::write(&path, "{\"text\": \"a\\nb\"}\n{\"text\": \"c\"}\n").unwrap();
        let bytes = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
        for (separator, expected) in [(None, vec![]), (Some(&Separator::Line), vec![5, 8])] {
            let mut builder = TokenBuilder::new(&bytes, separator).unwrap();
            builder.add_file(&path, "text").unwrap();
            let (tokens, ends) = builder.finish().unwrap();
            assert_eq!(bytes.decode(&tokens.iter().collect::<Vec<_>>()), "a\nb\n\nc\n\n");
            assert_eq!(ends, expected);
        }
        let texts: Result<Vec<_>, _> = texts_of(&path, "text").unwrap().collect();
        assert_eq!(texts.unwrap(), ["a\nb\n\n", "c\n\n"]);
        let lacks = TokenBuilder::new(&bytes, None).unwrap().add_file(&path, "body").unwrap_err().to_string();
        assert!(lacks.contains("body") && lacks.contains("a.jsonl"), "{lacks}");
    }

    #[test]
    fn an_unknown_character_is_placed_in_the_whole() {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abc\n").unwrap();
        for (separator, pieces) in [(None, ["ab\nc", "\nb", "ad"]), (Some(&Separator::Line), ["ab\nc\n", "b", "ad\n"])]
        {
            let mut builder = TokenBuilder::new(&tokenizer, separator).unwrap();
            let error = builder.add_pieces(pieces.map(|piece| Ok(piece.to_owned()))).unwrap_err();
            assert!(
                matches!(error, DataError::UnknownCharacter { character: 'd', position: 7, line: 3, column: 3, .. }),
                "{error}"
            );
        }
    }

    proptest! {
        #[test]
        fn documents_in_pieces_are_those_of_the_whole(pieces in prop::collection::vec("[ab\n ]{0,9}", 0..9)) {
            let bytes = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            for separator in [Separator::Line, Separator::BlankLine, Separator::Text { text: "ab".into() }] {
                let whole = pieces.concat();
                prop_assert_eq!(in_pieces(&bytes, Some(&separator), &pieces), in_pieces(&bytes, Some(&separator), &[&whole]));
            }
        }
    }
}
