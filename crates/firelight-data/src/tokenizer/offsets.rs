//! Where in a text its tokens stand, for tasks that speak of words or of stretches of a text.

use std::ops::Range;

use super::{Encoder, Tokenizer, byte_level, failure, word_piece};
use crate::DataError;

impl Tokenizer {
    /// Turns text into ids, as [`encode`](Self::encode), each with the bytes of the text that it stands for.
    ///
    /// The bytes may have white space at their ends, which some tokenizers count to a word; those of a token that is a part of a
    /// character are the whole character. White space that no token holds is left out.
    ///
    /// ```
    /// use firelight_data::{Tokenizer, TokenizerConfig};
    ///
    /// let tokenizer = Tokenizer::train(&TokenizerConfig::Word { min_frequency: 1 }, "so (a)").unwrap();
    /// let found = tokenizer.encode_with_offsets("a (so").unwrap();
    /// let stretches: Vec<_> = found.into_iter().map(|(_, stretch)| stretch).collect();
    /// assert_eq!(stretches, [0..1, 2..3, 3..5]);
    /// ```
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_with_offsets(&self, text: &str) -> Result<Vec<(u32, Range<usize>)>, DataError> {
        match &self.encoder {
            Encoder::Char(characters) => {
                let stretches = text.char_indices().map(|(begin, character)| begin..begin + character.len_utf8());
                Ok(characters.encode(text)?.into_iter().zip(stretches).collect())
            }
            Encoder::Byte => {
                let whole = |at: usize| text.floor_char_boundary(at)..text.ceil_char_boundary(at + 1);
                Ok(text.bytes().enumerate().map(|(at, byte)| (u32::from(byte), whole(at))).collect())
            }
            Encoder::Bpe => of_parts(&self.inner, byte_level::parts(text)),
            Encoder::Word => Ok(apart(of_parts(&self.inner, byte_level::parts(text))?)),
            Encoder::SentenceBpe | Encoder::Unigram => {
                let mut found = of_parts(&self.inner, byte_level::parts(&byte_level::with_space(text)))?;
                for (_, stretch) in &mut found {
                    // The space in front is no part of the text.
                    *stretch = stretch.start.saturating_sub(1)..stretch.end.saturating_sub(1);
                }
                Ok(found)
            }
            Encoder::WordPiece => of_parts(&self.inner, word_piece::parts(text)),
        }
    }
}

/// The tokens of the parts of a text, which follow one another.
fn of_parts<'a>(
    tokenizer: &tokenizers::Tokenizer,
    parts: impl Iterator<Item = &'a str>,
) -> Result<Vec<(u32, Range<usize>)>, DataError> {
    let (mut found, mut before) = (Vec::new(), 0);
    for part in parts {
        let encoding = tokenizer.encode(part, false).map_err(failure)?;
        let stretches = encoding.get_offsets().iter().map(|&(begin, end)| before + begin..before + end);
        found.extend(encoding.get_ids().iter().copied().zip(stretches));
        before += part.len();
    }
    Ok(found)
}

/// Words and marks, which do not overlap: a joiner in front of a mark was put there behind the character before it, and reaches for
/// it.
fn apart(mut found: Vec<(u32, Range<usize>)>) -> Vec<(u32, Range<usize>)> {
    let mut reached = 0;
    for (_, stretch) in &mut found {
        *stretch = stretch.start.max(reached)..stretch.end;
        reached = stretch.end;
    }
    found
}

#[cfg(test)]
mod tests {
    use crate::{Tokenizer, TokenizerConfig};
    use proptest::prelude::*;

    const TEXT: &str =
        "Don't (ever) say \"well-known\", 3.5% - na\u{ef}ve r\u{e9}sum\u{e9}s in S\u{e3}o Paulo?! \u{4e2d}\u{6587}\n";

