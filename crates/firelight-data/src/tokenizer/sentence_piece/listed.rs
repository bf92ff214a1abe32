//! The pieces of a SentencePiece model as lists: what GGUF files keep of them.

use std::path::Path;

use serde_json::json;

use super::layout::Layout;
use super::model::{Algorithm, Kind, Model, Normalizer, Piece, Trainer};
use super::{SPACE, file, unfit};
use crate::{DataError, Tokenizer};

/// Bytes of a piece at most: merges are searched at every character of it, which takes as long as the square of its length.
const LONGEST: usize = 4096;

/// The pieces of a BPE of SentencePiece, and what stands around texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PieceList {
    /// Spelling, score and kind of each piece; its id is its place. The piece of the best score is merged first.
    pub pieces: Vec<(String, f32, PieceKind)>,
    /// Whether every text begins with a space.
    pub space_in_front: bool,
    /// Whether several spaces are one, and those around a text none.
    pub without_extra_spaces: bool,
    /// The piece in front of every text.
    pub front: Option<String>,
    /// The piece behind every text.
    pub behind: Option<String>,
}

/// What a piece is for, by the numbers of SentencePiece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PieceKind {
    /// Of text.
    #[default]
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

impl PieceKind {
    /// The kind of a number.
    ///
    /// ```
    /// use firelight_data::PieceKind;
    ///
    /// assert_eq!((PieceKind::of(3), PieceKind::of(7)), (Some(PieceKind::Control), None));
    /// ```
    pub fn of(number: i64) -> Option<Self> {
        let kinds = [Self::Normal, Self::Unknown, Self::Control, Self::UserDefined, Self::Unused, Self::Byte];
        kinds.into_iter().find(|kind| *kind as i64 == number)
    }
}

impl PieceList {
    fn model(&self) -> Model {
        let piece = |(text, score, kind): &(String, f32, PieceKind)| Piece {
            piece: Some(text.clone()),
            score: Some(*score),
            kind: Some(*kind as i32),
        };
        let has_bytes = self.pieces.iter().any(|(.., kind)| *kind as i32 == Kind::Byte as i32);
        Model {
            pieces: self.pieces.iter().map(piece).collect(),
            trainer: Some(Trainer {
                algorithm: Some(Algorithm::Bpe as i32),
                space_behind: None,
                byte_fallback: Some(has_bytes),
            }),
            normalizer: Some(Normalizer {
                charsmap: None,
                add_dummy_prefix: Some(self.space_in_front),
                remove_extra_whitespaces: Some(self.without_extra_spaces),
            }),
        }
    }
}

impl Tokenizer {
    /// The tokenizer of a list of pieces; `place` is the file that holds it, for messages.
    ///
    /// ```
    /// use firelight_data::{PieceKind, PieceList, Tokenizer};
    ///
    /// let piece = |text: &str, score: f32| (text.to_string(), score, PieceKind::Normal);
    /// let unknown = ("<unk>".to_string(), 0.0, PieceKind::Unknown);
    /// let pieces = vec![unknown, piece("▁a", -1.0), piece("▁", -2.0), piece("a", -3.0)];
    /// let list = PieceList { pieces, space_in_front: true, ..PieceList::default() };
    /// let tokenizer = Tokenizer::of_pieces(&list, "model.gguf").unwrap();
    /// assert_eq!(tokenizer.encode("aa").unwrap(), [1, 3]);
    /// ```
    ///
    /// # Errors
    /// Fails if no piece stands for what is unknown, a piece is longer than 4096 bytes, or the pieces make no tokenizer.
    pub fn of_pieces(list: &PieceList, place: impl AsRef<Path>) -> Result<Self, DataError> {
        let place = place.as_ref();
        if let Some((id, (text, ..))) = list.pieces.iter().enumerate().find(|(_, (text, ..))| text.len() > LONGEST) {
            let reason = format!("its piece {id} is {} bytes long: expected at most {LONGEST}", text.len());
            return Err(unfit(place, &reason).into());
        }
        let layout = Layout::Plain { front: list.front.clone(), behind: list.behind.clone(), more: Vec::new() };
        let mut json = file(&list.model(), &layout).map_err(|reason| unfit(place, &reason))?;
        for token in json["added_tokens"].as_array_mut().into_iter().flatten() {
            // The crate normalizes the spelling of such a token, too: with a space in front, words alone would begin with it.
            let has_space = token["content"].as_str().is_some_and(|text| text.contains(SPACE));
            token["normalized"] = json!(token["normalized"] == true && has_space && !list.space_in_front);
        }
        Self::of_json(&json, place)
    }
}
