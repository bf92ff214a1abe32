//! What each token stands for, as bytes. Decoding, at once or in a stream, is to look these up and join them; where a space
//! stands between two tokens, [`Spacing`] tells.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use super::word_piece::CONTINUES;

/// Stands for an id outside the vocabulary: U+FFFD in UTF-8.
const UNKNOWN: &[u8] = "\u{fffd}".as_bytes();

/// A vocabulary may leave out ids, but not more than it has tokens.
const MAX_IDS_PER_TOKEN: usize = 2;

/// Marks the side on which a token of the word tokenizer joins its neighbour: the joiner of OpenNMT's tokenizer, U+FFED.
pub(super) const JOINER: char = '\u{ffed}';

/// The bytes of each token, by id.
#[derive(Debug)]
pub(crate) struct Pieces {
    pieces: Vec<Piece>,
    spacing: Spacing,
}

/// Where the spaces of a text are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spacing {
    /// In the tokens.
    Written,
    /// In the tokens, and one more than the text has in front of it.
    InFront,
    /// Between any two tokens, except where one of them joins.
    Joined,
}

/// One token.
#[derive(Clone, Debug)]
enum Piece {
    Text {
        bytes: Box<[u8]>,
        joins_left: bool,
        joins_right: bool,
    },
    /// A special token, which is no part of any text.
    Special,
}

impl Piece {
    /// A token that joins nothing.
    fn plain(bytes: &[u8]) -> Self {
        Self::Text { bytes: bytes.into(), joins_left: false, joins_right: false }
    }

    /// A token of the word tokenizer, with its joiners.
    fn word(token: &str) -> Self {
        let (left, right) = (token.strip_prefix(JOINER), token.strip_suffix(JOINER));
        let bytes = token.trim_matches(JOINER).as_bytes().into();
        Self::Text { bytes, joins_left: left.is_some(), joins_right: right.is_some() }
    }
}

/// What the tokens so far mean for the next one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seam {
    has_text: bool,
    joins: bool,
}

impl Pieces {
    /// Tokens that stand for themselves.
    pub(super) fn of_characters(tokenizer: &tokenizers::Tokenizer) -> Result<Self, String> {
        Self::new(tokenizer, Spacing::Written, |token| Piece::plain(token.as_bytes()))
    }

    /// Words and marks, which tell by joiners where no space is.
    pub(super) fn of_words(tokenizer: &tokenizers::Tokenizer) -> Result<Self, String> {
        Self::new(tokenizer, Spacing::Joined, Piece::word)
    }

    /// Words and pieces of words, which tell by `##` that they go on with one.
    pub(super) fn of_word_pieces(tokenizer: &tokenizers::Tokenizer) -> Result<Self, String> {
        Self::new(tokenizer, Spacing::Joined, |token| match token.strip_prefix(CONTINUES) {
            Some(rest) => Piece::Text { bytes: rest.as_bytes().into(), joins_left: true, joins_right: false },
            None => Piece::plain(token.as_bytes()),
        })
    }

    /// Tokens that spell bytes in the alphabet of byte-level BPE. Others that a file from elsewhere adds may hold any
    /// character and stand for themselves.
    pub(super) fn of_bytes(tokenizer: &tokenizers::Tokenizer, spacing: Spacing) -> Result<Self, String> {
        let added = tokenizer.get_added_tokens_decoder();
        let is_added = |token: &str| added.values().any(|other| other.content == token);
        Self::new(tokenizer, spacing, |token| {
            let spelt: Option<Vec<u8>> = token.chars().map(|spelling| BYTES.get(&spelling).copied()).collect();
            spelt.filter(|_| !is_added(token)).map_or(Piece::plain(token.as_bytes()), |bytes| Piece::plain(&bytes))
        })
    }

    /// Refuses ids far above the number of tokens, each of which would cost memory here and a row in every model, and an id of
    /// two tokens, which could not be told apart in decoding.
    fn new(tokenizer: &tokenizers::Tokenizer, spacing: Spacing, piece: impl Fn(&str) -> Piece) -> Result<Self, String> {
        let vocabulary = tokenizer.get_vocab(true);
        let count = vocabulary.values().max().map_or(0, |&id| id as usize + 1);
        if count > MAX_IDS_PER_TOKEN * vocabulary.len() {
            return Err(format!("its largest id is {}, but it has only {} tokens", count - 1, vocabulary.len()));
        }
        let mut seen = HashSet::new();
        if let Some((token, id)) = vocabulary.iter().find(|(_, id)| !seen.insert(**id)) {
            return Err(format!("its token {token:?} has the id {id}, as another one has"));
        }
        let mut pieces = vec![Piece::plain(UNKNOWN); count];
        for (token, id) in vocabulary {
            pieces[id as usize] = piece(&token);
        }
        for (id, _) in tokenizer.get_added_tokens_decoder().iter().filter(|(_, token)| token.special) {
            pieces[*id as usize] = Piece::Special;
        }
        Ok(Self { pieces, spacing })
    }

    /// Number of ids.
    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether an id is no part of any text.
    pub(super) fn is_special(&self, id: u32) -> bool {
        matches!(self.pieces.get(id as usize), Some(Piece::Special))
    }

    /// Whether a token goes on with the word of the token before it: one that joins it, or one without white space in front.
    pub(super) fn continues_word(&self, id: u32) -> bool {
        match (self.pieces.get(id as usize), self.spacing) {
            (Some(Piece::Text { joins_left, .. }), Spacing::Joined) => *joins_left,
            (Some(Piece::Text { bytes, .. }), _) => !bytes.first().is_some_and(u8::is_ascii_whitespace),
            _ => false,
        }
    }

    /// Appends what one id stands for, after the ids that `seam` has seen.
    pub(crate) fn append(&self, id: u32, seam: &mut Seam, text: &mut Vec<u8>) {
        let (bytes, joins_left, joins_right) = match self.pieces.get(id as usize) {
            Some(Piece::Text { bytes, joins_left, joins_right }) => (&**bytes, *joins_left, *joins_right),
            Some(Piece::Special) => return,
            None => (UNKNOWN, false, false),
        };
        match self.spacing {
            Spacing::InFront if !seam.has_text => text.extend(bytes.strip_prefix(b" ").unwrap_or(bytes)),
            Spacing::Joined if seam.has_text && !seam.joins && !joins_left => text.extend([b" ", bytes].concat()),
            _ => text.extend(bytes),
        }
        *seam = Seam { has_text: true, joins: joins_right };
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
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    #[test]
    fn the_alphabet_is_that_of_the_tokenizers_crate() {
        let ours: HashSet<char> = (0..=255).map(spelling).collect();
        assert_eq!(ours, ByteLevel::alphabet().into_iter().collect());
        assert_eq!((spelling(b'a'), spelling(b' '), spelling(b'\n')), ('a', '\u{120}', '\u{10a}'));
    }
}