    fn configs() -> [TokenizerConfig; 7] {
        [
            TokenizerConfig::Char,
            TokenizerConfig::Byte,
            TokenizerConfig::Bpe { vocab_size: 280 },
            TokenizerConfig::SentenceBpe { vocab_size: 280 },
            TokenizerConfig::Unigram { vocab_size: 280 },
            TokenizerConfig::Word { min_frequency: 1 },
            TokenizerConfig::WordPiece { vocab_size: 90 },
        ]
    }

    fn words(config: &TokenizerConfig, text: &str) -> Vec<String> {
        let tokenizer = Tokenizer::train(config, TEXT).unwrap();
        let found = tokenizer.encode_with_offsets(text).unwrap();
        found.into_iter().map(|(_, stretch)| text[stretch].trim().to_owned()).collect()
    }

    #[test]
    fn words_and_pieces_stand_where_they_are_written() {
        let word = TokenizerConfig::Word { min_frequency: 1 };
        let expected = ["(", "ever", ")", "na\u{ef}ve", "-", "zoo", "?", "!"];
        assert_eq!(words(&word, "(ever)  na\u{ef}ve-zoo?!"), expected, "a word that is unknown, too");
        let pieces = words(&TokenizerConfig::WordPiece { vocab_size: 90 }, " R\u{e9}sum\u{e9}s, SAY\u{4e2d} zoo");
        assert_eq!(pieces.concat(), "R\u{e9}sum\u{e9}s,SAY\u{4e2d}zoo");
        assert_eq!(pieces.last().unwrap(), "zoo");
        assert_eq!(words(&TokenizerConfig::Char, "ay\u{e9}"), ["a", "y", "\u{e9}"]);
        assert_eq!(words(&TokenizerConfig::Byte, "a\u{e9}"), ["a", "\u{e9}", "\u{e9}"]);
        let bytes = Tokenizer::train(&TokenizerConfig::SentenceBpe { vocab_size: 256 }, "").unwrap();
        let stretches: Vec<_> = bytes.encode_with_offsets("a b").unwrap().into_iter().map(|found| found.1).collect();
        assert_eq!(stretches, [0..0, 0..1, 1..2, 2..3]);
    }

    proptest! {
        #[test]
        fn ids_are_those_of_encoding_and_stretches_cover_all_but_white_space(
            text in "([a-zD\u{e9}\u{e3}(),.?!\"%'-]{1,6}[ \n]{1,2}){0,12}"
        ) {
            thread_local!(static ALL: Vec<Tokenizer> = configs()[1..].iter().map(|config| Tokenizer::train(config, TEXT).unwrap()).collect());
            ALL.with(|all| for tokenizer in all {
                let found = tokenizer.encode_with_offsets(&text).unwrap();
                let ids: Vec<u32> = found.iter().map(|(id, _)| *id).collect();
                assert_eq!(ids, tokenizer.encode(&text).unwrap(), "{:?}", tokenizer.kind());
                let mut reached = 0;
                for (_, stretch) in found {
                    assert!(text.get(reached.min(stretch.start)..stretch.start).is_some_and(|gap| gap.trim().is_empty()),
                        "{:?}: {text:?} {stretch:?}", tokenizer.kind());
                    reached = reached.max(stretch.end);
                }
                assert!(text[reached..].trim().is_empty(), "{:?} {text:?}", tokenizer.kind());
            });
        }
    }

    #[test]
    fn a_long_text_has_the_places_of_its_parts() {
        let text = crate::stories(2, 30_000).trim_end().to_owned();
        for config in [TokenizerConfig::SentenceBpe { vocab_size: 400 }, TokenizerConfig::WordPiece { vocab_size: 200 }]
        {
            let tokenizer = Tokenizer::train(&config, &text).unwrap();
            let found = tokenizer.encode_with_offsets(&text).unwrap();
            let ids: Vec<u32> = found.iter().map(|(id, _)| *id).collect();
            assert_eq!(ids, tokenizer.encode(&text).unwrap());
            let last = found.last().unwrap().1.clone();
            assert_eq!((last.end, &text[last]), (text.len(), "."));
        }
    }
}
