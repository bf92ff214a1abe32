//! The text of a row, as a parser has read it.

use std::sync::Arc;

use llguidance::TokenParser;

/// A parser behind a text. It reads on only when it is asked for. No search touches it, and copies share it until one of them reads on.
#[derive(Clone)]
pub(super) struct ReadText {
    parser: Arc<TokenParser>,
    /// The last tokens, which the parser has not read yet.
    unread: Vec<u32>,
}

impl ReadText {
    /// The text that the parser has read.
    pub(super) fn new(parser: Arc<TokenParser>) -> Self {
        Self { parser, unread: Vec::new() }
    }

    /// Adds a token to the text.
    pub(super) fn push(&mut self, token: u32) {
        self.unread.push(token);
    }

    /// A new parser behind the text and one more token, which does not become part of the text. None if the grammar does not allow them.
    pub(super) fn followed_by(&mut self, token: u32) -> Option<TokenParser> {
        self.read_on()?;
        let mut parser = self.parser.deep_clone();
        parser.consume_token(token).ok()?;
        Some(parser)
    }

    /// Reads what is unread. A parser that other texts share is copied before, any other reads on where it is. A parser that has refused a
    /// token refuses all that follow.
    fn read_on(&mut self) -> Option<()> {
        if self.unread.is_empty() {
            return Some(());
        }
        if Arc::get_mut(&mut self.parser).is_none() {
            self.parser = Arc::new(self.parser.deep_clone());
        }
        let parser = Arc::get_mut(&mut self.parser)?;
        for &token in &self.unread {
            parser.consume_token(token).ok()?;
        }
        self.unread.clear();
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::compiled::Source;
    use super::super::explorer::Explorer;
    use super::super::vocabulary::Vocabulary;
    use super::*;

    fn start(vocabulary: &Vocabulary) -> ReadText {
        let source = Source::Regex("( [a-z]+)+ (love|death)[.]".into());
        ReadText::new(Arc::new(source.parser(vocabulary).unwrap()))
    }

    /// The end of the text behind one more byte.
    fn end(text: &mut ReadText, byte: u8, vocabulary: &Vocabulary) -> Option<String> {
        let parser = text.followed_by(byte.into())?;
        String::from_utf8(Explorer::new(parser, vocabulary).shortest(100, 100_000)?).ok()
    }

    #[test]
    fn a_text_read_in_parts_ends_like_one_that_is_read_at_once() {
        let vocabulary = Vocabulary::bytes();
        let written = b" dark death of love";
        let mut in_parts = start(vocabulary);
        for (place, &byte) in written.iter().enumerate() {
            let mut at_once = start(vocabulary);
            written[..place].iter().for_each(|&byte| at_once.push(byte.into()));
            // Only some of the places are looked at, so that some tokens are read one by one and others together.
            if place % 3 != 1 {
                let found = end(&mut in_parts, byte, vocabulary);
                assert!(found.is_some() && found == end(&mut at_once, byte, vocabulary), "{place}: {found:?}");
            }
            in_parts.push(byte.into());
        }
        assert_eq!(end(&mut in_parts, b'.', vocabulary).as_deref(), Some(""));
    }

    #[test]
    fn a_token_that_is_only_looked_at_is_taken_back() {
        let vocabulary = Vocabulary::bytes();
        let mut text = start(vocabulary);
        b" a lo".iter().for_each(|&byte| text.push(byte.into()));
        assert_eq!(end(&mut text, b'v', vocabulary).as_deref(), Some("e."));
        assert_eq!(end(&mut text, b'.', vocabulary), None, "the grammar does not allow it");
        assert_eq!(end(&mut text, b'a', vocabulary).as_deref(), Some(" love."));
        assert_eq!(end(&mut text, b'v', vocabulary).as_deref(), Some("e."));
    }

    #[test]
    fn a_copy_reads_on_by_itself() {
        let vocabulary = Vocabulary::bytes();
        let mut text = start(vocabulary);
        b" a".iter().for_each(|&byte| text.push(byte.into()));
        assert_eq!(end(&mut text, b'b', vocabulary).as_deref(), Some(" love."));
        let mut other = text.clone();
        b" deat".iter().for_each(|&byte| other.push(byte.into()));
        b" lo".iter().for_each(|&byte| text.push(byte.into()));
        assert_eq!(end(&mut other, b'h', vocabulary).as_deref(), Some("."));
        assert_eq!(end(&mut text, b'v', vocabulary).as_deref(), Some("e."));
    }
}
