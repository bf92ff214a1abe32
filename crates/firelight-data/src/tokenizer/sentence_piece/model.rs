//! The file of a SentencePiece model: a protocol buffer, of which the parts are read that change an encoding.
//!
//! Source: `sentencepiece_model.proto` of <https://github.com/google/sentencepiece>; the numbers of the fields are its.

use prost::Message;

/// Pieces, and how texts are made ready for them.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Model {
    #[prost(message, repeated, tag = "1")]
    pub(super) pieces: Vec<Piece>,
    #[prost(message, optional, tag = "2")]
    pub(super) trainer: Option<Trainer>,
    #[prost(message, optional, tag = "3")]
    pub(super) normalizer: Option<Normalizer>,
}

/// A piece; its id is its place.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Piece {
    #[prost(string, optional, tag = "1")]
    pub(super) piece: Option<String>,
    #[prost(float, optional, tag = "2")]
    pub(super) score: Option<f32>,
    #[prost(enumeration = "Kind", optional, tag = "3")]
    pub(super) kind: Option<i32>,
}

/// What a piece is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum Kind {
    /// Of text.
    Normal = 1,
    /// In the place of what is not known.
    Unknown = 2,
    /// Stands for no text.
    Control = 3,
    /// Always a piece of its own.
    UserDefined = 4,
    /// Never given.
    Unused = 5,
    /// A byte of what is not known.
    Byte = 6,
}

/// How it was trained.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Trainer {
    #[prost(enumeration = "Algorithm", optional, tag = "3")]
    pub(super) algorithm: Option<i32>,
    #[prost(bool, optional, tag = "24")]
    pub(super) space_behind: Option<bool>,
    #[prost(bool, optional, tag = "35")]
    pub(super) byte_fallback: Option<bool>,
}

/// How pieces are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum Algorithm {
    /// The likeliest ones.
    Unigram = 1,
    /// By merges.
    Bpe = 2,
    /// Words.
    Word = 3,
    /// Characters.
    Char = 4,
}

/// What happens to a text before.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Normalizer {
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(super) charsmap: Option<Vec<u8>>,
    #[prost(bool, optional, tag = "3")]
    pub(super) add_dummy_prefix: Option<bool>,
    #[prost(bool, optional, tag = "4")]
    pub(super) remove_extra_whitespaces: Option<bool>,
}

impl Model {
    /// What happens to a text before, where the file says nothing as the library does it.
    pub(super) fn normalizer(&self) -> (&[u8], bool, bool) {
        let Some(found) = &self.normalizer else { return (&[], true, true) };
        let charsmap = found.charsmap.as_deref().unwrap_or_default();
        (charsmap, found.add_dummy_prefix.unwrap_or(true), found.remove_extra_whitespaces.unwrap_or(true))
    }

    /// How pieces are chosen.
    pub(super) fn algorithm(&self) -> Option<Algorithm> {
        let trainer = self.trainer.as_ref().and_then(|trainer| trainer.algorithm);
        Algorithm::try_from(trainer.unwrap_or(Algorithm::Unigram as i32)).ok()
    }

    /// Whether what is not known becomes bytes.
    pub(super) fn has_bytes(&self) -> bool {
        self.trainer.as_ref().and_then(|trainer| trainer.byte_fallback).unwrap_or(false)
    }

    /// Whether white space ends words instead of beginning them.
    pub(super) fn has_space_behind(&self) -> bool {
        self.trainer.as_ref().and_then(|trainer| trainer.space_behind).unwrap_or(false)
    }
}

impl Piece {
    /// Its spelling.
    pub(super) fn text(&self) -> &str {
        self.piece.as_deref().unwrap_or_default()
    }

    /// What it is for.
    pub(super) fn purpose(&self) -> Kind {
        self.kind.and_then(|kind| Kind::try_from(kind).ok()).unwrap_or(Kind::Normal)
    }

    /// The logarithm of its probability, or minus the number of its merge.
    pub(super) fn merit(&self) -> f32 {
        self.score.unwrap_or_default()
    }
}
