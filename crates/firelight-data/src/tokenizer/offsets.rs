//! Where in a text its tokens stand, for tasks that speak of words or of stretches of a text.

use std::ops::Range;

use tokenizers::{Encoding, ModelWrapper};

use super::byte_level::is_spelt;
use super::{Tokenizer, TokenizerKind, guarded};
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
        if let Some(characters) = &self.characters {
            let stretches = text.char_indices().map(|(begin, character)| begin..begin + character.len_utf8());
            return Ok(characters.encode(text)?.into_iter().zip(stretches).collect());
        }
        let (mut found, mut before) = (Vec::new(), 0);
        for part in self.parts(text) {
            let encoding = self.encoded(part)?;
            let stretches = encoding.get_offsets().iter().map(|&(begin, end)| before + begin..before + end);
            found.extend(encoding.get_ids().iter().copied().zip(stretches));
            before += part.len();
        }
        Ok(found)
    }

    /// A text as the crate encodes it, except for two sorts of places. A space that is a token of its own and that the text does not
    /// have stands for nothing; and of words and marks, which do not overlap, a mark leaves out the character before it, to which the
    /// crate counts its joiner.
    pub(super) fn encoded(&self, text: &str) -> Result<Encoding, DataError> {
        if let Some(characters) = &self.characters {
            characters.encode(text)?; // whose error tells the place
        }
        let mut encoding = guarded(|| self.inner.encode(text, false))?;
        let is_space = encoding.get_tokens().first().is_some_and(|token| SPACES.contains(&token.as_str()));
        if is_space && !text.starts_with(char::is_whitespace) {
            encoding.get_offsets_mut()[0] = (0, 0);
        }
        if self.kind == TokenizerKind::Word {
            let mut reached = 0;
            for place in encoding.get_offsets_mut() {
                place.0 = place.0.max(reached);
                reached = place.1;
            }
        }
        Ok(encoding)
    }

    /// Whether a token goes on with the word of the token before it: with WordPiece a `##` piece, with bytes, characters, BPE and
    /// Unigram one that does not begin with white space. Special tokens and whole words never do.
    pub fn continues_word(&self, id: u32) -> bool {
        let Some(token) = self.token(id).filter(|_| !self.is_special(id)) else { return false };
        let first = token.chars().next();
        match self.inner.get_model() {
            ModelWrapper::WordPiece(model) => token.starts_with(&model.continuing_subword_prefix),
            ModelWrapper::WordLevel(_) if self.kind != TokenizerKind::Char => false,
            _ if is_spelt(&self.inner) => !first.is_some_and(|first| SPELT_SPACES.contains(&first)),
            _ => !first.is_some_and(|first| first == '\u{2581}' || first.is_ascii_whitespace()),
        }
    }
}

/// A space as a token: of byte-level models, and of SentencePiece.
const SPACES: [&str; 2] = ["\u{120}", "\u{2581}"];

/// How byte-level tokens spell white space: tab, line feed, form feed, carriage return and space.
const SPELT_SPACES: [char; 5] = ['\u{109}', '\u{10a}', '\u{10c}', '\u{10d}', '\u{120}'];

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
