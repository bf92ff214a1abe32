//! What each token stands for, as bytes. Decoding, at once or in a stream, is to look these up and join them.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Stands for an id outside the vocabulary: U+FFFD in UTF-8.
const UNKNOWN: &[u8] = "\u{fffd}".as_bytes();

/// A vocabulary may leave out ids, but not more than it has tokens.
const MAX_IDS_PER_TOKEN: usize = 2;

/// The bytes of each token, by id.
#[derive(Debug)]
pub(crate) struct Pieces(Vec<Box<[u8]>>);

impl Pieces {
    /// Tokens that stand for themselves.
    pub(super) fn of_characters(tokenizer: &tokenizers::Tokenizer) -> Result<Self, String> {
        Self::new(tokenizer, |token| token.as_bytes().into())
    }

    /// Tokens that spell bytes in the alphabet of byte-level BPE. Others, such as `<|endoftext|>` in a file from
    /// elsewhere, may hold any character and stand for themselves.
    pub(super) fn of_bytes(tokenizer: &tokenizers::Tokenizer) -> Result<Self, String> {
        let added = tokenizer.get_added_tokens_decoder();
        let is_added = |token: &str| added.values().any(|other| other.content == token);
        Self::new(tokenizer, |token| {
            let spelt: Option<Box<[u8]>> = token.chars().map(|spelling| BYTES.get(&spelling).copied()).collect();
            spelt.filter(|_| !is_added(token)).unwrap_or_else(|| token.as_bytes().into())
        })
    }

    /// Refuses ids far above the number of tokens, each of which would cost memory here and a row in every model.
    fn new(tokenizer: &tokenizers::Tokenizer, bytes: impl Fn(&str) -> Box<[u8]>) -> Result<Self, String> {
        let vocabulary = tokenizer.get_vocab(true);
        let count = vocabulary.values().max().map_or(0, |&id| id as usize + 1);
        if count > MAX_IDS_PER_TOKEN * vocabulary.len() {
            return Err(format!("its largest id is {}, but it has only {} tokens", count - 1, vocabulary.len()));
        }
        let mut pieces = vec![Box::from(UNKNOWN); count];
        for (token, id) in vocabulary {
            pieces[id as usize] = bytes(&token);
        }
        Ok(Self(pieces))
    }

    /// Number of ids.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The bytes of one id.
    pub(crate) fn bytes(&self, id: u32) -> &[u8] {
        self.0.get(id as usize).map_or(UNKNOWN, |bytes| bytes)
    }
}

/// The character that spells each byte in byte-level BPE: printable bytes of Latin-1 spell themselves, the others take
/// the characters from U+0100 on. Source: Radford et al. 2019, `bytes_to_unicode` in GPT-2's encoder.py.
pub(super) fn spelling(byte: u8) -> char {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if is_printable(byte) {
        return byte.into();
    }
    let before = (0..byte).filter(|&other| !is_printable(other)).count();
    char::from_u32(0x100 + before as u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte that each character of the alphabet spells.
static BYTES: LazyLock<HashMap<char, u8>> = LazyLock::new(|| (0..=255).map(|byte| (spelling(byte), byte)).collect());

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    #[test]
    fn the_alphabet_is_that_of_the_tokenizers_crate() {
        let ours: HashSet<char> = (0..=255).map(spelling).collect();
        assert_eq!(ours, ByteLevel::alphabet().into_iter().collect());
        assert_eq!((spelling(b'a'), spelling(b' '), spelling(b'\n')), ('a', '\u{120}', '\u{10a}'));
    }
}
